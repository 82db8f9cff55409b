"""Functions of the calling program as tools, over the embedded agent: a real child process, our server, our bridge."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

import stagedoor
from stagedoor import catalog
from stagedoor.errors import BadRequest
from stagedoor.mcp.functions import content_of
from stagedoor.permissions.audit import read_log, verify
from stagedoor.permissions.policy import Policy
from stagedoor.permissions.rules import Rule
from stagedoor.session import Session
from stagedoor.unified.events import Event
from stagedoor.unified.options import check_options

BOUND = 240.0


class Desk:
    """Functions that note how they were called."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.contexts: list[stagedoor.ToolContext] = []
        self.threads: list[bool] = []

    async def book(self, title: str, copies: int = 1) -> dict[str, Any]:
        """Book a title."""
        self.calls.append(f"book {title} {copies}")
        return {"title": title, "copies": copies}

    def look_up(self, word: str, context: stagedoor.ToolContext) -> str:
        """Look a word up."""
        self.calls.append(f"look_up {word}")
        self.contexts.append(context)
        self.threads.append(threading.current_thread() is threading.main_thread())
        return f"{word}: a small bird"

    def fail(self) -> None:
        raise RuntimeError("no such shelf")

    @property
    def tools(self) -> list[Any]:
        return [self.book, stagedoor.tool(self.look_up, reads=True), self.fail]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"mcp": {"server": "host", "tool": tool, "arguments": arguments}}


def script(*steps: object) -> str:
    return json.dumps({"script": [*([step] for step in steps), [{"say": "done"}]]})


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return {"cwd": str(workspace), "env": {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "home")}}


def run(prompt: str, options: dict[str, Any], **more: Any) -> list[Event]:
    async def main() -> list[Event]:
        async with asyncio.timeout(BOUND):
            return [event async for event in stagedoor.run("understudy", prompt, **(options | more))]

    return asyncio.run(main())


def results(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.status, event.output) for event in events if isinstance(event, stagedoor.ToolResult)]


def test_calls_results_errors_and_the_context(options: dict[str, Any]) -> None:
    desk = Desk()
    prompt = script(
        call("book", title="Emma", copies=2), call("look_up", word="wren"), call("fail"), call("book", title=7)
    )
    events = run(prompt, options, tier="autonomous", tools=desk.tools)
    assert results(events) == [
        ("success", '{"title":"Emma","copies":2}'),
        ("success", "wren: a small bird"),
        ("error", "RuntimeError: no such shelf"),
        ("error", "wrong arguments for book: Expected `str`, got `int` - at `$.title`"),
    ]
    assert desk.calls == ["book Emma 2", "look_up wren"]
    assert desk.threads == [False]
    (context,) = desk.contexts
    uses = [event for event in events if isinstance(event, stagedoor.ToolUse)]
    assert (context.tool, context.call_id, context.session_id, context.agent, context.cwd, context.cancelled) == (
        "look_up", uses[1].tool_use_id, events[0].session_id, "understudy", options["cwd"], False,
    )  # fmt: skip
    assert [use.risk for use in uses] == ["medium", "low", "medium", "medium"]


def deny(request: stagedoor.PermissionRequest) -> stagedoor.Deny:
    return stagedoor.Deny("not today")


def allow(request: stagedoor.PermissionRequest) -> stagedoor.Allow:
    return stagedoor.Allow()


NO_BOOKS = Policy(rules=(Rule(action="deny", tool=("mcp__host__book",), message="the desk is closed"),))
ALL_BOOKS = Policy(rules=(Rule(action="allow", tool=("mcp__host__*",)),))
READS = "look_up wren"
BOOKS = "book Emma 1"


@pytest.mark.parametrize(
    ("more", "calls", "questions"),
    [
        pytest.param({"tier": "dry-run"}, [READS], 0, id="a dry run: only what only reads"),
        pytest.param({"tier": "dry-run", "can_use_tool": allow, "policy": ALL_BOOKS}, [READS], 0, id="whoever allows"),
        pytest.param({"sandbox": "readOnly", "can_use_tool": allow}, [READS], 0, id="a read-only sandbox too"),
        pytest.param({}, [READS], 0, id="supervised, and nobody to ask"),
        pytest.param({"can_use_tool": allow}, [BOOKS, READS], 1, id="supervised: asked once"),
        pytest.param({"can_use_tool": deny}, [READS], 1, id="supervised: denied"),
        pytest.param({"approval": "ask", "can_use_tool": allow}, [BOOKS, READS], 1, id="approval ask"),
        pytest.param({"approval": "askDangerous", "can_use_tool": deny}, [BOOKS, READS], 0, id="nothing dangerous"),
        pytest.param({"tier": "autonomous"}, [BOOKS, READS], 0, id="autonomous"),
        pytest.param({"tier": "autonomous", "policy": NO_BOOKS}, [READS], 0, id="a policy denies in every tier"),
        pytest.param({"policy": ALL_BOOKS}, [BOOKS, READS], 0, id="a policy allows"),
        pytest.param({"tier": "autonomous", "disallowed_tools": ["book"]}, [READS], 0, id="disallowed by its name"),
        pytest.param({"tier": "autonomous", "disallowed_tools": ["mcp"]}, [], 0, id="no servers, no functions"),
        pytest.param({"tier": "autonomous", "allowed_tools": ["mcp__host__look_up"]}, [READS], 0, id="only the other"),
        pytest.param({"tier": "autonomous", "allowed_tools": ["shell"]}, [], 0, id="none is in the list"),
    ],
)
def test_tiers_policies_and_lists(
    options: dict[str, Any], more: dict[str, Any], calls: list[str], questions: int
) -> None:
    desk = Desk()
    asked_about: list[str] = []
    if decide := more.get("can_use_tool"):

        def noting(request: stagedoor.PermissionRequest) -> Any:
            asked_about.append(request.native_name)
            return decide(request)

        more = more | {"can_use_tool": noting}
    events = run(script(call("book", title="Emma"), call("look_up", word="wren")), options, tools=desk.tools, **more)
    assert desk.calls == calls, results(events)
    assert asked_about == ["mcp__host__book"] * questions
    assert isinstance(events[-1], stagedoor.Done)


def test_whoever_knows_the_secret_is_asked_about_too(tmp_path: Path) -> None:
    """A call that comes past the agent, from a command that has read the secret, say, is decided like any other."""
    calls: list[str] = []
    questions: list[str] = []

    def book(title: str) -> str:
        """Book a title."""
        calls.append(title)
        return "booked"

    def decide(request: stagedoor.PermissionRequest) -> stagedoor.Allow | stagedoor.Deny:
        questions.append(request.input["title"])
        return stagedoor.Deny("not that one")

    async def main() -> str:
        async with asyncio.timeout(BOUND):
            options = check_options({"cwd": str(tmp_path), "tools": [book], "can_use_tool": decide})
            session = Session(agent="understudy", options=options, driver=catalog.agent("understudy").drivers["acp"])
            functions = session._engine._functions
            assert functions is not None
            server = (await functions.join(options)).mcp_servers["host"]
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
            message |= {"params": {"name": "book", "arguments": {"title": "Emma"}}}
            async with httpx.AsyncClient(timeout=BOUND) as client:
                reply = await client.post(server.url, json=message, headers=dict(server.headers))
            await functions.close()
            return str(reply.json()["result"]["content"][0]["text"])

    assert asyncio.run(main()) == "not run: not that one"
    assert (calls, questions) == ([], ["Emma"])


def test_arguments_that_a_person_has_emptied_do_not_allow_the_ones_before(tmp_path: Path) -> None:
    calls: list[int] = []
    answers: list[stagedoor.Allow | stagedoor.Deny] = [stagedoor.Allow(updated_input={}), stagedoor.Deny("no")]

    def order(copies: int = 1) -> None:
        """Order copies."""
        calls.append(copies)

    async def main() -> str:
        async with asyncio.timeout(BOUND):
            options = check_options({"cwd": str(tmp_path), "tools": [order], "can_use_tool": lambda _: answers.pop(0)})
            driver = next(iter(catalog.agent("claude").drivers.values()))  # nothing is started
            session = Session(agent="claude", options=options, driver=driver)
            functions = session._engine._functions
            assert functions is not None
            server = (await functions.join(options)).mcp_servers["host"]
            request = stagedoor.PermissionRequest(
                request_id="1", tool_name="mcp", native_name="mcp__host__order", input={"copies": 1000}
            )
            assert await functions.answer(request) == stagedoor.Allow(updated_input={})
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
            message |= {"params": {"name": "order", "arguments": {"copies": 1000}}}
            async with httpx.AsyncClient(timeout=BOUND) as client:
                reply = await client.post(server.url, json=message, headers=dict(server.headers))
            await functions.close()
            return str(reply.json()["result"]["content"][0]["text"])

    assert asyncio.run(main()) == "not run: no"
    assert (calls, answers) == ([], [])


def test_every_way_to_run_takes_functions(options: dict[str, Any]) -> None:
    desk = Desk()
    prompt = script(call("book", title="Emma"))
    more: dict[str, Any] = {**options, "tier": "autonomous", "tools": desk.tools}
    assert stagedoor.run_sync("understudy", prompt, **more).status == "success"

    async def main() -> None:
        async with asyncio.timeout(BOUND):
            async with stagedoor.open("understudy", **more) as session:
                for title in ("Ulysses", "Dune"):  # the same functions in every turn
                    async for _ in session.send(script(call("book", title=title))):
                        pass
            tasks = [
                stagedoor.Task("understudy", script(call("book", title="One")), options={"tools": desk.tools}),
                stagedoor.Task("understudy", script(call("book", title="Two"))),
            ]
            async for _ in stagedoor.run_parallel(tasks, **more):
                pass

    asyncio.run(main())
    assert desk.calls[:3] == ["book Emma 1", "book Ulysses 1", "book Dune 1"]
    assert sorted(desk.calls[3:]) == ["book One 1", "book Two 1"]


def test_an_interrupted_turn_cancels_its_calls(options: dict[str, Any]) -> None:
    ends: list[str] = []

    async def endless(context: stagedoor.ToolContext) -> None:
        """Waits for ever."""
        session = context.session
        assert session is not None
        ends.append("began")
        stopping = asyncio.create_task(session.interrupt())
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")
            await stopping

    events = run(script(call("endless")), options, tier="autonomous", tools=[endless])
    assert ends == ["began", "cancelled"]
    assert isinstance(events[-1], stagedoor.Done)
    assert events[-1].status == "interrupted"


def test_pictures_and_structures(options: dict[str, Any]) -> None:
    picture = stagedoor.Image(b"\x89PNG", "image/png")

    @dataclass
    class Bird:
        name: str
        size: int

    assert content_of([picture, "a wren"]) == [
        {"type": "image", "data": "iVBORw==", "mimeType": "image/png"}, {"type": "text", "text": "a wren"},
    ]  # fmt: skip
    assert content_of([Bird("wren", 10)]) == [{"type": "text", "text": '[{"name":"wren","size":10}]'}]
    assert content_of(None) == [{"type": "text", "text": "null"}]


def variadic(*words: str) -> None: ...
def typed(where: object, when: threading.Event) -> None: ...
def unknown(where: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037
def numbers() -> Any:
    yield 1


def github__push() -> None: ...


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([variadic], "variadic: a tool takes named arguments only"),
        ([lambda: None], "cannot be the name of a tool: use tool(function, name=…)"),
        ([github__push], "'github__push' has two _ in a row"),
        ([typed], "typed: a parameter has a type that JSON does not know"),
        ([unknown], "the type hints of unknown cannot be read"),
        ([numbers], "numbers yields"),
        ([print, print], "print"),
        ([Desk().fail, Desk().fail], "there are two of the name 'fail'"),
        ([3], "3 is not a function"),
        (Desk().fail, "give a list of functions"),
    ],
)
def test_what_cannot_be_a_tool(tools: Any, words: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(words)):
        check_options({"tools": tools})


def test_the_name_of_our_server_is_taken() -> None:
    servers = {"host": stagedoor.McpServer(command="x")}
    with pytest.raises(BadRequest, match="give that one another name"):
        check_options({"tools": [Desk().fail], "mcp_servers": servers})


def test_calls_are_in_the_audit(options: dict[str, Any], tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    desk = Desk()
    prompt = script(call("book", title="Emma"), call("look_up", word="wren"))
    run(prompt, options, tools=desk.tools, can_use_tool=allow, audit=str(audit))
    entries = [(one.entry.tool, one.entry.target, one.entry.decision) for one in read_log(audit)]
    assert ("mcp", "book", "allow") in entries
    assert verify(audit).ok
