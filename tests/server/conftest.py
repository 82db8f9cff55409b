"""The real app on a loopback port, with the embedded agent. Prompts made with ``script`` say what the agent plays.

Two ways to use it: ``async with serve() as server`` in the test's own loop, where ``server.service`` can be called
directly; or the fixture ``server``, which runs in a thread, for tests without a loop (``server.http`` is an
``httpx.Client``). Both know ``url``, ``ws_url``, ``token``, ``home``, ``workspace``, ``headers``, ``client()``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from msgspec.structs import replace
from starlette.applications import Starlette

from stagedoor.server.app import create_app
from stagedoor.server.listening import listening, open_socket
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.service import Service
from tools.postgres import chosen_database

BOUND = 240.0
TOKEN = "stagedoor_test-token-of-the-administrator"
Value = TypeVar("Value")


class Server:
    """A server that runs."""

    def __init__(self, app: Starlette, service: Service, address: tuple[str, int], workspace: Path) -> None:
        self.app = app
        self.service = service
        self.host, self.port = address
        self.url = f"http://{self.host}:{self.port}"
        self.ws_url = f"ws://{self.host}:{self.port}"
        self.token = TOKEN
        self.headers = {"Authorization": f"Bearer {TOKEN}"}
        self.home = service.home
        self.workspace = workspace
        self.loop = asyncio.get_running_loop()

    def client(self, **more: Any) -> httpx.AsyncClient:
        """A client that shows the administrator's token: ``async with server.client() as client``."""
        return httpx.AsyncClient(**({"base_url": self.url, "headers": self.headers, "timeout": BOUND} | more))

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        """From another thread: carry ``work`` out in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(BOUND)

    @property
    def http(self) -> httpx.Client:
        return self._http

    _http: httpx.Client


def script(*replies: object) -> str:
    """A prompt the understudy plays: ``script([{"say": "Hello"}, {"shell": "touch made"}], [{"say": "ok"}])``."""
    return json.dumps({"script": list(replies)})


Serve = Callable[..., contextlib.AbstractAsyncContextManager[Server]]


@pytest.fixture(name="script")
def _script() -> Callable[..., str]:
    return script


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """What ``serve`` and ``server`` begin from; a test module may override this fixture."""
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    return Settings(
        home=str(tmp_path / "stagedoor-home"),
        port=0,
        roots=(str(workspace),),
        default_agent="understudy",
        database=chosen_database(),
        agents={"understudy": AgentSettings(env={"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy")})},
    )


@pytest.fixture
def serve(settings: Settings) -> Serve:
    """``async with serve(**changes of settings) as server``; after it another one may go on with the same home."""

    @contextlib.asynccontextmanager
    async def start(*, within: float = 3600.0, **changes: Any) -> AsyncIterator[Server]:
        async with asyncio.timeout(within):
            actual = replace(settings, **changes)
            service = Service(actual)
            app = create_app(service, token=TOKEN)
            opened = open_socket(actual.host, actual.port)
            address = opened.getsockname()[:2]
            async with listening(app, actual, opened):
                yield Server(app, service, address, Path(actual.roots[0]))

    return start


@pytest.fixture
def server(serve: Serve) -> Iterator[Server]:
    """A server in a thread of its own."""
    running: list[Server] = []
    ready = threading.Event()
    faults: list[BaseException] = []

    async def main() -> None:
        async with serve() as running_server:
            stop = running_server.stop = asyncio.Event()  # type: ignore[attr-defined]
            running.append(running_server)
            ready.set()
            await stop.wait()

    def work() -> None:
        try:
            asyncio.run(main())
        except BaseException as fault:
            faults.append(fault)
        finally:
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(BOUND)
    try:
        if running:
            running_server = running[0]
            with httpx.Client(base_url=running_server.url, headers=running_server.headers, timeout=BOUND) as client:
                running_server._http = client
                yield running_server
    finally:
        if running:
            running_server = running[0]
        if running and not running_server.loop.is_closed():
            running_server.loop.call_soon_threadsafe(running_server.stop.set)  # type: ignore[attr-defined]
        thread.join(BOUND)
    assert not faults, faults
    assert not thread.is_alive()
