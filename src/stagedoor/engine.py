"""The living middle of a session: reads the native session, puts its words in order, decides, counts, ends.

It is apart from the ``Session`` the caller holds, so that its running reader does not keep that one alive: a session
that is dropped is collected, and everything under it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import force_setattr, replace

from .drivers.agent import AnyDriver, NativeSession, Steerable
from .drivers.offered_models import with_offered_models
from .errors import LocalProtocolError, NotSupported, SessionEnded
from .permissions.ground import ground_of, home_of
from .permissions.questions import Judge, SessionQuestions
from .register import Register, entry_of, home
from .shadow_git.checkpoints import UndoResult
from .transports.launch import loss_of_guard
from .transports.process import LOST_GUARD
from .transports.programs import in_thread
from .transports.relay import Relay
from .transports.tasks import TaskOwner
from .trust.project import ProjectStanding, notice_of
from .unified.capabilities import as_json
from .unified.decisions import Decision, Deny
from .unified.events import (
    Error,
    Event,
    FileChange,
    Init,
    Notice,
    PermissionRequest,
    Status,
    TextDelta,
    ThinkingDelta,
    ToolProgress,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
    UsageReport,
    steered,
)
from .unified.faults import error_of
from .unified.grammar import Grammar
from .unified.options import APPROVALS, CONFINED, SANDBOXES, Options
from .unified.settings import AgentReport, AgentSetting
from .unified.tool_lists import ToolLists
from .workspace import SessionCheckpoints, WorkspaceChanges, inside, restored

if TYPE_CHECKING:
    from .permissions.audit import AuditEntry
    from .permissions.functions import SessionFunctions
    from .permissions.hooks import SessionHooks
    from .permissions.risk.judge import RiskVerdict
    from .permissions.rules import Rule
    from .session import Session

INTERRUPT_GRACE = 20.0
OVERTAKEN = 0.5
JUDGEMENTS = 256
_PIECES = (TextDelta, ThinkingDelta, ToolProgress)
_REMARKABLE = frozenset({ToolUse, ToolResult, FileChange, UsageReport, Unrecognized, Error, TurnCompleted, Init})


def milliseconds() -> int:
    return time.time_ns() // 1_000_000


class SessionEngine:
    def __init__(
        self,
        agent: str,
        session_id: str,
        options: Options,
        driver: AnyDriver,
        now: Callable[[], int],
        *,
        requested: Options,
        standing: Callable[[], ProjectStanding],
        title: str,
        attended: bool,
        lists: ToolLists | None = None,
    ) -> None:
        self.session_id = session_id
        self.native_id = ""
        self.relay: Relay[Event] = Relay()
        self.owner: Callable[[], Session | None] = lambda: None
        """The object that the caller holds, without keeping it alive."""
        self._agent = agent
        self._hooks = self._hooks_of(options)
        self._functions = self._functions_of(options, lists)
        self.questions = SessionQuestions(
            emit=self.emit,
            now=now,
            callback=options.can_use_tool,
            timeout=options.permission_timeout,
            attended=attended,
            judge=_refusing(lists, self._functions),
            hook=None if self._hooks is None else self._hooks.decide,
            policy=options.policy,
            verdict=lambda request: None if self._functions is None else self._functions.verdict(request),
            always=_always(options.remember_in),
            audit=_audit(options.audit),
            cwd=ground_of(options),
            editable=driver.capabilities.edit_input,
        )
        self.unrecognized = 0
        self.capabilities = driver.capabilities
        self._options = options
        self._requested = requested
        self._standing = standing
        self._title = title
        self._driver = driver
        self._dictionary = driver.dictionary()
        self._now = now
        self._grammar = Grammar(
            Init(cwd=options.cwd, resumed=options.resume is not None, capabilities=as_json(driver.capabilities))
        )
        self._workspace = WorkspaceChanges(options.cwd) if options.watch_files else None
        self.checkpoints = SessionCheckpoints(options, session_id, home())
        self._reported_changes: dict[str, FileChange] = {}
        self._unasked: dict[str, ToolUse] = {}
        """Calls that nobody was asked about so far."""
        self._questioned_calls: set[str] = set()
        self._judgements: dict[tuple[str, str, str], RiskVerdict] = {}
        self._registered = ""
        self._agent_version = ""
        self._seq = 0
        self._turn = 0  # of the last event that went out
        self._native: NativeSession | None = None
        self._pump: asyncio.Task[None] | None = None
        self._cut_short: Status | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = TaskOwner()
        self._expected: dict[str, asyncio.Event] = {}
        self._turn_over = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._handed = False  # whether the agent has, or is getting, the prompt of this turn

    @property
    def turn(self) -> int:
        return max(self._grammar.turn, 1)

    @property
    def in_turn(self) -> bool:
        return self._grammar.in_turn

    async def send(self, prompt: str) -> None:
        if self._grammar.is_done or self._closing is not None:
            raise SessionEnded("the session has ended; resume it by its id")
        if self._grammar.in_turn:
            raise LocalProtocolError("a turn is still running: read it to its end or call interrupt(), then send again")
        self._cut_short = None
        self._turn_over.clear()
        self._emit(self._grammar.start_turn(prompt, self._now()))
        self._reported_changes.clear()
        self._handed = False
        loop = asyncio.get_running_loop()
        if self._options.timeout is not None:
            self._timer = loop.call_later(self._options.timeout, self._time_is_up, self._options.timeout)
        self._starting = self._tasks.start(self._start(prompt))
        try:
            await self._starting
        except BaseException as fault:
            self._stop_timer()
            intended = isinstance(fault, asyncio.CancelledError) and not _is_cancelled()
            if intended and self._native is not None and self._closing is None:  # the agent never heard of this turn
                self._emit(self._ordered(TurnCompleted(status="interrupted"), b""))
                return
            error = error_of(fault) if isinstance(fault, Exception) else None
            self._emit(self._grammar.end(self._cut_short or "error", error, self._now()))
            self.relay.close()
            if not intended:  # else it was interrupted, or out of time, before the agent had begun
                raise
        finally:
            self._starting = None

    async def undo(self, *, turn: int | None, checkpoint: str, paths: Sequence[str]) -> UndoResult:
        if self._grammar.in_turn:
            raise LocalProtocolError("a turn is still running: read it to its end or call interrupt(), then undo")
        result = await in_thread(self.checkpoints.restore, turn, checkpoint, paths, self._now())
        self.emit(restored(result))
        return result

    async def _start(self, prompt: str) -> None:
        if self.checkpoints.on and (notice := await in_thread(self.checkpoints.take, self.turn, self._now())):
            self.emit(notice)
        if self._workspace is not None and not await in_thread(self._workspace.begin):
            message = "the workspace is too large to be compared before and after a turn"
            self.emit(Notice(level="info", code="files_not_watched", message=message))
            self._workspace = None
        if self._native is None:
            await self._check_version()
        self._handed = True
        prompt = await self._defused(prompt)
        if self._native is None:
            await self._decide_trust()
            options = self._options if self._functions is None else await self._functions.join(self._options)
            self._native = await self._driver.open(prompt, options, self._ask, self._dictionary)
            self._pump = self._tasks.start(self._read(self._native))
        else:
            await self._native.send(prompt)

    async def _check_version(self) -> None:
        if self._driver.check_version is None:
            return
        checked = await self._driver.check_version(self._options)
        self._agent_version = checked.version
        if checked.notice:
            self.emit(Notice(level="warning", code="version_not_proven", message=checked.notice))

    async def _decide_trust(self) -> None:
        """Whether the project takes part is decided as late as can be: what lies in the folder may change."""
        standing = await asyncio.to_thread(self._standing)
        self._options = replace(self._options, trust=standing.trusted)
        if (notice := notice_of(standing, self._title)) is not None:
            self.emit(notice)

    async def _defused(self, prompt: str) -> str:
        """``prompt`` with every ``@path`` as mere text that a rule forbids to read: agents expand those unasked."""
        if "@" not in prompt:
            return prompt
        from .permissions.mentions import defuse

        defused = await in_thread(defuse, prompt, self._options.cwd, home_of(self._options), self._forbids_reading)
        for mention, why in defused.refused:
            message = f"@{mention} in the prompt was sent as text, without the file: {why}"
            self.emit(Notice(level="warning", code="mention_denied", message=message))
        return defused.text

    def _forbids_reading(self, path: str) -> str:
        request = PermissionRequest(
            request_id="", tool_name="read_file", operation="read", target=path, input={"file_path": path},
            agent=self._agent,
        )  # fmt: skip
        why = self.questions.refusal(request)
        if not why and self._options.tier != "autonomous":
            verdict = self._judge(request)
            why = verdict.reasons[0] if verdict.risk == "high" and verdict.reasons else ""
        return why

    async def steer(self, text: str) -> int:
        if not self.capabilities.steer:
            raise NotSupported(
                f"{self._agent} ({self._driver.name}) accepts no input during a turn: send it after the turn"
            )
        if self._native is None or not self._grammar.in_turn:
            raise LocalProtocolError("no turn is running: send it as a prompt")
        await cast("Steerable", self._native).steer(await self._defused(text))
        self.emit(steered(text))
        return self._seq

    @property
    def settings(self) -> tuple[AgentSetting, ...]:
        if self._native is None or self._driver.settings is None:
            return ()
        return self._driver.settings.read(self._native, self._options)

    @property
    def report(self) -> AgentReport:
        report = getattr(self._dictionary, "report", None)
        return report if isinstance(report, AgentReport) else AgentReport()

    async def change_setting(self, name: str, value: str) -> AgentSetting:
        if self._driver.settings is None:
            raise NotSupported(f"{self._agent} ({self._driver.name}) has no settings that can be changed in a session")
        if self._grammar.is_done or self._closing is not None:
            raise SessionEnded("the session has ended; resume it by its id")
        if self._native is None:
            raise LocalProtocolError("the agent has not started: it does with the first prompt")
        changed = await self._driver.settings.change(self._native, self._options, name, value)
        self.emit(Notice(level="info", code="setting", message=f"{changed.id}: {changed.value}"))
        return changed

    async def interrupt(self) -> None:
        if self._starting is not None and (self._native is None or not self._handed):
            self._cut_short = self._cut_short or "interrupted"
            self._starting.cancel()
            return
        if self._native is None or not self._grammar.in_turn:
            return
        self._cut_short = self._cut_short or "interrupted"
        self.questions.resolve_all("interrupt")
        if self._functions is not None:
            self._functions.cancel_calls()
        await self._native.interrupt()
        try:
            async with asyncio.timeout(INTERRUPT_GRACE):
                await self._turn_over.wait()
        except TimeoutError:
            await self._native.cancel()  # it does not listen: the session ends, and what is open is closed

    async def close(self, *, at_once: bool = False) -> None:
        if self._closing is None:
            self._closing = self._tasks.start(self._close(at_once=at_once))
        await asyncio.shield(self._closing)

    async def _close(self, *, at_once: bool) -> None:
        self._stop_timer()
        if self._grammar.in_turn or self._starting is not None:
            self._cut_short = self._cut_short or "interrupted"
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if not at_once:
            self.questions.resolve_all("interrupt")
        if self._functions is not None:
            self._functions.cancel_calls()
        if self._native is not None:
            await (self._native.cancel() if at_once or self._grammar.in_turn else self._native.close())
        if self._pump is not None:
            self.relay.release()  # a reader that has gone away must not hold up the last events
            await asyncio.wait([self._pump])
        self._end()
        if self._functions is not None:
            await self._functions.close()
        await self.questions.recorded()
        if self._hooks is not None:
            await self._hooks.finish()

    def abandon(self) -> None:
        """For the finalizer: let go of everything; the native session's own finalizer kills its processes."""
        self._stop_timer()
        if self._pump is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                self._pump.cancel()
        if self._functions is not None:
            self._functions.abandon()
        self._native = self._pump = None

    async def _ask(self, request: PermissionRequest) -> Decision:
        decision = None if self._functions is None else await self._functions.answer(request)
        return await self._question(request) if decision is None else decision

    async def _question(self, request: PermissionRequest) -> Decision:
        verdict = self._judge(request)
        # Its one id, from here to the log and the phone. The agent's own stays on its wire: programs reuse them.
        question_id = uuid.uuid4().hex
        request = replace(request, request_id=question_id, risk=verdict.risk, risk_reasons=list(verdict.reasons))
        await self._wait_for_call(request.tool_use_id)
        self._note_asked(request)
        return await self.questions.ask(request)

    def _note_asked(self, request: PermissionRequest) -> None:
        """The call this question is about is not one that ran unasked."""
        call_id = request.tool_use_id
        if call_id not in self._unasked:  # some agents do not say which call they ask about
            same = (
                call.tool_use_id
                for call in self._unasked.values()
                if (call.name, call.target) == (request.tool_name, request.target)
            )
            call_id = call_id or next(same, "")
        self._questioned_calls.add(call_id)
        self._unasked.pop(call_id, None)

    def _record_unasked(self, call: ToolUse, result: ToolResult) -> None:
        """What a tier lets the agent do by itself is recorded, too, except for plain reading."""
        if call.operation == "read" or call.name in ("plan", "question") or result.status == "denied":
            return
        from .permissions.audit import unasked_entry

        options = self._options
        rule = f"approval {options.approval}" if options.approval is not None else f"tier {options.tier}"
        entry = unasked_entry(call, rule=rule)
        self.questions.record_unasked(replace(entry, session=self.session_id, agent=self._agent))

    async def _wait_for_call(self, tool_use_id: str) -> None:
        """Wait a moment for the call a question is about: questions overtake the stream they belong to."""
        if not tool_use_id or self._grammar.knows_tool(tool_use_id):
            return
        arrival = self._expected.setdefault(tool_use_id, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OVERTAKEN):
                await arrival.wait()
        self._expected.pop(tool_use_id, None)

    async def _read(self, native: NativeSession) -> None:
        try:
            async for batch in _batches(native):
                self.native_id = native.session_id or self.native_id
                at = loss_of_guard(batch)
                if at is not None and self._cut_short is None:
                    await self._publish(batch[:at])
                    self.emit(Error(kind="connection_failed", message=LOST_GUARD, fatal=True))
                    batch = batch[at:]
                await self._publish(batch)
        except Exception as fault:  # our own fault must end as an event, not as a hung reader
            self._emit(self._grammar.end("error", Error(kind="unknown", message=repr(fault), fatal=True), self._now()))
        finally:
            self._end()

    async def _publish(self, batch: Iterable[tuple[bytes, Any]]) -> None:
        """Whatever the agent has said at once goes out at once. Most of it are deltas, which need no second look."""
        translate: Callable[[Any], Iterable[Event]] = self._dictionary.translate
        grammar, with_raw, lines = self._grammar, self._options.raw is True, self._options.raw == "lines"
        flows = grammar.flows and not with_raw
        out: list[Event] = []
        for raw, native in batch:
            produced = False
            for event in translate(native):
                kind = type(event)
                if flows and (kind is TextDelta or kind is ThinkingDelta):
                    out.append(event)
                    continue
                if kind is TurnCompleted and self._workspace is not None:
                    # Others may speak while we look, and what was said before must come before.
                    await self.relay.publish(self._stamped(out))
                    out = await self._unreported(self._workspace)
                if type(event) is FileChange and not event.diff and event.after is None and self._workspace:
                    await self.relay.publish(self._stamped(out))
                    out = []
                    event = await self._detailed(event, self._workspace)
                if type(event) is Error and self._native is not None:
                    event = await with_offered_models(event, self._driver, self._native, self._options.model)
                ordered = self._ordered(event, b"" if lines and (produced or kind in _PIECES) else raw)
                flows = grammar.flows and not with_raw
                produced = produced or bool(ordered)
                out += ordered
            if with_raw and raw and not produced:
                out += self._ordered(Notice(level="info", code="absorbed", message=type(native).__name__), raw)
        if out:
            await self.relay.publish(self._stamped(out))

    async def _detailed(self, change: FileChange, workspace: WorkspaceChanges) -> FileChange:
        """A change of which only the file's name was told."""
        change = inside(change, self._options.cwd)
        return await in_thread(workspace.detailed, change, self._reported_changes.get(change.path))

    async def _unreported(self, workspace: WorkspaceChanges) -> list[Event]:
        """The changes of this turn that no tool has told: a shell command's, mostly."""
        changes = await in_thread(workspace.changes, list(self._reported_changes.values()))
        self._reported_changes |= {change.path: change for change in changes}  # it may begin a turn itself
        events: list[Event] = [*changes]
        if workspace.failure:
            message = f"what this turn changed in its files cannot be compared: {workspace.failure}"
            events.append(Notice(level="warning", code="files_not_watched", message=message))
        return [event for each in events for event in self._grammar.accept(each, self._now())]

    def _ordered(self, event: Event, raw: bytes) -> list[Event]:
        """``event`` by the rules of the grammar and of this session's limits."""
        if type(event) in _REMARKABLE:
            remarked = self._take_note(event)
            if remarked is None:
                return []
            event = remarked
        if self._options.raw and raw:
            force_setattr(event, "native", _as_json(raw))
        events = self._grammar.accept(event, self._now())
        if not self._grammar.in_turn:
            self._turn_over.set()
        return events

    def _take_note(self, event: Event) -> Event | None:
        """``event``, once this session knows of it what it has to know; ``None`` keeps it to itself."""
        if type(event) is ToolUse:
            force_setattr(event, "risk", self._judge(event).risk)
            if self._functions is not None:
                self._functions.observe(event)
            if self._options.audit is not None and event.tool_use_id not in self._questioned_calls:
                self._unasked[event.tool_use_id] = event
            if (expected := self._expected.get(event.tool_use_id)) is not None:
                expected.set()
        elif type(event) is ToolResult:
            if self._functions is not None:
                self._functions.observe(event)
            if (call := self._unasked.pop(event.tool_use_id, None)) is not None:
                self._record_unasked(call, event)
        elif type(event) is FileChange:
            event = inside(event, self._options.cwd)
            self._reported_changes[event.path] = event
        elif type(event) is UsageReport:
            if self._over_budget(event):
                self._cut("max_budget")
        elif type(event) is Unrecognized:
            self.unrecognized += 1
        elif type(event) is Error:
            if event.fatal and self._cut_short is not None:
                return None  # it is our doing: how a program dies of it is no news
        elif type(event) is TurnCompleted:
            self._stop_timer()
            if self._functions is not None:
                self._functions.cancel_calls()
            if self._cut_short is not None:  # some agents call a turn that we cut short a success
                event = replace(event, status=self._cut_short)
        elif type(event) is Init:
            self.native_id = event.native_session_id or self.native_id
            if not event.agent_version:
                force_setattr(event, "agent_version", self._agent_version)
            self._describe(event)
            self._register()
        return event

    def _describe(self, init: Init) -> None:
        """How this session was opened."""
        options = self._requested
        if not init.model and options.model:  # it was named, and the agent does not say which it uses
            force_setattr(init, "model", options.model)
        force_setattr(init, "tier", options.tier)
        force_setattr(init, "approval", options.approval or APPROVALS[options.tier])
        force_setattr(init, "sandbox", options.sandbox or CONFINED[options.confine] or SANDBOXES[options.tier])
        force_setattr(init, "allowed_tools", None if options.allowed_tools is None else list(options.allowed_tools))
        force_setattr(init, "disallowed_tools", list(options.disallowed_tools))
        force_setattr(init, "max_turns", options.max_turns)

    def _register(self) -> None:
        """Write the session down under both its ids; again when the agent goes on under another one."""
        if self.native_id in ("", self._registered):
            return
        self._registered = self.native_id
        Register().add(
            entry_of(
                self._requested,
                session_id=self.session_id,
                native_id=self.native_id,
                agent=self._agent,
                driver=self._driver.name,
                started_ms=self._now(),
            )
        )

    def _judge(self, call: ToolUse | PermissionRequest) -> RiskVerdict:
        if self._functions is not None and (declared := self._functions.verdict(call)) is not None:
            return declared
        name = call.name if isinstance(call, ToolUse) else call.tool_name
        key = (name, call.operation, repr(call.input))
        cached = self._judgements.get(key) if isinstance(call, ToolUse) else None
        if cached is not None:  # what is asked about is judged again: links may lead elsewhere by now
            return cached
        from .permissions.risk.judge import judge

        if len(self._judgements) >= JUDGEMENTS:
            self._judgements.clear()
        ground = ground_of(self._options)
        verdict = self._judgements[key] = judge(name, call.operation, call.input, cwd=ground)
        return verdict

    def _over_budget(self, event: UsageReport) -> bool:
        limit, cost = self._options.max_budget_usd, event.cost_usd
        return limit is not None and cost is not None and cost > limit and self._cut_short is None

    def _cut(self, status: Status) -> None:
        self._cut_short = status
        self._tasks.start(self.interrupt())

    def _time_is_up(self, seconds: float) -> None:
        message = f"the turn took longer than {seconds:g} s and was interrupted; raise the timeout if it needs more"
        self.emit(Error(kind="timeout", message=message, fatal=True))
        self._cut("interrupted")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def emit(self, event: Event) -> None:
        """Put in an event that no message of the agent caused."""
        self._emit(self._grammar.accept(event, self._now()))

    def _end(self) -> None:
        if not self._grammar.is_done:
            status = self._cut_short or ("error" if self._grammar.in_turn else None)
            self.questions.resolve_all("interrupt")
            self._emit(self._grammar.end(status, now=self._now()))
        self._turn_over.set()
        self.relay.close()

    def _emit(self, events: list[Event]) -> None:
        self.relay.add(self._stamped(events))

    def _stamped(self, events: list[Event]) -> list[Event]:
        """``events`` with their headers: they are still ours, and a copy of each would cost more than its decoding."""
        agent, session_id, at = self._agent, self.session_id, self._now()
        seq, turn = self._seq, self._turn
        for event in events:
            seq += 1
            if type(event) is TurnStarted:
                turn += 1
            force_setattr(event, "agent", agent)
            force_setattr(event, "session_id", session_id)
            force_setattr(event, "seq", seq)
            force_setattr(event, "timestamp", at)
            force_setattr(event, "turn", turn)
        self._seq, self._turn = seq, turn
        if self._hooks is not None:
            for event in events:
                self._hooks.observe(event)
        return events

    def _functions_of(self, options: Options, lists: ToolLists | None) -> SessionFunctions | None:
        if not options.tools:
            return None
        from .permissions.functions import SessionFunctions

        return SessionFunctions(
            options,
            lists,
            agent=self._agent,
            session_id=self.session_id,
            ask=self._question,
            interrupt=lambda: self._cut("interrupted"),
            session=lambda: self.owner(),
        )

    def _hooks_of(self, options: Options) -> SessionHooks | None:
        if not options.before_tool_call and not options.after_tool_call and not options.on_event:
            return None
        from .permissions.hooks import SessionHooks

        return SessionHooks(
            options.before_tool_call,
            options.after_tool_call,
            options.on_event,
            cwd=options.cwd,
            agent=self._agent,
            session_id=self.session_id,
            env={**(os.environ if options.inherit_env else {}), **options.env},
            timeout=options.hook_timeout,
            emit=lambda event: None if self._grammar.is_done else self.emit(event),
        )


async def _batches(native: NativeSession) -> AsyncGenerator[Sequence[tuple[bytes, Any]]]:
    """What the agent says, as much at once as there is, where its session can do that."""
    batches = getattr(native, "batches", None)
    if batches is not None:
        async for batch in batches:
            yield batch
    else:
        async for pair in native.received:
            yield (pair,)


def _is_cancelled() -> bool:
    """Whether the running task itself was cancelled, and not only what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _audit(path: str | None) -> Callable[[AuditEntry, int], Awaitable[object]] | None:
    if path is None:
        return None
    from .permissions.audit import audit_log

    return audit_log(Path(path)).keep


def _refusing(lists: ToolLists | None, functions: SessionFunctions | None) -> Judge | None:
    """Denies what the lists of tools do not have, and what a dry run does not, before any policy or person is asked."""
    limits = lists if lists is not None and lists.limits else None
    if limits is None and functions is None:
        return None

    def judge(request: PermissionRequest) -> Decision | None:
        reason = "" if limits is None else limits.refusal(request)
        reason = reason or ("" if functions is None else functions.refusal(request))
        return Deny(reason) if reason else None

    return judge


def _always(path: str | None) -> Callable[[Rule], None] | None:
    if path is None:
        return None
    from .permissions.policy_file import remember_rule

    return lambda rule: remember_rule(Path(path), rule)


def _as_json(raw: bytes) -> msgspec.Raw:
    """The native message as JSON: itself, or a string when it is none."""
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.Raw(msgspec.json.encode(raw.decode("utf-8", "replace")))
    return msgspec.Raw(raw)
