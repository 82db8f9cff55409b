"""What the app-server asks, as a call that waits for permission."""

from __future__ import annotations

from typing import Any, assert_never

from ...agents.codex import questions
from ...agents.codex.questions import Question
from ...agents.codex.thread_items import FileUpdateChange, PatchChangeKind
from ...unified.events import PermissionRequest, ToolUse
from .patches import patch_use
from .tools import mcp_use, other_use, record, shell_use

CHOICES = ("allow_once", "allow_session", "reject_once", "reject_and_stop")


def call_of(question: Question) -> ToolUse | None:
    """The call a question is about; ``None`` for what is no question of permission (the time, a client's own tool)."""
    match question:
        case questions.CommandExecutionRequestApproval():
            return _command(question)
        case questions.FileChangeRequestApproval():
            return patch_use(_id(question), question.changes, description=question.reason or "")
        case questions.ExecCommandApproval():
            said = " ".join(question.command)
            command = question.command[-1] if len(question.command) == 3 else said  # bash -lc COMMAND
            return shell_use(_id(question), command, cwd=question.cwd, description=question.reason or "")
        case questions.ApplyPatchApproval():
            changes = [FileUpdateChange(path, PatchChangeKind("update")) for path in question.file_changes]
            return patch_use(_id(question), changes, description=question.reason or "")
        case questions.PermissionsRequestApproval():
            use = other_use(_id(question), "request_permissions", question.permissions)
            said = question.reason or "wider permissions"
            return ToolUse(
                tool_use_id=use.tool_use_id,
                name="other",
                native_name=use.native_name,
                input=use.input,
                target=question.cwd,
                description=said,
            )
        case questions.McpServerElicitationRequest():
            return _elicitation(question)
        case questions.ToolRequestUserInput():
            return _user_input(question)
        case questions.DynamicToolCall() | questions.CurrentTimeRead():
            return None
        case _:
            assert_never(question)


def request_of(question: Question, use: ToolUse, parent: str | None) -> PermissionRequest:
    return PermissionRequest(
        request_id=f"{question.thread_id}:{question.request_id}",
        tool_use_id=use.tool_use_id,
        tool_name=use.name,
        native_name=use.native_name,
        operation=use.operation,
        target=use.target,
        input=use.input,
        description=use.description,
        choices=list(CHOICES),
        parent_tool_use_id=parent,
    )


def has_item(question: Question) -> bool:
    """Whether the call will be closed by an item of its own."""
    match question:
        case questions.McpServerElicitationRequest():
            return question.call is not None
        case questions.PermissionsRequestApproval() | questions.ToolRequestUserInput():
            return False
        case _:
            return True


def _command(question: questions.CommandExecutionRequestApproval) -> ToolUse:
    use = shell_use(_id(question), question.command or "", cwd=question.cwd or "", description=question.reason or "")
    context = question.network_approval_context
    if context is None:
        return use
    host = str(context.get("host") or "")
    return ToolUse(
        tool_use_id=use.tool_use_id,
        name="shell",
        native_name=use.native_name,
        input={**use.input, "network": record(context)},
        operation="network",
        target=host or use.target,
        description=question.reason or f"network access to {host}",
    )


def _elicitation(question: questions.McpServerElicitationRequest) -> ToolUse:
    if question.is_tool_approval:
        call = question.call
        told: Any = question.tool_params
        given: Any = call.arguments if told is None and call is not None else told
        tool = "" if call is None else call.tool
        return mcp_use(_id(question), question.server_name, tool, given, description=question.message)
    asked = {"message": question.message, "schema": question.requested_schema, "url": question.url}
    return ToolUse(
        tool_use_id=_id(question),
        name="question",
        native_name=f"mcp__{question.server_name}",
        input={key: value for key, value in asked.items() if value},
        target=question.server_name,
        description=question.message,
    )


def _user_input(question: questions.ToolRequestUserInput) -> ToolUse:
    asked = [
        {
            "id": one.id,
            "header": one.header,
            "question": one.question,
            "options": [{"label": option.label, "description": option.description} for option in one.options or []],
            "isOther": one.is_other,
            "isSecret": one.is_secret,
        }
        for one in question.questions
    ]
    words = "\n".join(one.question for one in question.questions)
    return ToolUse(
        tool_use_id=_id(question),
        name="question",
        native_name="request_user_input",
        input={"questions": asked},
        target=words,
        description=words,
    )


def _id(question: Question) -> str:
    return question.item_id or f"question-{question.thread_id}-{question.request_id}"
