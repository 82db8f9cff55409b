"""A permission question as an editor shows it, and its answer as a decision."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, TypeAlias

import msgspec

from stagedoor.dialects.acp import call_fields, text_content
from stagedoor.unified.answers import FormField, answered_input, fields_of
from stagedoor.unified.decisions import Allow, Decision, Deny
from stagedoor.unified.events import PermissionRequest

ALLOW, ALLOW_SESSION, ALLOW_ALWAYS, REJECT = "allow", "allow-session", "allow-always", "reject"
CHOICE = "choice-"
Json: TypeAlias = dict[str, Any]


def permission_params(session_id: str, request: PermissionRequest, cwd: str) -> Json:
    """The parameters of ``session/request_permission``."""
    fields = call_fields(request, PurePosixPath(cwd))
    tool_call = {**fields, "toolCallId": request.tool_use_id or request.request_id, "status": "pending"}
    reasons = "; ".join(request.risk_reasons)
    lines = [line for line in (request.description, f"risk: {request.risk}" + (f" ({reasons})" if reasons else ""))]
    content = [text_content("\n".join(line for line in lines if line))]
    return {"sessionId": session_id, "toolCall": {**tool_call, "content": content}, "options": options_of(request)}


def options_of(request: PermissionRequest) -> list[Json]:
    """What can be answered. A question of the agent's own that has one list of choices offers these."""
    fields = fields_of(request)
    if fields:
        choices = fields[0].choices if len(fields) == 1 else ()
        offered = [_option(f"{CHOICE}{number}", choice, "allow_once") for number, choice in enumerate(choices)]
        return [*offered, _option(REJECT, "Do not answer", "reject_once")]
    options = [_option(ALLOW, "Allow", "allow_once")]
    if request.remembered_as:
        options.append(_option(ALLOW_SESSION, "Allow for this session", "allow_always"))
        options.append(_option(ALLOW_ALWAYS, "Always allow, as a rule of the policy", "allow_always"))
    return [*options, _option(REJECT, "Reject", "reject_once")]


def decision_of(request: PermissionRequest, answer: object) -> Decision:
    """The decision that the editor's answer is. Whatever cannot be understood is no approval."""
    match answer:
        case {"outcome": {"outcome": "selected", "optionId": str(option)}}:
            pass
        case {"outcome": {"outcome": "cancelled"}}:
            return Deny("the turn was cancelled in the editor", interrupt=True)
        case _:
            return Deny("the editor's answer could not be understood")
    fields = fields_of(request)
    if option.startswith(CHOICE) and len(fields) == 1 and option.removeprefix(CHOICE).isdecimal():
        number = int(option.removeprefix(CHOICE))
        if number < len(fields[0].choices):
            return Allow(updated_input=answered_input(request, fields[0].choices[number]))
    if fields:
        return Deny("the question was not answered")
    match option:
        case "allow":
            return Allow()
        case "allow-session":
            return Allow(remember="session")
        case "allow-always":
            return Allow(remember="always")
        case _:
            return Deny("rejected in the editor")


def form_params(session_id: str, request: PermissionRequest) -> Json:
    """The parameters of ``elicitation/create`` for a question of the agent's own."""
    schema: object = request.input.get("schema")
    if not isinstance(schema, dict):
        fields = fields_of(request)
        properties = {f"q{number}": _property(field) for number, field in enumerate(fields, 1)}
        required = [f"q{number}" for number, field in enumerate(fields, 1) if field.required]
        schema = {"type": "object", "properties": properties, "required": required}
    message = str(request.input.get("message") or request.description or request.target or "The agent asks")
    tool_call = {"toolCallId": request.tool_use_id} if request.tool_use_id else {}
    return {"sessionId": session_id, **tool_call, "mode": "form", "message": message, "requestedSchema": schema}


def form_decision(request: PermissionRequest, answer: Any) -> Decision:
    """Raises ``BadRequest`` when the form was filled in otherwise than it was asked."""
    match answer:
        case {"action": "accept", "content": dict()}:
            content: Json = answer["content"]
        case _:
            return Deny("the question was not answered")
    names = [field.name for field in fields_of(request)]
    by_name = {name: content[f"q{number}"] for number, name in enumerate(names, 1) if f"q{number}" in content}
    filled = content if isinstance(request.input.get("schema"), dict) else by_name
    return Allow(updated_input=answered_input(request, msgspec.json.encode(filled).decode()))


def _property(field: FormField) -> Json:
    choice: Json = {"type": "string"} | ({"enum": list(field.choices)} if field.choices else {})
    shape = {"type": "array", "items": choice} if field.several else choice
    return {**shape, "title": field.name}


def _option(option_id: str, name: str, kind: str) -> Json:
    return {"optionId": option_id, "name": name, "kind": kind}
