"""The open questions of one session: several at once, in any order, each answered once, closed when in doubt."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from msgspec.structs import replace

from ..errors import AlreadyAnswered
from ..unified.decisions import Allow, CanUseTool, Decision, Deny
from ..unified.events import Event, PermissionRequest, PermissionResolved, Remember

By = Literal["callback", "policy", "client", "timeout", "interrupt"]


class Judge(Protocol):
    """Decides without asking anybody, or says ``None``: somebody must be asked."""

    def __call__(self, request: PermissionRequest) -> Decision | None: ...


class Questions:
    """``say`` puts the question and its resolution into the stream; ``recorded`` is told of every decision.

    ``attended``: somebody may ``answer`` though there is no callback. Where there is neither, every question is denied.
    """

    def __init__(
        self,
        *,
        say: Callable[[Event], None],
        now: Callable[[], int],
        callback: CanUseTool | None = None,
        judge: Judge | None = None,
        timeout: float | None = None,
        attended: bool = False,
        recorded: Callable[[PermissionRequest, PermissionResolved], None] = lambda request, resolved: None,
    ) -> None:
        self._say = say
        self._now = now
        self._callback = callback
        self._judge = judge
        self._timeout = timeout
        self._attended = attended or callback is not None
        self._recorded = recorded
        self._open: dict[str, asyncio.Future[tuple[Decision, By]]] = {}
        self._remembered: set[tuple[str, str]] = set()
        self._asked = 0

    @property
    def open(self) -> list[str]:
        return list(self._open)

    async def ask(self, request: PermissionRequest) -> Decision:
        """Decide ``request``: by policy, by what was remembered, else by whoever answers first. Never raises."""
        if request.request_id in self._open:
            self._asked += 1
            request = replace(request, request_id=f"{request.request_id}#{self._asked}")
        settled = self._settled(request)
        if settled is not None:
            self._say(request)
            return self._resolve(request, settled, "policy")
        expires = None if self._timeout is None else self._now() + int(self._timeout * 1000)
        request = replace(request, expires_at=expires)
        answer: asyncio.Future[tuple[Decision, By]] = asyncio.get_running_loop().create_future()
        self._open[request.request_id] = answer
        self._say(request)
        calling = asyncio.ensure_future(self._call(request, answer)) if self._callback is not None else None
        try:
            async with asyncio.timeout(self._timeout):
                decision, by = await answer
        except TimeoutError:
            decision, by = Deny(f"nobody answered within {self._timeout:g} s"), "timeout"
        except asyncio.CancelledError:
            self._resolve(request, Deny("the session ended"), "interrupt")
            raise
        finally:
            self._open.pop(request.request_id, None)
            if calling is not None:
                calling.cancel()
        return self._resolve(request, decision, by)

    def answer(self, request_id: str, decision: Decision) -> None:
        """Decide from outside. Raises ``AlreadyAnswered`` when it is too late."""
        answer = self._open.get(request_id)
        if answer is None or answer.done():
            raise AlreadyAnswered(
                f"question {request_id!r} is not open: it was answered, its time was up, or its turn ended"
            )
        answer.set_result((decision, "client"))

    def resolve_all(self, by: By, message: str = "the turn was interrupted") -> None:
        """Close every open question with a refusal."""
        for answer in self._open.values():
            if not answer.done():
                answer.set_result((Deny(message), by))

    async def _call(self, request: PermissionRequest, answer: asyncio.Future[tuple[Decision, By]]) -> None:
        assert self._callback is not None
        try:
            outcome: object = self._callback(request)
            if inspect.isawaitable(outcome):
                outcome = await _awaited(outcome)
        except Exception as fault:  # a broken callback must deny, and the agent must hear why
            outcome = Deny(f"the permission callback failed: {fault!r}")
        if not isinstance(outcome, Allow | Deny):
            outcome = Deny(f"the permission callback returned {outcome!r}, which is neither Allow nor Deny")
        if not answer.done():
            answer.set_result((outcome, "callback"))

    def _settled(self, request: PermissionRequest) -> Decision | None:
        ruling = self._judge(request) if self._judge is not None else None
        if ruling is not None:
            return ruling
        if (request.tool_name, request.target) in self._remembered:
            return Allow(remember="session")
        return None if self._attended else Deny("nobody can be asked: pass can_use_tool=, or choose another tier")

    def _resolve(self, request: PermissionRequest, decision: Decision, by: By) -> Decision:
        remember: Remember = decision.remember if isinstance(decision, Allow) else "once"
        if remember != "once" and request.target:
            self._remembered.add((request.tool_name, request.target))
        resolved = PermissionResolved(
            request_id=request.request_id,
            decision="allow" if isinstance(decision, Allow) else "deny",
            remember=remember,
            by=by,
            message=decision.message if isinstance(decision, Deny) else "",
        )
        self._recorded(request, resolved)
        self._say(resolved)
        return decision


async def _awaited(outcome: Awaitable[object]) -> object:
    return await outcome
