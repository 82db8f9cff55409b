"""The page in a real browser, on a real server, with the embedded agent.

``stage`` is a server in a thread, one per module; ``visit`` opens the page as a paired device, in the size of a phone
or a desk. Whatever a page does wrong on the way (an error in its console, a request elsewhere, a breach of its policy)
fails the test that opened it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from stagedoor.server.app import create_app
from stagedoor.server.listening import listening, open_socket
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.service import Service
from tests.leftovers import watch_children
from tools.browser import FLAGS, find_browser

BOUND = 240.0
TOKEN = "stagedoor_test-token-of-the-administrator"
SIZES: dict[str, dict[str, Any]] = {
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
    "desk": {"viewport": {"width": 1360, "height": 860}},
}
OPEN = ".question:not(.closed)"
Value = TypeVar("Value")
Json = dict[str, Any]


def script(*replies: object) -> str:
    """A prompt the understudy plays."""
    return json.dumps({"script": list(replies)})


def until(condition: Callable[[], Value], description: str = "it") -> Value:
    """The first thing that is true; for what happens outside of the page."""
    end = time.monotonic() + BOUND
    while not (value := condition()):
        assert time.monotonic() < end, f"{description} did not happen"
        time.sleep(0.02)
    return value


class Stage:
    """A server that runs, and what tests want from it."""

    def __init__(self, service: Service, port: int, root: Path) -> None:
        self.service = service
        self.url = f"http://127.0.0.1:{port}"
        self.root = root
        self.loop = asyncio.get_running_loop()
        self.http = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=BOUND)
        self.cookies: Any = None

    script = staticmethod(script)
    until = staticmethod(until)

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(BOUND)

    def folder(self, name: str) -> Path:
        """A git repository of its own, with one commit."""
        repository = self.root / name
        repository.mkdir()
        (repository / "shop.py").write_text("def total(items):\n    return sum(items)\n")
        for words in (["init", "-q", "-b", "main"], ["add", "."], [*WHO, "commit", "-q", "-m", "A shop"]):
            subprocess.run(["git", *words], cwd=repository, check=True, capture_output=True)
        return repository

    def start(self, *replies: object, **options: Any) -> str:
        body = {"agent": "understudy", "prompt": script(*replies), "keepOpen": True, "cwd": str(self.root), **options}
        answer = self.http.post("/api/sessions", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def session(self, session_id: str) -> Json:
        result: Json = self.http.get(f"/api/sessions/{session_id}").json()
        return result

    def events(self, session_id: str) -> list[Json]:
        result: list[Json] = []
        while True:
            after = result[-1]["seq"] if result else 0
            page = self.http.get(f"/api/sessions/{session_id}/events", params={"after": after, "limit": 1000}).json()
            result += page["events"]
            if not page["events"] or result[-1]["seq"] >= page["lastSeq"]:
                return result

    def questions(self) -> list[Json]:
        return list(self.http.get("/api/permissions").json()["permissions"])

    def ended(self, session_id: str) -> Json:
        return until(lambda: (view := self.session(session_id))["activity"] == "ended" and view, "the end of a session")

    def idle(self, session_id: str) -> Json:
        return until(lambda: (view := self.session(session_id))["activity"] == "idle" and view, "rest")

    def pairing_code(self, scope: str = "admin") -> str:
        return str(self.http.post("/api/pairing", json={"scope": scope}).json()["code"])


WHO = ("-c", "user.name=Stagedoor", "-c", "user.email=stagedoor@localhost", "-c", "commit.gpgsign=false")


@pytest.fixture(scope="module")
def agents() -> dict[str, AgentSettings]:
    """More agents than the understudy; a module may override it."""
    return {}


@pytest.fixture(scope="module")
def more_settings() -> dict[str, Any]:
    """Of the server; a module may override it."""
    return {}


@pytest.fixture(scope="module")
def stage(
    browser: object,
    tmp_path_factory: pytest.TempPathFactory,
    agents: dict[str, AgentSettings],
    more_settings: dict[str, Any],
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    root = folder / "work"
    root.mkdir()
    settings = Settings(
        home=str(folder / "stagedoor"),
        port=0,
        roots=(str(root),),
        default_agent="understudy",
        agents={"understudy": AgentSettings(env={"STAGEDOOR_UNDERSTUDY_HOME": str(folder / "understudy")}), **agents},
        **more_settings,
    )
    running: list[Stage] = []
    faults: list[BaseException] = []
    ready, stop = threading.Event(), asyncio.Event()

    async def main() -> None:
        service = Service(settings)
        opened = open_socket("127.0.0.1", 0)
        port = opened.getsockname()[1]
        async with listening(create_app(service, token=TOKEN), settings, opened):
            running.append(Stage(service, port, root))
            ready.set()
            await stop.wait()

    def work() -> None:
        try:
            asyncio.run(main())
        except BaseException as fault:
            faults.append(fault)
        finally:
            ready.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STAGEDOOR_HOME", str(folder / "stagedoor"))
        thread = threading.Thread(target=work)
        thread.start()
        assert ready.wait(BOUND)
        assert not faults, faults
        [stage] = running
        try:
            yield stage
        finally:
            stage.http.close()
            stage.loop.call_soon_threadsafe(stop.set)
            thread.join(BOUND)
    assert not faults, faults
    assert not thread.is_alive()


@pytest.fixture(scope="module", autouse=True)
def nothing_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of all its tests: they share a server, and its agents."""
    yield from watch_children(request.node)


@pytest.fixture(scope="module")
def short_folder() -> Iterator[Path]:
    """Near the root, wherever the tests run: a browser makes a socket in it, whose path must not be long."""
    with tempfile.TemporaryDirectory(prefix="stagedoor-browser-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def browser(surroundings: object, short_folder: Path) -> Iterator[Any]:
    """One per module: while Playwright runs, nobody else in this thread can have an event loop."""
    program = find_browser()
    if program is None and os.environ.get("CI") != "true":
        pytest.skip("Chromium not found: run `make browser`")
    assert program is not None, "Chromium not found, and under CI=true the tests of the page must run"
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=BOUND * 1000)

    own = str(short_folder)
    with sync_playwright() as playwright:
        env = {**os.environ, "HOME": own, "TMPDIR": own, "XDG_CONFIG_HOME": f"{own}/config"}
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS), env=dict(env))
        yield browser
        browser.close()


class Visit:
    """Pages of one test, and what went wrong in them."""

    def __init__(self, browser: Any, stage: Stage) -> None:
        self._browser = browser
        self._stage = stage
        self._contexts: list[Any] = []
        self.wrong: list[str] = []
        self.forgiven: tuple[str, ...] = ()
        """Words in complaints that a test brings about on purpose."""

    def __call__(
        self, where: str = "", size: str = "desk", *, paired: bool = True, theme: str = "light", **more: Any
    ) -> Any:
        context = self._browser.new_context(
            **{**SIZES[size], "color_scheme": theme, "service_workers": "block", "reduced_motion": "reduce", **more}
        )
        self._contexts.append(context)
        if paired:
            if self._stage.cookies is None:
                body = {"code": self._stage.pairing_code(), "name": "test browser", "cookie": True}
                answer = context.request.post(f"{self._stage.url}/api/pair", data=body)
                assert answer.ok, answer.text()
                self._stage.cookies = context.cookies()
            context.add_cookies(self._stage.cookies)
        page = context.new_page()
        page.set_default_timeout(BOUND * 1000)
        page.on("console", self._check_console)
        page.on("pageerror", lambda fault: self.wrong.append(f"error: {fault}"))
        page.on("request", self._check_request)
        page.goto(f"{self._stage.url}/{where}")
        return page

    @staticmethod
    def in_reach(page: Any, name: str) -> None:
        """The button is where a thumb can hit it: inside the list, and nothing lies over it."""
        page.wait_for_function(
            """name => {
              const list = document.querySelector('virtual-list').getBoundingClientRect();
              return [...document.querySelectorAll('.question:not(.closed) .answers button')].some(button => {
                if (!button.textContent.includes(name)) return false;
                const { left, right, top, bottom } = button.getBoundingClientRect();
                const hit = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
                return top >= list.top && bottom <= list.bottom + 1 && button.contains(hit);
              });
            }""",
            arg=name,
        )

    @staticmethod
    def answer(page: Any, name: str, *, card: str = OPEN) -> None:
        """Press a button of the first open card, once it takes taps; it is answered then."""
        question_id = page.locator(card).first.get_attribute("data-question")
        mine = f"{OPEN}[data-question='{question_id}']"
        page.locator(f"{mine}:not(.settling)").get_by_role("button", name=name, exact=True).click()
        page.locator(mine).wait_for(state="detached")

    def _check_console(self, message: Any) -> None:
        if message.type in ("error", "warning") and "blocked by Playwright" not in message.text:
            self.wrong.append(f"console: {message.text} {message.location.get('url', '')}")

    def _check_request(self, request: Any) -> None:
        if not request.url.startswith((self._stage.url, "data:", "blob:")):
            self.wrong.append(f"request: {request.url[:200]}")

    def tidy(self) -> None:
        """End what still runs: the next test begins with nothing that waits."""
        for entry in self._stage.http.get("/api/sessions", params={"ended": False}).json()["sessions"]:
            self._stage.http.post(f"/api/sessions/{entry['id']}/cancel")

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        self.tidy()
        wrong = [entry for entry in self.wrong if not any(word in entry for word in self.forgiven)]
        assert wrong == []


@pytest.fixture
def visit(browser: Any, stage: Stage) -> Iterator[Visit]:
    visit = Visit(browser, stage)
    yield visit
    visit.close()


@pytest.fixture
def visits() -> type[Visit]:
    """For a test with a server of its own."""
    return Visit
