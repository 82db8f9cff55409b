"""Whatever is sent, a clear error comes back, and the next call is answered. Nothing of it needs a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stagedoor.server.access.devices import RIGHTS, Caller
from stagedoor.server.jsonrpc.client import RpcClient, SharedReaders
from stagedoor.server.jsonrpc.dispatch import reply_to
from stagedoor.server.jsonrpc.methods import METHODS
from stagedoor.server.jsonrpc.params import RunParams
from stagedoor.service.config.settings import Limits, Settings
from stagedoor.service.service import Service
from stagedoor.service.views import Scope
from tests.leftovers import watch_children

Value = TypeVar("Value")


class Bench:
    """A service without agents, and a client of it that never gets further than its messages."""

    def __init__(self, home: Path) -> None:
        root = home / "root"
        root.mkdir(parents=True)
        self.loop = asyncio.new_event_loop()
        limits = replace(Limits(), awake=0)
        server_settings = Settings(home=str(home), roots=(str(root),), default_agent="understudy", limits=limits)
        self.service = Service(server_settings)
        self.run(self.service.start())
        self.shared = SharedReaders(self.service)

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        return self.loop.run_until_complete(work)

    def say(self, message: bytes, *scopes: Scope) -> Any:
        """The answer; ``None`` when there is none."""
        caller = Caller("device", "a tester", scopes or ("admin",))

        async def ask() -> bytes | None:
            client = RpcClient(self.service, self.shared, caller, send=_nobody)
            try:
                reply = await reply_to(client, message)
                for work in reply.afterwards:
                    work()
                return reply.body
            finally:
                await client.close()

        body = self.run(ask())
        return None if body is None else json.loads(body)

    def close(self) -> None:
        self.run(self.service.stop())
        self.loop.close()


async def _nobody(message: bytes) -> None:
    pass


@pytest.fixture(scope="module", autouse=True)
def nothing_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of all its tests: they share a server, and its agents."""
    yield from watch_children(request.node)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Any:
    bench = Bench(tmp_path_factory.mktemp("bench") / "home")
    yield bench
    bench.close()


def sound(answer: Any) -> None:
    """An answer as JSON-RPC has it, and no mistake of our own."""
    for one in answer if isinstance(answer, list) else [answer]:
        assert one["jsonrpc"] == "2.0"
        assert set(one) in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
        if "error" in one:
            assert one["error"]["code"] != -32603, one
            assert one["error"]["message"]


FUZZ: Callable[..., Any] = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@FUZZ
@given(message=st.binary(max_size=200))
def test_any_bytes(bench: Bench, message: bytes) -> None:
    sound(bench.say(message))


@FUZZ
@given(message=JSON)
def test_any_json(bench: Bench, message: Any) -> None:
    answer = bench.say(json.dumps(message).encode())
    if answer is not None:
        sound(answer)


def _names() -> list[str]:
    return sorted({name for method in METHODS.values() for name in method.params.__struct_encode_fields__})


VALUES = JSON | st.sampled_from(
    ["nobody", "", "understudy", "new", "continue", "allow", "notify", "a:b", 2**63, -1, 1e308]
)


@FUZZ
@given(
    method=st.sampled_from(sorted(METHODS)),
    params=st.dictionaries(st.sampled_from(_names()), VALUES, max_size=6),
    call_id=SCALARS,
)
def test_any_params_of_any_method(bench: Bench, method: str, params: Any, call_id: Any) -> None:
    call = {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}
    sound(bench.say(json.dumps(call).encode()))


@FUZZ
@given(at=st.integers(0, 200), junk=st.binary(max_size=3), method=st.sampled_from(sorted(METHODS)))
def test_a_call_that_was_damaged_on_the_way(bench: Bench, at: int, junk: bytes, method: str) -> None:
    call = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"sessionId": "x", "prompt": "y"}}
    ).encode()
    answer = bench.say(call[:at] + junk + call[at + len(junk) :])
    if answer is not None:
        sound(answer)


DEEP = 200_000


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"[" * DEEP, -32700),
        (b"[" * DEEP + b"]" * DEEP, -32700),
        (b'{"a":' * DEEP + b"1" + b"}" * DEEP, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"agent/run","params":{"prompt":"x","options":' + b"[" * 100 + b"]" * 100
         + b"}}", -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"limit":1e999}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"limit":' + b"9" * 5000 + b"}}", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"limit":' + b"9" * 50 + b"}}", -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"limit":NaN}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/list","params":"x"}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"session/list","params":[1]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 100_000 + b'"}', -32601),
        ('{"jsonrpc":"2.0","id":1,"method":"session/list"}'.encode("utf-16"), -32700),
    ],
    ids=range(12),
)  # fmt: skip
def test_the_known_traps(bench: Bench, message: bytes, code: int) -> None:
    answer = bench.say(message)
    sound(answer)
    assert answer["error"]["code"] == code
    assert len(answer["error"]["message"]) < 2000


@pytest.mark.parametrize("name", METHODS)
def test_each_method_takes_its_scope_and_no_less(bench: Bench, name: str) -> None:
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": name, "params": {"sessionId": 1}}).encode()
    refused = {scope for scope in RIGHTS if bench.say(call, scope).get("error", {}).get("code") == -32004}
    needed = RIGHTS.index(METHODS[name].scope)
    assert refused == set(RIGHTS[:needed])


def test_who_may_nothing_may_nothing(bench: Bench) -> None:
    changing = {"agent/select", "agent/configure", "agent/run", "agent/stop", "session/send", "session/resume"}
    changing |= {"agent/settings", "session/set", "session/undo"}  # the first of them starts the agent's program
    changing |= {f"git/{name}" for name in ("stage", "unstage", "discard", "commit", "checkout", "push")}
    answering = {"agent/respond", "permission/answer"}
    scopes = {name: method.scope for name, method in METHODS.items()}
    assert {name for name, scope in scopes.items() if scope == "run"} == changing
    assert {name for name, scope in scopes.items() if scope == "answer"} == answering
    assert set(scopes.values()) <= set(get_args(Scope))
    assert set(RunParams.__struct_encode_fields__) >= {"prompt", "mode", "options"}  # the seed's own
