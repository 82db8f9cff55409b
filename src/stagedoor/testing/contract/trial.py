"""Play a scene with a real CLI, and see what happened: on the disk, on the network, and in what the model was sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ... import api, catalog
from ...errors import NotAllowed, NotSupported
from ...permissions.audit import AuditEntry
from ...session import Session
from ...unified.decisions import Allow, Deny
from ...unified.events import Event, PermissionRequest
from ...unified.options import McpServer
from ..model import ScriptedModel, ScriptedRequest
from ..script import Script, say
from .deeds import DEEDS, SERVER, Attempt, Deed, Places
from .promises import broken
from .stances import DEADLINE, Scene, Stance

BOUND = 120.0
SHARED = "/var/tmp"
"""Where the folders of a trial are made: sandboxes often leave the one for temporary files open."""
GREETING = "Say hello before the trial"
REMEMBERED = "Make the file that is remembered"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the deeds in one stance."""

    stance: str
    outcomes: dict[Deed, str] = {}
    complaints: tuple[str, ...] = ()
    """The promises that were broken, in words."""
    unsupported: str = ""
    """Why it was refused before anything started."""


class Player:
    """One agent, one driver, one program."""

    def __init__(self, agent: str, driver: str, executable: str) -> None:
        self.agent = agent
        self.driver = driver
        self.executable = executable
        self.capabilities = catalog.agent(agent).drivers[driver].capabilities

    async def play(self, scene: Scene) -> list[Row]:
        """A row for each stance of ``scene``."""
        reason = self._unsupported(scene)
        if reason:
            return [Row(stance=stance.name, unsupported=reason) for stance in scene.stances]
        with tempfile.TemporaryDirectory(
            prefix="stagedoor-contract-", dir=SHARED, ignore_cleanup_errors=True
        ) as folder:
            return await _Trial(self, scene, Path(folder)).play()

    def _unsupported(self, scene: Scene) -> str:
        if scene.beginning == "forked" and not self.capabilities.fork:
            return self.capabilities.notes.get("fork", "it cannot fork a session")
        if self.capabilities.permissions == "none" and scene.beginning == "remembered":
            return "nobody can be asked"
        try:
            api.open(self.agent, driver=self.driver, **scene.options)
        except (NotSupported, NotAllowed) as refusal:
            return str(refusal)
        return ""


class _Trial:
    def __init__(self, player: Player, scene: Scene, folder: Path) -> None:
        self.player = player
        self.scene = scene
        folder = folder.resolve()
        self.places = Places(folder)
        self.audit = folder / "audit.jsonl"
        self.visitors = 0
        self.answer: Callable[[], Allow | Deny] = Allow
        self.questions: list[PermissionRequest] = []
        self.events: list[Event] = []

    async def play(self) -> list[Row]:
        async with self._listener() as port:
            asks = self.player.capabilities.permissions != "none"
            stances = [stance for stance in self.scene.stances if asks or stance.answer == "allow"] or list(
                self.scene.stances
            )
            attempts = [Attempt(number, self.places, port) for number, _ in enumerate(stances, 1)]
            with ScriptedModel(routes=self._routes(stances, attempts)) as model:
                environment = model.environment(self.player.agent, home=self.places.home, cwd=self.places.workspace)
                self.model, self.fixed = model, self._options(environment.env, environment.model)
                async with contextlib.AsyncExitStack() as running:
                    session = await self._begin(running)
                    seen = [
                        await self._turns(session, stance, attempt)
                        for stance, attempt in zip(stances, attempts, strict=True)
                    ]
                return [look() for look in seen]  # after its end, so that nothing happens after we have looked

    def _options(self, env: dict[str, str], model: str) -> dict[str, Any]:
        options: dict[str, Any] = {
            "cwd": str(self.places.workspace),
            "driver": self.player.driver,
            "executable": self.player.executable,
            "env": env,
            "inherit_env": False,
            "model": model,
        }
        if self.player.capabilities.mcp_servers:
            server = Path(__file__).with_name("marker_server.py")
            options["mcp_servers"] = {SERVER: McpServer(command=sys.executable, args=("-I", "-S", str(server)))}
        if self.player.capabilities.permissions != "none":
            options |= {"can_use_tool": self._decide, "permission_timeout": DEADLINE, "audit": str(self.audit)}
        return options

    def _routes(self, stances: Sequence[Stance], attempts: Sequence[Attempt]) -> dict[str, Script]:
        routes: dict[str, Script] = {GREETING: [say("Hello.")], REMEMBERED: []}
        for stance, attempt in zip(stances, attempts, strict=True):
            calls = [call for _, call in steps_of(stance, attempt)]
            for first in range(len(calls)):
                routes[_prompt(attempt, first)] = [*calls[first:], say("Done.")]
        routes[REMEMBERED] = [dict(attempts[0].steps)["command"], say("Done.")]
        return routes

    async def _begin(self, running: contextlib.AsyncExitStack) -> Session:
        """The session in which the deeds are tried."""
        first = api.open(self.player.agent, **self.fixed, **self.scene.options)
        match self.scene.beginning:
            case "new":
                return await running.enter_async_context(first)
            case "remembered":
                session = await running.enter_async_context(first)
                self.answer = lambda: Allow(remember="session")
                await self._read(session, REMEMBERED)
                for made in self.places.workspace.glob("deed*"):
                    made.unlink()
                return session
            case "resumed" | "forked":
                async with first:
                    await self._read(first, GREETING)
                again = api.open(
                    self.player.agent, **self.fixed, resume=first.id, fork=self.scene.beginning == "forked"
                )
                return await running.enter_async_context(again)

    async def _turns(self, session: Session, stance: Stance, attempt: Attempt) -> Callable[[], Row]:
        """Try all deeds; an agent may end its turn when something is refused, and is then told to go on."""
        attempt.prepare()
        self.answer = _ANSWERS[stance.answer]
        earlier, visitors, questions_before = len(self.model.requests), self.visitors, len(self.questions)
        steps = steps_of(stance, attempt)
        first = 0
        while first < len(steps):
            prompt = _prompt(attempt, first)
            await self._read(session, prompt)
            sent = [request.step for request in self.model.requests if request.route == prompt and request.calls]
            if not sent:
                raise AssertionError(f"{stance.name}: the agent did not try {steps[first][0]}: {self._last_events()}")
            first += max(sent) + 1
        requests, questions = self.model.requests[earlier:], self.questions[questions_before:]
        dangerous = attempt.done("danger", requests, 0)
        came = self.visitors - visitors

        def look() -> Row:
            outcomes: dict[Deed, str] = {}
            for deed in dict.fromkeys(deed for deed, _ in steps):
                done = dangerous if deed == "danger" else attempt.done(deed, requests, came)
                about = [request for request in questions if is_about(request, attempt, deed)]
                outcomes[deed] = outcome_of(
                    done=done,
                    questioned=bool(about),
                    allowed=stance.answer == "allow",
                    offered=_offered(deed, steps, requests),
                )
            patched = any("patch" in name for request in requests for name in request.calls)
            complaints = broken(stance.promise, outcomes, self.player.capabilities, patched=patched)
            complaints += self._unaudited(stance, attempt, questions, outcomes)
            return Row(stance=stance.name, outcomes=outcomes, complaints=tuple(complaints))

        return look

    def _unaudited(
        self, stance: Stance, attempt: Attempt, questions: Sequence[PermissionRequest], outcomes: dict[Deed, str]
    ) -> list[str]:
        entries = _entries(self.audit)
        complaints: list[str] = []
        decision = "allow" if stance.answer == "allow" else "deny"
        for request in questions:
            decisions = [entry.decision for entry in entries if entry.request == request.request_id]
            if decisions != [decision]:
                complaints.append(f"the audit says {decisions} of {request.target[:80]!r}, which was: {decision}")
        if stance.promise == "by policy allowed":
            acts: tuple[Deed, ...] = ("command", "outside", "danger")
            for deed in acts:
                allowed = any(entry.decision == "allow" and attempt.mark(deed) in entry.target for entry in entries)
                if outcomes.get(deed) == "runs" and not allowed:
                    complaints.append(f"{deed}: the audit does not say that the policy allowed it")
        return complaints

    async def _read(self, session: Session, prompt: str) -> None:
        try:
            async with asyncio.timeout(BOUND):
                while session.in_turn:  # noqa: ASYNC110 (it speaks by itself: what ran in the background has ended)
                    await asyncio.sleep(0.05)
                async with contextlib.aclosing(session.send(prompt)) as turn:
                    async for event in turn:
                        self.events.append(event)
        except TimeoutError:
            raise AssertionError(f"the turn {prompt!r} did not end: {self._last_events()}") from None

    def _decide(self, request: PermissionRequest) -> Allow | Deny:
        self.questions.append(request)
        return self.answer()

    @contextlib.asynccontextmanager
    async def _listener(self) -> AsyncGenerator[int]:
        """A server on this machine that counts who comes."""

        async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.visitors += 1
            with contextlib.suppress(OSError):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nhi\n")
                await writer.drain()
                writer.close()

        server = await asyncio.start_server(welcome, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    def _last_events(self) -> str:
        return "; ".join(str(msgspec.to_builtins(event))[:300] for event in self.events[-6:])


def is_about(request: PermissionRequest, attempt: Attempt, deed: Deed) -> bool:
    reads_first = deed == "edit" and request.operation in ("execute", "read")
    return attempt.mark(deed) in f"{request.target} {request.input}" and not reads_first


def outcome_of(*, done: bool, questioned: bool, allowed: bool, offered: bool) -> str:
    if done:
        return "runs" if not questioned else "asked" if allowed else "ran although it was denied"
    if questioned:
        return "stopped" if allowed else "denied"
    return "refused" if offered else "withheld"


def steps_of(stance: Stance, attempt: Attempt) -> list[Any]:
    return [(deed, call) for deed, call in attempt.steps if deed in (stance.deeds or DEEDS)]


def _prompt(attempt: Attempt, first: int) -> str:
    return f"Attempt {attempt.number}, beginning with number {first}."


def _offered(deed: Deed, steps: Sequence[tuple[Deed, Any]], requests: Sequence[ScriptedRequest]) -> bool:
    """Whether the model was offered the tool for this deed."""
    last = max(number for number, (other, _) in enumerate(steps) if other == deed)
    tried = [request for request in requests if request.calls and _number(request) == last]
    return not any(request.unavailable for request in tried)


def _number(request: ScriptedRequest) -> int:
    """Which of the steps it was: the prompt says with which one its turn began."""
    first = request.route.rpartition(" ")[2].removesuffix(".")
    return int(first) + request.step if first.isdigit() else -1


def _late() -> Allow:
    time.sleep(DEADLINE + 1)
    return Allow()


def _fail() -> Allow:
    raise RuntimeError("the callback fails")


_ANSWERS: dict[str, Callable[[], Allow | Deny]] = {
    "allow": Allow, "deny": lambda: Deny("No."), "late": _late, "raise": _fail,
}  # fmt: skip


def _entries(audit: Path) -> list[AuditEntry]:
    try:
        lines = audit.read_text().splitlines()
    except OSError:
        return []
    return [msgspec.convert(json.loads(line).get("entry", json.loads(line)), AuditEntry) for line in lines]
