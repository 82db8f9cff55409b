"""The open questions of one session: several at once, in any order, each answered once, closed when in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, cast

import msgspec
from msgspec.structs import replace

from ..errors import AlreadyAnswered
from ..transports.callbacks import CallbackLate, run_callback
from ..transports.tasks import TaskOwner
from ..unified.answers import fields_of
from ..unified.decisions import INTERRUPTED, WITHDRAWN, Allow, CanUseTool, Decision, Deny, resolved
from ..unified.events import By, Event, Notice, PermissionRequest, PermissionResolved

if TYPE_CHECKING:  # what judges is loaded when there is something to judge
    from .audit import AuditEntry
    from .paths import Folder
    from .policy import Policy, Ruling
    from .risk.judge import RiskVerdict
    from .rules import Rule


RECORDING_SECONDS = 10.0
NOBODY = "nobody can be asked: run it at a terminal, give it a can_use_tool function, or choose another tier"
UNATTENDED = "unattended"


class Judge(Protocol):
    """Decides without asking anybody, or says ``None``: somebody must be asked."""

    def __call__(self, request: PermissionRequest) -> Decision | None: ...


class _Resolution(msgspec.Struct, frozen=True):
    """A decision with its reasons, before anybody was told."""

    decision: Decision
    by: By
    rule: str = ""
    why: str = ""
    who: str = ""


class _OpenQuestion(msgspec.Struct, frozen=True):
    answer: asyncio.Future[_Resolution]
    deadline: float | None
    """By the clock of the loop."""

    @property
    def is_open(self) -> bool:
        """Whether an answer still counts: the clock decides, not whether the loop has come to see that time is up."""
        late = self.deadline is not None and asyncio.get_running_loop().time() >= self.deadline
        return not self.answer.done() and not late


class SessionQuestions:
    """Decides by ``policy``, then by ``hook``, by what was remembered, then by whoever answers first, closed when time
    is up.

    ``emit`` puts the question and its resolution into the stream; ``on_resolved`` and ``audit`` are told of every
    decision (an ``audit`` that fails turns an approval into a refusal). ``attended``: somebody may ``answer``
    though there is no callback; where there is neither, every question is denied. ``editable``: the agent takes a
    changed input. ``verdict``: the risk of a call whose author has declared it. ``always`` is given the rules of an
    answer that is to hold in later sessions too.
    """

    def __init__(
        self,
        *,
        emit: Callable[[Event], None],
        now: Callable[[], int],
        callback: CanUseTool | None = None,
        judge: Judge | None = None,
        hook: Callable[[PermissionRequest], Awaitable[Decision | None]] | None = None,
        policy: Policy | None = None,
        verdict: Callable[[PermissionRequest], RiskVerdict | None] = lambda request: None,
        cwd: Folder = ".",
        home: str | None = None,
        timeout: float | None = None,
        attended: bool = False,
        editable: bool = True,
        always: Callable[[Rule], None] | None = None,
        audit: Callable[[AuditEntry, int], Awaitable[object]] | None = None,
        on_resolved: Callable[[PermissionRequest, PermissionResolved], None] = lambda request, resolved: None,
    ) -> None:
        self._emit = emit
        self._now = now
        self._callback = callback
        self._judge = judge
        self._hook = hook
        self._policy = policy
        self._verdict = verdict
        self._cwd = cwd
        self._home = home
        self._timeout = timeout
        self._attended = attended or callback is not None
        self._editable = editable
        self._always = always
        self._audit = audit
        self._on_resolved = on_resolved
        self._open: dict[str, _OpenQuestion] = {}
        self._callbacks = TaskOwner()
        self._resolving = TaskOwner()
        self._is_audit_broken = False
        self._remembered: tuple[Rule, ...] = ()

    @property
    def open(self) -> list[str]:
        return list(self._open)

    async def ask(self, request: PermissionRequest) -> Decision:
        """Decide ``request``. Never raises, except that the asking task itself may be cancelled."""
        resolution = await self._hooked(request, self._without_asking(request))
        if resolution is not None:
            request = replace(request, automatic=True)
            self._emit(request)
            return await self._resolve(request, resolution)
        expires = None if self._timeout is None else self._now() + int(self._timeout * 1000)
        request = replace(request, expires_at=expires, remembered_as=self._preview(request))
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Resolution] = loop.create_future()
        deadline = None if self._timeout is None else loop.time() + self._timeout
        question = self._open[request.request_id] = _OpenQuestion(answer, deadline)
        self._emit(request)
        if self._callback is not None:
            self._callbacks.start(self._call(self._callback, request, question), key=request.request_id)
        try:
            async with asyncio.timeout_at(deadline):
                resolution = await answer
        except TimeoutError:
            resolution = self._late()
            if answer.done() and not answer.cancelled():
                resolution = answer.result()  # it came in time, and whoever gave it was told that it counts
        except asyncio.CancelledError:
            self._resolving.start(self._record(request, _Resolution(WITHDRAWN, "interrupt")))
            raise
        finally:
            self._open.pop(request.request_id, None)
            self._callbacks.cancel(request.request_id)
        return await self._resolve(request, self._checked(request, resolution))

    def answer(self, request_id: str, decision: Decision, *, who: str = "") -> None:
        """Decide from outside; ``who`` is for the audit log. Raises ``AlreadyAnswered`` when it is too late."""
        question = self._open.get(request_id)
        if question is None or not question.is_open:
            raise AlreadyAnswered(
                f"question {request_id!r} is not open: it was answered, it timed out, or its turn ended"
            )
        question.answer.set_result(_Resolution(decision, "client", who=who))

    def resolve_all(self, by: By) -> None:
        """Close every open question with a refusal."""
        for question in self._open.values():
            if not question.answer.done():
                question.answer.set_result(_Resolution(INTERRUPTED, by))

    def refusal(self, request: PermissionRequest) -> str:
        """Why a rule or a list denies this call, or wants it asked about; empty when none does. Nobody is told."""
        judged = None if self._judge is None else self._judge(request)
        if isinstance(judged, Deny):
            return judged.message
        ruling = self._ruling(request)
        is_ruled = ruling is not None and (ruling.action == "deny" or (ruling.action == "ask" and ruling.rule))
        return ruling.message if ruling is not None and is_ruled else ""

    def record_unasked(self, entry: AuditEntry) -> None:
        """The agent has run a call without a question, as its tier lets it."""
        if self._audit is not None:
            self._resolving.start(self._record_entry(self._audit(entry, self._now())))

    async def _record_entry(self, writing: Awaitable[object]) -> None:
        try:
            await writing
        except Exception as fault:
            if not self._is_audit_broken:
                self._is_audit_broken = True
                message = f"calls that were not asked about could not be recorded: {fault}"
                self._emit(Notice(level="warning", code="audit_not_written", message=message))

    async def recorded(self) -> None:
        """Wait until what was decided is in the audit log; not for ever, where a disk hangs."""
        await self._resolving.finish(RECORDING_SECONDS)

    def _without_asking(self, request: PermissionRequest) -> _Resolution | None:
        if self._judge is not None and (judged := self._judge(request)) is not None:
            return _Resolution(judged, "policy", "tool lists", judged.message if isinstance(judged, Deny) else "")
        ruling = self._ruling(request)
        needs_an_answer = bool(fields_of(request))  # which no rule has, nor what was answered before
        if ruling is not None and ruling.action != "ask" and not (needs_an_answer and ruling.action == "allow"):
            decision = Allow() if ruling.action == "allow" else Deny(ruling.message)
            return _Resolution(
                decision, "policy", ruling.rule.label if ruling.rule is not None else "default", ruling.why
            )
        if not needs_an_answer and self._is_remembered(request):
            return _Resolution(Allow(remember="session"), "policy", "remembered", "the same call was allowed before")
        if self._attended:
            return None
        return _Resolution(Deny(NOBODY), "policy", UNATTENDED)

    async def _hooked(self, request: PermissionRequest, resolution: _Resolution | None) -> _Resolution | None:
        """What the user's hook makes of it. What a rule or a list denies stays denied; the hook answers no questions
        of the agent's own."""
        ruled_out = resolution is not None and isinstance(resolution.decision, Deny) and resolution.rule != UNATTENDED
        if self._hook is None or ruled_out or request.tool_name == "question":
            return resolution
        try:
            decision = await self._hook(request)
        except Exception as fault:  # closed when in doubt
            decision = Deny(f"the hook beforeToolCall failed: {fault!r}")
        if decision is None:
            return resolution
        return self._checked(request, _Resolution(decision, "callback", "hook beforeToolCall"))

    def _ruling(self, request: PermissionRequest) -> Ruling | None:
        if self._policy is None:
            return None
        return self._policy.decide(request, self._cwd, home=self._home, verdict=self._verdict(request))

    def _is_remembered(self, request: PermissionRequest) -> bool:
        if not self._remembered:
            return False
        from .policy import Policy

        return Policy(rules=self._remembered).decide(request, self._cwd, home=self._home).action == "allow"

    def _checked(self, request: PermissionRequest, resolution: _Resolution) -> _Resolution:
        """An answer may change the input; what it makes of it must still not be forbidden."""
        decision = resolution.decision
        if not isinstance(decision, Allow) or decision.updated_input is None:
            return resolution
        if not self._editable and request.tool_name != "question":  # there, the input holds the answer
            # Running the call as it was would be the opposite of what was decided.
            return _Resolution(Deny("this agent cannot run a tool with a changed input"), resolution.by)
        changed = replace(request, input=decision.updated_input)
        ruling = self._ruling(changed)
        if ruling is None or ruling.action != "deny":
            return resolution
        rule = ruling.rule.label if ruling.rule is not None else "default"
        return _Resolution(Deny(f"the changed input is not allowed: {ruling.message}"), "policy", rule, ruling.why)

    async def _call(self, callback: CanUseTool, request: PermissionRequest, question: _OpenQuestion) -> None:
        resolution = await self._called(callback, request)
        if not question.answer.done():  # the callback's own time began a little later than the question's
            question.answer.set_result(resolution if question.is_open else self._late())

    async def _called(self, callback: CanUseTool, request: PermissionRequest) -> _Resolution:
        # Where the callback only carries the question to somebody, the audit log says that a person decided.
        by: By = "client" if getattr(callback, "asks_a_person", False) is True else "callback"
        try:
            return _Resolution(await callback_decision(callback, request, timeout=self._timeout), by)
        except CallbackLate:
            return self._late()

    def _late(self) -> _Resolution:
        return _Resolution(Deny(f"nobody answered within {self._timeout:g} s"), "timeout")

    async def _resolve(self, request: PermissionRequest, resolution: _Resolution) -> Decision:
        # Whoever asks may go away meanwhile; what was decided is recorded and told all the same.
        return await asyncio.shield(self._resolving.start(self._record(request, resolution)))

    async def _record(self, request: PermissionRequest, resolution: _Resolution) -> Decision:
        """Nobody is told of a decision, the agent least of all, before it is in the audit log."""
        decision = resolution.decision
        event = resolved(request.request_id, decision, resolution.by, resolution.why)
        if self._audit is not None:
            from .audit import entry_of

            entry = entry_of(request, event, rule=resolution.rule, why=resolution.why, who=resolution.who)
            try:
                await self._audit(entry, self._now())
            except Exception as fault:  # what cannot be recorded must not happen
                if isinstance(decision, Allow):
                    decision = Deny(f"the decision could not be recorded, so it does not count: {fault}")
                    event = resolved(request.request_id, decision, resolution.by)
        if isinstance(decision, Allow) and resolution.by != "policy":
            self._remember(request, decision)
        self._on_resolved(request, event)
        self._emit(event)
        return decision

    def _rules_for(self, request: PermissionRequest) -> tuple[Rule, ...]:
        from .remember import rules_for

        return rules_for(request, self._cwd, home=self._home)

    def _preview(self, request: PermissionRequest) -> list[dict[str, object]]:
        """What remembering the answer would allow: a person sees it before they choose to."""
        from .policy_file import rule_tree

        return [rule_tree(rule) for rule in self._rules_for(request)]

    def _remember(self, request: PermissionRequest, decision: Allow) -> None:
        if decision.remember == "once":
            return
        seen = request if decision.updated_input is None else replace(request, input=decision.updated_input)
        rules = self._rules_for(seen)
        self._remembered = (*rules, *self._remembered)
        if decision.remember == "always" and self._always is not None:
            try:
                for rule in rules:
                    self._always(rule)
            except Exception as fault:  # the answer counts for this session all the same
                message = f"the answer could not be saved for later sessions: {fault}"
                self._emit(Notice(level="warning", code="policy_not_saved", message=message))


async def callback_decision(
    callback: CanUseTool, request: PermissionRequest, *, timeout: float | None = None
) -> Decision:
    """What the callback decides; a refusal with the reason when it fails or returns something else.

    Raises ``CallbackLate`` when time is up.
    """
    try:
        outcome = await run_callback(cast("Callable[..., object]", callback), request, timeout=timeout)
    except CallbackLate:
        raise
    except Exception as fault:  # a broken callback must deny, and the agent must hear why
        return Deny(f"the permission callback failed: {fault!r}")
    if isinstance(outcome, Allow | Deny):
        return outcome
    return Deny(f"the permission callback returned {outcome!r}, which is neither Allow nor Deny")
