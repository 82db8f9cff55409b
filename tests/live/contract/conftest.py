"""The stage of the contract suite: any agent, the same scripts, the same questions about its events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

import stagedoor
from stagedoor.testing import ScriptedModel
from stagedoor.testing.script import Forever, Part, Reply, Say, Script, ScriptedCall, Structured, Think
from stagedoor.unified.events import Event, ToolName

BOUND = 300.0
EventT = TypeVar("EventT")
React = Callable[[Event], Awaitable[None]]
Snapshot = dict[str, bytes]


THOROUGH = ("claude stream", "codex app-server", "codex exec", "gemini acp", "opencode serve", "understudy acp")
"""The drivers that play every case in ``make test``: those of choice, and those that cost little. The others work for
seconds at each start or turn, and play what is theirs alone; ``make contract`` and ``make compatibility`` play
everything with all of them."""


STOOD_FOR = ("opencode acp", "opencode run")
"""The slowest. In cases that are the program's own, its thorough driver stands for them in ``make test``."""


@pytest.fixture
def of_the_program(rig: Any) -> None:
    if os.environ.get("STAGEDOOR_CONTRACT") != "1" and f"{rig.agent} {rig.driver}" in STOOD_FOR:
        pytest.skip("another driver of the same program stands for it; make contract and make compatibility play it")


@pytest.fixture
def plays_everything(rig: Any) -> bool:
    return os.environ.get("STAGEDOOR_CONTRACT") == "1" or f"{rig.agent} {rig.driver}" in THOROUGH


class EventList(list[Event]):
    """The events of a turn, or of a whole session, and what tests want to know of them."""

    def of(self, kind: type[EventT]) -> list[EventT]:
        return [event for event in self if isinstance(event, kind)]

    @property
    def kinds(self) -> list[str]:
        return [event.__struct_config__.tag for event in self]  # type: ignore[misc]

    @property
    def completed(self) -> stagedoor.TurnCompleted:
        [completed] = self.of(stagedoor.TurnCompleted)
        return completed

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.of(stagedoor.Text) if event.parent_tool_use_id is None)

    @property
    def errors(self) -> list[str]:
        return [event.kind for event in self.of(stagedoor.Error)]

    def calls(self, name: ToolName) -> list[tuple[stagedoor.ToolUse, stagedoor.ToolResult]]:
        """The calls of this tool, each with what became of it."""
        results = {event.tool_use_id: event for event in self.of(stagedoor.ToolResult)}
        return [(use, results[use.tool_use_id]) for use in self.of(stagedoor.ToolUse) if use.name == name]

    def describe(self) -> str:
        header = {"agent", "sessionId", "seq", "timestamp", "turn"}
        members = [{k: v for k, v in msgspec.to_builtins(event).items() if k not in header} for event in self]
        return "\n".join(["events:", *(str(event)[:400] for event in members[-40:])])


def well_formed(events: Sequence[Event]) -> None:
    """The promises of the grammar, for a whole session."""
    session = EventList(events)
    assert session.kinds[0] == "init"
    assert session.kinds[-1] == "done"
    assert session.kinds.count("init") == session.kinds.count("done") == 1
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    uses, results = session.of(stagedoor.ToolUse), session.of(stagedoor.ToolResult)
    assert sorted(use.tool_use_id for use in uses) == sorted(result.tool_use_id for result in results)
    questions, resolved = session.of(stagedoor.PermissionRequest), session.of(stagedoor.PermissionResolved)
    assert sorted(event.request_id for event in questions) == sorted(event.request_id for event in resolved)
    edges = [kind for kind in session.kinds if kind in ("turn_started", "turn_completed")]
    assert edges == ["turn_started", "turn_completed"] * (len(edges) // 2)
    assert session.of(stagedoor.Unrecognized) == []


class Conversation:
    def __init__(self, session: stagedoor.Session) -> None:
        self.session = session
        self.events = EventList()

    async def turn(self, prompt: str, react: React | None = None) -> EventList:
        """Send ``prompt`` and read its turn to the end."""
        turn = EventList()
        try:
            async with asyncio.timeout(BOUND), contextlib.aclosing(self.session.send(prompt)) as events:
                async for event in events:
                    turn.append(event)
                    self.events.append(event)
                    if react is not None:
                        await react(event)
        except TimeoutError:
            raise AssertionError(f"the turn {prompt!r} did not end; its events:\n{turn.describe()}") from None
        return turn

    async def close(self) -> stagedoor.Done:
        rest = self.session.events
        async with asyncio.timeout(BOUND):
            await self.session.close()
            async for event in rest:
                self.events.append(event)
        [done] = self.events.of(stagedoor.Done)
        return done


class Stage:
    """One agent in a workspace of its own, with a model that follows ``routes``: each prompt names its script."""

    def __init__(self, rig: Any, folder: Path, model: ScriptedModel | None) -> None:
        self.rig = rig
        self.folder = folder
        self.model = model
        self.workspace = folder / "workspace"
        self.outside = folder / "outside"
        self.home = folder / "home"
        self.more: dict[str, Any] = {}
        for place in (self.workspace, self.outside, self.home):
            place.mkdir()
        if model is None:
            names = ("PATH", "LANG", "LC_ALL")
            self.env = {name: os.environ[name] for name in names if name in os.environ} | {
                "HOME": str(self.home),
                "STAGEDOOR_UNDERSTUDY_HOME": str(self.home / "understudy"),
            }
        else:
            self.env = model.environment(rig.agent, home=self.home, cwd=self.workspace).env

    def options(self, **more: Any) -> dict[str, Any]:
        fixed = {
            "cwd": str(self.workspace),
            "driver": self.rig.driver,
            "executable": self.rig.executable,
            "env": self.env,
            "inherit_env": False,
        }
        return {**fixed, **self.more, **more}

    def open(self, **more: Any) -> stagedoor.Session:
        return stagedoor.open(self.rig.agent, **self.options(**more))

    @contextlib.asynccontextmanager
    async def conversation(self, **more: Any) -> AsyncIterator[Conversation]:
        """A session that is closed at the end, and then obeys the grammar."""
        async with self.open(**more) as session:
            conversation = Conversation(session)
            yield conversation
            if conversation.events and not conversation.events.of(stagedoor.Done):
                await conversation.close()
        if conversation.events:
            well_formed(conversation.events)

    def path(self, name: str) -> str:
        return str(self.workspace / name)

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "init.defaultBranch=main")
        argv = ["git", *identity, *arguments]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.outside), "GIT_CONFIG_NOSYSTEM": "1"}
        return subprocess.run(argv, cwd=self.workspace, env=env, check=True, capture_output=True, text=True).stdout

    def snapshot(self, *places: Path) -> Snapshot:
        """Every file below these places, byte for byte; folders and links too."""
        files: Snapshot = {}
        for place in places:
            for path in sorted(place.rglob("*")):
                files[str(path)] = _content(path)
        return files

    def model_received(self, words: str) -> bool:
        """Whether any request of the agent to its model holds these words."""
        assert self.model is not None
        return any(words in json.dumps(request.body, ensure_ascii=False) for request in self.model.requests)


def _content(path: Path) -> bytes:
    if path.is_symlink():
        return b"-> " + os.fsencode(path.readlink())
    return b"/" if path.is_dir() else path.read_bytes() if path.is_file() else b"?"


# --------------------------------------------------------------------- scripts, as the embedded agent reads them


def as_json(routes: Mapping[str, Script]) -> str:
    return json.dumps({"routes": {mark: [_reply(reply) for reply in script] for mark, script in routes.items()}})


def _reply(reply: Reply) -> Any:
    if isinstance(reply, Forever):
        return {"forever": _reply(reply.reply)}
    if isinstance(reply, Sequence):
        return [_part(part) for part in reply]
    assert isinstance(reply, Part), "the contract's scripts are plain values"
    return [_part(reply)]


def _part(part: Part) -> Any:
    match part:
        case Say(pieces=(*_, "\ud83d")):
            return "half_emoji"
        case Say(pieces=pieces, pause=pause):
            return {"say": {"text": list(pieces), "pause": pause}}
        case Think(text=text):
            return {"think": text}
        case Structured(value=value):
            return {"structured": value}
        case ScriptedCall(tool="task", input=arguments, script=script):
            return {"task": {**arguments, "script": [_reply(reply) for reply in script]}}
        case ScriptedCall(tool="mcp", input=arguments):
            return {"mcp": dict(arguments)}
        case ScriptedCall(tool=tool, input=arguments):
            return {"call": {"tool": tool, "input": dict(arguments)}}
        case _:
            name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in type(part).__name__)
            arguments = {key: value for key, value in msgspec.structs.asdict(part).items() if value is not None}
            return {name.strip("_").removesuffix("_override"): arguments or None}


@pytest.fixture
def stage(rig: Any, tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    """Sets up the agent with these routes: ``stage({"say hello": [say("Hello.")]})``."""
    with contextlib.ExitStack() as running:

        def set_up(routes: Mapping[str, Script], name: str = "stage") -> Stage:
            folder = tmp_path / name
            folder.mkdir()
            if not rig.is_embedded:
                return Stage(rig, folder, running.enter_context(ScriptedModel(routes=routes)))
            script = folder / "script.yaml"
            script.write_text(as_json(routes), encoding="utf-8")
            scene = Stage(rig, folder, None)
            scene.more = {"extra_args": ("--script", str(script))}
            return scene

        yield set_up


@pytest.fixture
def play() -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Runs a scene to its end, with a bound on the whole of it."""

    def run(scene: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(8 * BOUND):
                await scene()

        asyncio.run(bounded())

    return run


@pytest.fixture
def sums_server() -> stagedoor.McpServer:
    server = Path(__file__).with_name("sums_server.py")
    return stagedoor.McpServer(command=sys.executable, args=("-I", "-S", str(server)))


# --------------------------------------------------------------------------- what is different from driver to driver


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What a plain yes or no in the capabilities cannot say."""

    faults: dict[str, tuple[str | None, str]] = {}
    fault_notes: dict[str, str] = {}
    hides_cached_tokens: bool = False
    tells_calls_late: bool = False
    """A call is told when it is over."""
    wrong_model: str = "no-such-model"
    signed_out: tuple[str, ...] | None = None
    """The variables without which the agent is signed out; ``None``: it needs no account."""

    impatience: dict[str, dict[str, Any]] = {}
    """Settings that make it give up sooner: file in its home → what is set in there."""

    patience: float | None = None
    """The time limit its turns are given where it would never end one by itself."""

    endless: tuple[str, ...] = ("context overflow",)
    """The faults after which it would not, or not for minutes."""

    bookkeeping: str = ""
    """A file in the workspace that the program itself writes whenever it runs there."""

    def keeps_book_in(self, path: str) -> bool:
        return bool(self.bookkeeping) and path.endswith(f"/{self.bookkeeping}")

    def make_impatient(self, home: Path) -> None:
        for name, sections in self.impatience.items():
            settings = json.loads((home / name).read_text())
            for section, values in sections.items():
                settings.setdefault(section, {}).update(values)
            (home / name).write_text(json.dumps(settings))

    def fault(self, name: str) -> tuple[str | None, str]:
        """The kind of the error, and the status of the turn."""
        return self.faults.get(name, FAULTS[name])


FAULTS: dict[str, tuple[str | None, str]] = {
    "HTTP 400": ("unknown", "error"),
    "HTTP 401": ("authentication_failed", "error"),
    "HTTP 403": ("authentication_failed", "error"),
    "HTTP 404": ("model_not_found", "error"),
    "HTTP 429": ("rate_limited", "error"),
    "HTTP 500": ("connection_failed", "error"),
    "HTTP 529": ("rate_limited", "error"),
    "error in the stream": ("rate_limited", "error"),
    "cut connection": ("connection_failed", "error"),
    "context overflow": ("context_overflow", "error"),
    "empty answer": (None, "success"),
    "half an emoji": (None, "success"),
}
GEMINI_GIVES_UP = {".gemini/settings.json": {"general": {"maxAttempts": 1}}}
EXPECTED: dict[str, Expected] = {
    "claude": Expected(signed_out=("ANTHROPIC_API_KEY",)),
    "codex": Expected(
        signed_out=("SCRIPTED_API_KEY",),
        faults={"half an emoji": ("connection_failed", "error")},
        fault_notes={"half an emoji": "the CLI reads no further than that, and says that the connection broke"},
    ),
    "gemini-stream-json": Expected(
        signed_out=("GEMINI_API_KEY",),
        impatience=GEMINI_GIVES_UP,
        faults={"empty answer": ("unknown", "error"), "error in the stream": ("connection_failed", "error")},
        fault_notes={"error in the stream": "the CLI says no more than that the stream ended early"},
    ),
    "gemini-acp": Expected(
        signed_out=("GEMINI_API_KEY",),
        impatience=GEMINI_GIVES_UP,
        hides_cached_tokens=True,
        faults={"empty answer": ("unknown", "error"), "error in the stream": ("unknown", "error")},
        fault_notes={"error in the stream": "over ACP the CLI does not say what went wrong"},
    ),
    "opencode": Expected(wrong_model="scripted/no-such-model", bookkeeping=".git/opencode"),
    "opencode-acp": Expected(
        wrong_model="scripted/no-such-model",
        bookkeeping=".git/opencode",
        patience=60.0,
        faults={
            "context overflow": ("timeout", "interrupted"),
            "HTTP 403": ("permission_denied", "error"),
            "HTTP 500": ("unknown", "error"),
        },
        fault_notes={
            "context overflow": "the CLI summarizes without end and says nothing of it; timeout= ends it",
            "HTTP 403": "over ACP the CLI tells the words of an error, not its status",
            "HTTP 500": "over ACP the CLI tells the words of an error, not its status",
        },
    ),
    "copilot": Expected(
        signed_out=("COPILOT_PROVIDER_BASE_URL", "COPILOT_OFFLINE"),
        faults={"empty answer": ("unknown", "error"), "half an emoji": ("unknown", "error")},
        fault_notes={"half an emoji": "the CLI reads no further than that"},
    ),
    "kimi": Expected(
        signed_out=("KIMI_MODEL_NAME", "KIMI_MODEL_API_KEY", "KIMI_MODEL_BASE_URL", "KIMI_MODEL_PROVIDER_TYPE"),
        faults={"empty answer": ("unknown", "error")},
    ),
    "qwen": Expected(
        signed_out=("OPENAI_API_KEY",),
        patience=20.0,
        endless=("HTTP 429", "HTTP 500", "HTTP 529"),
        faults={
            "empty answer": ("connection_failed", "error"),
            "HTTP 429": ("timeout", "interrupted"),
            "HTTP 500": ("timeout", "interrupted"),
            "HTTP 529": ("timeout", "interrupted"),
        },
        fault_notes=dict.fromkeys(
            ("HTTP 429", "HTTP 500", "HTTP 529"), "the CLI tries again for minutes without a word; timeout= ends it"
        ),
    ),
    "opencode-run": Expected(wrong_model="scripted/no-such-model", bookkeeping=".git/opencode", tells_calls_late=True),
}


@pytest.fixture
def expected(rig: Any) -> Expected:
    return EXPECTED.get(f"{rig.agent}-{rig.driver}", EXPECTED.get(rig.agent, Expected()))
