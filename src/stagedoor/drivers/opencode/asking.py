"""OpenCode's questions, answered with our caller's decisions."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from ...agents.acp.requests import RequestPermission
from ...agents.acp.session import AcpSession
from ...agents.opencode import Allow, Decision, OpenCodeSession, Reject
from ...agents.opencode.events import PermissionAsked, QuestionAsked
from ...unified import decisions
from ...unified.decisions import Ask
from ...unified.events import PermissionRequest
from ...unified.options import Options
from . import OpenCodeAcpDictionary, ServeDictionary
from .questions import answers_in
from .rights import stance_of

OVERTAKEN = 0.5
"""How long a question waits for the call it is about: the server asks before it tells."""


def is_policed(options: Options) -> bool:
    """Whether the caller has rules of its own, beside those that the tier and the modes mean."""
    if options.policy is None:
        return False
    from ...permissions.modes import built_in

    return bool(options.policy != built_in(tier=options.tier, approval=options.approval, sandbox=options.sandbox))


class Asking:
    """Answers OpenCode's questions with our caller's decisions."""

    def __init__(self, options: Options, ask: Ask, dictionary: ServeDictionary | OpenCodeAcpDictionary) -> None:
        self._edits_run = stance_of(options) == "edit" and not is_policed(options)
        self._cwd = options.cwd
        self._ask = ask
        self._dictionary = dictionary
        self._allowed: set[str] = set()
        self._news = asyncio.Event()
        dictionary.on_call = self._on_call
        self._interrupting: set[asyncio.Task[None]] = set()
        # Weak, because the running server holds this: a session nobody else holds is to end.
        self._session: asyncio.Future[weakref.ref[OpenCodeSession | AcpSession]]
        self._session = asyncio.get_running_loop().create_future()

    def opened(self, session: OpenCodeSession | AcpSession) -> None:
        self._session.set_result(weakref.ref(session))

    async def decide(self, asked: PermissionAsked | RequestPermission) -> Decision:
        request = await self._request(asked)
        # One call may be asked about twice: for leaving the project, and for what it does.
        if request.tool_use_id and request.tool_use_id in self._allowed:
            return Allow()
        decision = decisions.Allow() if self._runs(request) else await self._ask(request)
        match decision:
            case decisions.Allow(updated_input=changed) if changed is not None and changed != request.input:
                return Reject("OpenCode cannot run a call with changed input, so it was not run at all")
            case decisions.Allow():
                self._allowed.add(request.tool_use_id)
                return Allow()  # "always" would let more through than this one
            case decisions.Deny(interrupt=True):
                self._interrupt()
                return Reject()
            case decisions.Deny():
                return Reject(decision.message or "The user refused this call.")

    async def answer(self, asked: QuestionAsked) -> Sequence[Sequence[str]] | None:
        dictionary = self._dictionary
        assert isinstance(dictionary, ServeDictionary)
        await self._heard(lambda: dictionary.knows(asked))
        match await self._ask(dictionary.request(asked)):
            case decisions.Allow(updated_input=given):
                answers = answers_in(asked, given)
                said = "The user gave no answer: decide yourself."
            case decisions.Deny(interrupt=True):
                self._interrupt()
                return None
            case decisions.Deny(message=message):
                # Rejecting it would end the turn.
                answers, said = None, f"The user does not want to answer. {message}".strip()
        return answers if answers is not None else [[said] for _ in asked.questions]

    async def _request(self, asked: PermissionAsked | RequestPermission) -> PermissionRequest:
        match self._dictionary, asked:
            case ServeDictionary() as serve, PermissionAsked():
                await self._heard(lambda: serve.knows(asked))
                return serve.request(asked)
            case OpenCodeAcpDictionary() as acp, RequestPermission():
                await self._heard(lambda: acp.knows(asked))
                return acp.request(asked)
            case _:
                raise AssertionError("a question of another driver")

    async def _heard(self, knows: Callable[[], bool]) -> None:
        """Wait a moment for the call it is about: the question comes first and tells less."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OVERTAKEN):
                while not knows():
                    await self._news.wait()

    def _on_call(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _runs(self, request: PermissionRequest) -> bool:
        """Whether it is an edit inside the working directory that needs no question."""
        if not self._edits_run or request.tool_name not in ("write_file", "edit_file"):
            return False
        from ...permissions.risk import judge

        judged = judge(request.tool_name, request.operation, request.input, cwd=self._cwd)
        return judged.risk != "high" and _is_inside(request, self._cwd)

    def _interrupt(self) -> None:
        async def interrupt() -> None:
            session = (await self._session)()
            if session is not None:
                await session.interrupt()

        if isinstance(self._dictionary, OpenCodeAcpDictionary):
            self._dictionary.interrupt()
        task = asyncio.get_running_loop().create_task(interrupt())
        self._interrupting.add(task)
        task.add_done_callback(self._interrupting.discard)


def _is_inside(request: PermissionRequest, cwd: str) -> bool:
    path: object = request.input.get("filePath") or request.input.get("filepath")
    if not isinstance(path, str):
        return False  # a patch of several files
    return Path(cwd, path).resolve().is_relative_to(Path(cwd).resolve())
