"""REST: the questions that wait for an answer, and their answers."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

from stagedoor.service.identity import first_id
from stagedoor.service.questions import Questions
from stagedoor.service.views import Question
from stagedoor.unified.decisions import Allow, Decision, Deny
from stagedoor.unified.events import Remember

from ..problems import InvalidField
from .operations import Count, Operation, RestCall

_TAG = "permissions"


class QuestionsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``open=false`` also returns the answered ones. The oldest come first."""

    open: bool = True
    offset: Count = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 500


class QuestionPage(msgspec.Struct, frozen=True):
    permissions: list[Question]
    total: int
    offset: int
    limit: int


class AnswerOptions(msgspec.Struct, frozen=True):
    """How a question can be answered beside allow and deny: the ``rules`` that ``remember: always`` adds to the policy
    ``file``, and whether the agent can run the call with another input (``editable``)."""

    file: str
    rules: tuple[dict[str, Any], ...]
    editable: bool


class AllowBody(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    tag_field="decision",
    tag="allow",
    forbid_unknown_fields=True,
):
    """Allow the tool to run, with ``updatedInput`` instead of its own input where the agent supports that. ``answer``
    is the text that answers what the agent itself asks."""

    updated_input: dict[str, Any] | None = None
    answer: Annotated[str, msgspec.Meta(max_length=100_000)] | None = None
    remember: Remember = "once"


class DenyBody(msgspec.Struct, frozen=True, kw_only=True, tag_field="decision", tag="deny", forbid_unknown_fields=True):
    """Deny; the agent receives ``message``. ``interrupt`` ends its turn."""

    message: Annotated[str, msgspec.Meta(max_length=10_000)] = ""
    interrupt: bool = False


AnswerBody: TypeAlias = AllowBody | DenyBody


async def list_all(call: RestCall[QuestionsQuery, None]) -> QuestionPage:
    return await _page(call.service.questions, call.query, None)


async def list_of_session(call: RestCall[QuestionsQuery, None]) -> QuestionPage:
    await call.service.sessions.get(call.session_id)
    return await _page(call.service.questions, call.query, call.session_id)


async def answer(call: RestCall[None, AnswerBody]) -> Question:
    return await _answered(call, call.path["questionId"], None)


async def answer_in_session(call: RestCall[None, AnswerBody]) -> Question:
    return await _answered(call, call.path["requestId"], call.session_id)


async def _answered(call: RestCall[None, AnswerBody], question_id: str, session_id: str | None) -> Question:
    questions, body = call.service.questions, call.body
    if isinstance(body, AllowBody) and body.answer is not None:
        if body.updated_input is not None:
            raise InvalidField("send the answer or the updatedInput, not both", field="$.answer")
        return await questions.respond(
            question_id, body.answer, session_id=session_id, who=call.who, remember=body.remember
        )
    return await questions.answer(question_id, _decision(body), session_id=session_id, who=call.who)


async def find_answered(call: RestCall[None, AnswerBody]) -> Question | None:
    question = await call.service.questions.find(call.path.get("questionId") or call.path["requestId"])
    if question is None or question.answer_id != first_id() or question.by != "client":
        return None  # another answered, or its time was up at the same moment
    return question


async def answer_options(call: RestCall[None, None]) -> AnswerOptions:
    rule = await call.service.questions.rule_for(call.path["questionId"])
    editable = await call.service.questions.editable(call.path["questionId"])
    return AnswerOptions(file=rule.file, rules=rule.rules, editable=editable)


async def _page(questions: Questions, query: QuestionsQuery, session_id: str | None) -> QuestionPage:
    filters: dict[str, Any] = {"session_id": session_id, "open_only": query.open}
    return QuestionPage(
        permissions=await questions.list(**filters, offset=query.offset, limit=query.limit),
        total=await questions.count(**filters),
        offset=query.offset,
        limit=query.limit,
    )


def _decision(body: AnswerBody) -> Decision:
    match body:
        case AllowBody():
            return Allow(updated_input=body.updated_input, remember=body.remember)
        case DenyBody():
            return Deny(body.message, body.interrupt)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="listPermissions", method="GET", path="/api/permissions", tag=_TAG, scope="watch", verb=list_all,
        summary="The questions of all sessions that wait for an answer", query=QuestionsQuery, answer=QuestionPage,
    ),
    Operation(
        name="answerPermission", method="POST", path="/api/permissions/{questionId}", tag=_TAG, scope="answer",
        verb=answer, summary="Answer a question, once", bodies=(AnswerBody,), answer=Question, faults=(404, 409),
        recall=find_answered,
    ),
    Operation(
        name="listSessionPermissions", method="GET", path="/api/sessions/{sessionId}/permissions", tag=_TAG,
        scope="watch", verb=list_of_session, summary="The questions of one session", query=QuestionsQuery,
        answer=QuestionPage, faults=(404,),
    ),
    Operation(
        name="answerSessionPermission", method="POST", path="/api/sessions/{sessionId}/permissions/{requestId}",
        tag=_TAG, scope="answer", verb=answer_in_session, summary="Answer a question of one session, once",
        bodies=(AnswerBody,), answer=Question, faults=(404, 409),
        recall=find_answered,
    ),
    Operation(
        name="showRule", method="GET", path="/api/rules/{questionId}", tag=_TAG, scope="watch", verb=answer_options,
        summary="The rule that remember: always would add, and whether the input can be edited", answer=AnswerOptions,
        faults=(404,),
    ),
)  # fmt: skip
