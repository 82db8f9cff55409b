"""``permission/*``: the questions that wait, and their answers."""

from __future__ import annotations

from stagedoor.service.question_rows import question_id
from stagedoor.unified.decisions import Allow, Decision, Deny

from ..problems import InvalidField
from .params import PermissionAnswer, PermissionList
from .peer import Call
from .results import Answered, Questions


async def listed(call: Call, wish: PermissionList) -> Questions:
    if wish.session_id:
        await call.service.sessions.get(wish.session_id)
    questions, session_id = call.service.questions, wish.session_id or None
    return Questions(
        permissions=await questions.list(
            session_id=session_id, open_only=wish.open, offset=wish.offset, limit=wish.limit
        ),
        total=await questions.count(session_id=session_id, open_only=wish.open),
        offset=wish.offset,
        limit=wish.limit,
    )


async def answer(call: Call, wish: PermissionAnswer) -> Answered:
    if bool(wish.id) == bool(wish.session_id and wish.request_id):
        raise InvalidField("name the question by id, or by sessionId and requestId", field="$.id")
    question = await call.service.questions.answer(
        wish.id or question_id(wish.session_id, wish.request_id), _decision(wish), who=call.caller.name
    )
    return Answered(permission=question)


def _decision(wish: PermissionAnswer) -> Decision:
    if wish.decision == "allow":
        for name, given in (("message", wish.message), ("interrupt", wish.interrupt)):
            if given:
                raise InvalidField(f"{name} goes with deny only; leave it out", field=f"$.{name}")
        return Allow(updated_input=wish.updated_input, remember=wish.remember)
    for name, given in (("updatedInput", wish.updated_input is not None), ("remember", wish.remember != "once")):
        if given:
            raise InvalidField(f"{name} goes with allow only; leave it out", field=f"$.{name}")
    return Deny(wish.message, wish.interrupt)
