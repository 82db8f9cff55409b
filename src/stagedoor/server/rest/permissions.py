"""REST: the questions that wait for an answer, and their answers."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

from stagedoor.service.identity import first_id
from stagedoor.service.question_rows import question_id
from stagedoor.service.questions import Questions as QuestionVerbs
from stagedoor.service.views import Question
from stagedoor.unified.decisions import Allow, Decision, Deny
from stagedoor.unified.events import Remember

from .operations import Call, Count, Operation

_TAG = "permissions"


class QuestionsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``open=false`` shows the answered ones too. The oldest come first."""

    open: bool = True
    offset: Count = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 500


class Questions(msgspec.Struct, frozen=True):
    permissions: list[Question]
    total: int
    offset: int
    limit: int


class AllowIt(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    tag_field="decision",
    tag="allow",
    forbid_unknown_fields=True,
):
    """Let the tool run, with ``updatedInput`` in place of its own where the agent can do that."""

    updated_input: dict[str, Any] | None = None
    remember: Remember = "once"


class DenyIt(msgspec.Struct, frozen=True, kw_only=True, tag_field="decision", tag="deny", forbid_unknown_fields=True):
    """Refuse; the agent is told ``message``. ``interrupt`` ends its turn."""

    message: Annotated[str, msgspec.Meta(max_length=10_000)] = ""
    interrupt: bool = False


Answer: TypeAlias = AllowIt | DenyIt


async def list_all(call: Call[QuestionsQuery, None]) -> Questions:
    return await _page(call.service.questions, call.query, None)


async def list_of_session(call: Call[QuestionsQuery, None]) -> Questions:
    await call.service.sessions.get(call.session_id)
    return await _page(call.service.questions, call.query, call.session_id)


async def answer(call: Call[None, Answer]) -> Question:
    return await call.service.questions.answer(call.path["questionId"], _decision(call.body), who=call.who)


async def answer_in_session(call: Call[None, Answer]) -> Question:
    named = question_id(call.session_id, call.path["requestId"])
    return await call.service.questions.answer(named, _decision(call.body), who=call.who)


async def find_answered(call: Call[None, Answer]) -> Question | None:
    named = call.path.get("questionId") or question_id(call.session_id, call.path["requestId"])
    asked = await call.service.questions.find(named)
    return asked if asked is not None and asked.answer_id == first_id() else None


async def _page(questions: QuestionVerbs, query: QuestionsQuery, session_id: str | None) -> Questions:
    which: dict[str, Any] = {"session_id": session_id, "open_only": query.open}
    return Questions(
        permissions=await questions.list(**which, offset=query.offset, limit=query.limit),
        total=await questions.count(**which),
        offset=query.offset,
        limit=query.limit,
    )


def _decision(body: Answer) -> Decision:
    match body:
        case AllowIt():
            return Allow(updated_input=body.updated_input, remember=body.remember)
        case DenyIt():
            return Deny(body.message, body.interrupt)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="listPermissions", method="GET", path="/api/permissions", tag=_TAG, scope="watch", verb=list_all,
        summary="The questions of all sessions that wait for an answer", query=QuestionsQuery, answer=Questions,
    ),
    Operation(
        name="answerPermission", method="POST", path="/api/permissions/{questionId}", tag=_TAG, scope="answer",
        verb=answer, summary="Answer a question, once", bodies=(Answer,), answer=Question, faults=(404, 409),
        recall=find_answered,
    ),
    Operation(
        name="listSessionPermissions", method="GET", path="/api/sessions/{sessionId}/permissions", tag=_TAG,
        scope="watch", verb=list_of_session, summary="The questions of one session", query=QuestionsQuery,
        answer=Questions, faults=(404,),
    ),
    Operation(
        name="answerSessionPermission", method="POST", path="/api/sessions/{sessionId}/permissions/{requestId}",
        tag=_TAG, scope="answer", verb=answer_in_session, summary="Answer a question of one session, once",
        bodies=(Answer,), answer=Question, faults=(404, 409),
        recall=find_answered,
    ),
)  # fmt: skip
