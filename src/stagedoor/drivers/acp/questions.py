"""Answers to the questions of an agent that was told to ask about everything: by the session's stance, then by us.

The agents of this kind ask in one mode of theirs about all that acts. What the tier lets run is allowed at once, so
that an edit of a file from which something runs later is still seen; "always" is never chosen: we remember ourselves,
and an agent would write it into the project's settings.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from typing import Literal, Protocol, cast

from ...agents.acp import AcpSession, AnsweredQuestion, PermissionAnswer, RequestPermission
from ...mcp.functions import HOST
from ...permissions.ground import is_free_edit
from ...transports.tasks import TaskOwner
from ...unified.decisions import Allow, Ask, Decision, Deny
from ...unified.events import PermissionRequest
from ...unified.options import Approval, Options, Tier
from ...unified.tool_lists import ToolLists

Stance = Literal["read", "ask", "edit", "act"]
"""Change nothing; ask about all that acts; the same, but most edits run; ask about nothing."""
_TIERS: dict[Tier, Stance] = {"dry-run": "read", "supervised": "edit", "autonomous": "act"}
_APPROVALS: dict[Approval, Stance] = {"ask": "ask", "askDangerous": "ask", "autoEdit": "edit", "autoAll": "act"}
PATIENCE = 10.0
"""Seconds that a question waits for what came before it to be read."""
DRY_RUN = "This is a dry run: nothing may be changed. Say what you would do instead."


def stance_of(options: Options) -> Stance:
    if options.tier == "dry-run" or options.sandbox == "readOnly":
        return "read"
    return _TIERS[options.tier] if options.approval is None else _APPROVALS[options.approval]


def answer_to(question: RequestPermission, decision: Decision) -> PermissionAnswer:
    """What the agent itself asked: the option that was chosen, where its options are the answers; else the answers
    beside the one option that submits them. An answer that the agent has no way to take is none."""
    if isinstance(decision, Deny):
        return "reject_once"
    submits = [option for option in question.options if option.kind == "allow_once"]
    replies: object = (decision.updated_input or {}).get("answers")
    if not isinstance(replies, Mapping) or not replies:
        return "allow_once" if len(submits) == 1 else "reject_once"
    answers = [_words(value) for value in cast("Mapping[str, object]", replies).values()]
    chosen = [option for option in submits if option.name.casefold() == answers[0].casefold()]
    if chosen:
        return chosen[0]
    if len(submits) == 1:
        return AnsweredQuestion(submits[0], {str(number): answer for number, answer in enumerate(answers)})
    return "reject_once"


def _words(value: object) -> str:
    return ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)


class QuestionDictionary(Protocol):
    """The part of a dictionary that puts questions into our words."""

    def request(self, question: RequestPermission) -> PermissionRequest: ...
    def is_known(self, question: RequestPermission) -> bool:
        """Whether everything was read that came before this question and belongs to it."""
        ...


class AcpQuestions:
    """Decides for one session. ``session`` is to be set as soon as there is one."""

    def __init__(self, options: Options, ask: Ask, dictionary: QuestionDictionary, lists: ToolLists) -> None:
        self._stance = stance_of(options)
        self._options = options
        self._ask = ask
        self._dictionary = dictionary
        self._lists = lists
        self._readers = {lists.mcp_name.format(server=HOST, tool=tool.name) for tool in options.tools if tool.reads}
        self._tasks = TaskOwner()
        # Weak, because the running connection holds this: a session nobody else holds must end.
        self.session: asyncio.Future[weakref.ref[AcpSession]] = asyncio.get_running_loop().create_future()

    async def decide(self, question: RequestPermission) -> PermissionAnswer:
        await self.announced(question)
        return await self.decide_about(question, self._dictionary.request(question))

    async def decide_about(self, question: RequestPermission, request: PermissionRequest) -> PermissionAnswer:
        """The same where the question was put into our words already."""
        if request.tool_name == "question":
            return self._answered(question, await self._ask(request))
        listed = not self._lists.limits or not self._lists.refusal(request)
        if self._stance == "act" and not self._lists.limits:
            return "allow_once"  # some ask about a few things even then
        if listed and self._stance == "edit" and is_free_edit(request, self._options):
            return "allow_once"
        barred = self._stance == "read" and request.native_name not in self._readers
        decision = Deny(DRY_RUN) if barred else await self._ask(request)
        if isinstance(decision, Allow):
            return "allow_once"
        if decision.interrupt:
            self.interrupt()
        return "reject_once"

    def _answered(self, question: RequestPermission, decision: Decision) -> PermissionAnswer:
        if isinstance(decision, Deny) and decision.interrupt:
            self.interrupt()
        return answer_to(question, decision)

    def interrupt(self) -> None:
        """End the turn, soon."""
        self._tasks.start(self._interrupt())

    async def announced(self, question: RequestPermission) -> None:
        """A question has its own task and may overtake the updates before it, which say what it is about."""
        until = asyncio.get_running_loop().time() + PATIENCE
        while True:
            if self._dictionary.is_known(question) or asyncio.get_running_loop().time() > until:
                return
            await asyncio.sleep(0.01)

    async def _interrupt(self) -> None:
        session = (await self.session)()
        if session is not None:
            await session.interrupt()
