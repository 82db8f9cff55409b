"""What a caller can want of Claude Code: prompts, requests over the control channel, and answers to its questions,
some of them ready-made. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ...wire.permission import PermissionBehavior
from .events import CanUseTool, PermissionRuleValue, PermissionUpdate


class ClaudePrompt(msgspec.Struct, frozen=True):
    """A user message: text, or content blocks as the API takes them (text, images).

    Text that begins with ``/`` is a slash command. ``uuid`` comes back on the replayed message.
    """

    content: str | Sequence[Mapping[str, Any]]
    uuid: str | None = None
    parent_tool_use_id: str | None = None


def image(data: str, media_type: str = "image/png") -> dict[str, Any]:
    """A content block with a base64 picture."""
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


class ClaudeInterrupt(msgspec.Struct, frozen=True):
    """End the running turn, and the background tasks it left; the session continues."""


# --------------------------------------------------------------------------------- requests, answered under their id


class ClaudeInitialize(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Register what lives in the host, and ask what there is: commands, agents, models, account."""

    hooks: Mapping[str, Sequence[Mapping[str, Any]]] = {}
    sdk_mcp_servers: Sequence[str] = ()
    json_schema: Mapping[str, Any] | None = None
    system_prompt: Sequence[str] | None = None
    append_system_prompt: str | None = None
    agents: Mapping[str, Mapping[str, Any]] | None = None
    title: str | None = None
    skills: Sequence[str] | None = None
    prompt_suggestions: bool = False
    forward_subagent_text: bool = False


class SetPermissionMode(msgspec.Struct, frozen=True):
    mode: str


class ClaudeSetModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """``None`` is the default model. The name is not checked."""

    model: str | None = None


class SetMaxThinkingTokens(msgspec.Struct, frozen=True):
    max_thinking_tokens: int | None


class McpStatus(msgspec.Struct, frozen=True):
    pass


class McpReconnect(msgspec.Struct, frozen=True, rename="camel"):
    server_name: str


class McpToggle(msgspec.Struct, frozen=True, rename="camel"):
    server_name: str
    enabled: bool


class McpSetServers(msgspec.Struct, frozen=True):
    servers: Mapping[str, Mapping[str, Any]]


class McpCall(msgspec.Struct, frozen=True):
    """Call a tool of a configured MCP server without the model. No permission is asked."""

    tool: str
    arguments: Mapping[str, Any] = {}


class GetContextUsage(msgspec.Struct, frozen=True):
    pass


class GetSettings(msgspec.Struct, frozen=True):
    pass


class GetSessionCost(msgspec.Struct, frozen=True):
    pass


class GetBinaryVersion(msgspec.Struct, frozen=True):
    pass


class GetUsage(msgspec.Struct, frozen=True):
    pass


class RenameSession(msgspec.Struct, frozen=True):
    title: str


class StopTask(msgspec.Struct, frozen=True):
    task_id: str


class BackgroundTasks(msgspec.Struct, frozen=True, omit_defaults=True):
    """Send what runs in the foreground to the background: all of it, or one call."""

    tool_use_id: str | None = None


class RewindFiles(msgspec.Struct, frozen=True, omit_defaults=True):
    """Put the files back to where they were at that user message (needs file checkpoints)."""

    user_message_id: str
    dry_run: bool = False


class CancelAsyncMessage(msgspec.Struct, frozen=True):
    """Take back a prompt that still waits in the queue."""

    message_uuid: str


class OtherControlRequest(msgspec.Struct, frozen=True):
    """Any other request, by its own name."""

    subtype: str
    arguments: Mapping[str, Any] = {}


Request: TypeAlias = (
    ClaudeInitialize
    | SetPermissionMode
    | ClaudeSetModel
    | SetMaxThinkingTokens
    | McpStatus
    | McpReconnect
    | McpToggle
    | McpSetServers
    | McpCall
    | GetContextUsage
    | GetSettings
    | GetSessionCost
    | GetBinaryVersion
    | GetUsage
    | RenameSession
    | StopTask
    | BackgroundTasks
    | RewindFiles
    | CancelAsyncMessage
    | OtherControlRequest
)

SUBTYPES: dict[type[Request], str] = {
    ClaudeInitialize: "initialize",
    SetPermissionMode: "set_permission_mode",
    ClaudeSetModel: "set_model",
    SetMaxThinkingTokens: "set_max_thinking_tokens",
    McpStatus: "mcp_status",
    McpReconnect: "mcp_reconnect",
    McpToggle: "mcp_toggle",
    McpSetServers: "mcp_set_servers",
    McpCall: "mcp_call",
    GetContextUsage: "get_context_usage",
    GetSettings: "get_settings",
    GetSessionCost: "get_session_cost",
    GetBinaryVersion: "get_binary_version",
    GetUsage: "get_usage",
    RenameSession: "rename_session",
    StopTask: "stop_task",
    BackgroundTasks: "background_tasks",
    RewindFiles: "rewind_files",
    CancelAsyncMessage: "cancel_async_message",
}


def request_body(request: Request) -> dict[str, Any]:
    """The ``request`` member of a control request."""
    if isinstance(request, OtherControlRequest):
        return {"subtype": request.subtype, **request.arguments}
    body: dict[str, Any] = msgspec.to_builtins(request)
    return {"subtype": SUBTYPES[type(request)], **body}


# ------------------------------------------------------------------------------------------ answers to its questions


class PermissionResultAllow(msgspec.Struct, frozen=True):
    """Let the call run: as asked, or with ``updated_input`` in place of its whole input.

    ``updated_permissions`` changes Claude Code's own rules; ``remember``: the same call is answered the same for the
    rest of the session without asking again. ``allow_always`` does both.
    """

    updated_input: Mapping[str, Any] | None = None
    updated_permissions: Sequence[PermissionUpdate | msgspec.Raw] = ()
    remember: bool = False


class PermissionResultDeny(msgspec.Struct, frozen=True):
    """Refuse the call. The model reads ``message``; with ``interrupt`` the turn ends and nobody reads it.

    ``remember``: the same call is refused for the rest of the session without asking again.
    """

    message: str = "The user refused this call."
    interrupt: bool = False
    remember: bool = False


Decision: TypeAlias = PermissionResultAllow | PermissionResultDeny


class AnswerCanUseTool(msgspec.Struct, frozen=True):
    request_id: str
    decision: Decision


class AnswerHook(msgspec.Struct, frozen=True):
    """The output of a hook; an empty object is no opinion."""

    request_id: str
    output: Mapping[str, Any] = {}


class AnswerMcp(msgspec.Struct, frozen=True):
    """The reply of an in-process MCP server. A notification is answered too, with ``None``."""

    request_id: str
    reply: Mapping[str, Any] | None


class AnswerControlRequest(msgspec.Struct, frozen=True):
    """The answer to any other question, as it goes over the wire."""

    request_id: str
    response: Mapping[str, Any]


class RefuseControlRequest(msgspec.Struct, frozen=True):
    """We cannot answer this question."""

    request_id: str
    error: str


Reply: TypeAlias = AnswerCanUseTool | AnswerHook | AnswerMcp | AnswerControlRequest | RefuseControlRequest
Command: TypeAlias = ClaudePrompt | ClaudeInterrupt | Request | Reply


# -------------------------------------------------------------------------------- ready-made answers to ``CanUseTool``


def allow_always(request: CanUseTool, destination: str = "session") -> PermissionResultAllow:
    """Allow this call and others like it, as Claude Code itself suggests, or every call of the tool if it does not.

    ``destination``: ``"session"``, or ``"localSettings"``, ``"projectSettings"``, ``"userSettings"`` to save it there.
    A suggested change of the permission mode is left out: it would allow more than was asked. The very same call is
    also remembered by us, so that the answer also lasts in ``delegate`` mode, which passes no rules on.
    """
    updates = [
        msgspec.structs.replace(update, destination=destination)
        for update in request.suggestions()
        if update.type in ("addRules", "addDirectories")
    ]
    if not any(update.type == "addRules" for update in updates):
        rule = PermissionUpdate("addRules", destination, "allow", (PermissionRuleValue(request.tool_name),))
        updates = [rule, *updates]
    return PermissionResultAllow(updated_permissions=tuple(updates), remember=True)


ClaudePermissionBehavior = PermissionBehavior
"""A callback may return one as it is; :func:`decision` turns it into an answer with an input or a message."""


def decision(
    request: CanUseTool,
    behavior: ClaudePermissionBehavior,
    *,
    updated_input: Mapping[str, Any] | None = None,
    message: str = "",
) -> Decision:
    match behavior:
        case ClaudePermissionBehavior.allow:
            return PermissionResultAllow(updated_input)
        case ClaudePermissionBehavior.allow_always:
            return msgspec.structs.replace(allow_always(request), updated_input=updated_input)
        case ClaudePermissionBehavior.deny:
            return PermissionResultDeny(message)
        case ClaudePermissionBehavior.deny_always:
            return PermissionResultDeny(message, remember=True)


class UserQuestionOption(msgspec.Struct, frozen=True):
    label: str
    description: str = ""


class UserQuestion(msgspec.Struct, frozen=True, rename="camel"):
    """One question of ``AskUserQuestion``."""

    question: str
    header: str = ""
    multi_select: bool = False
    options: tuple[UserQuestionOption, ...] = ()


def questions_in(request: CanUseTool) -> list[UserQuestion]:
    """The questions the model asks the user with this call; empty when it is no ``AskUserQuestion``."""
    if request.tool_name != "AskUserQuestion":
        return []
    try:
        return msgspec.convert(request.input.get("questions", []), list[UserQuestion])
    except msgspec.ValidationError:
        return []


def answer_questions(request: CanUseTool, answers: Mapping[str, str | Sequence[str]]) -> PermissionResultAllow:
    """Answer an ``AskUserQuestion``: from the question's text to the chosen label, or labels."""
    flat = {text: answer if isinstance(answer, str) else ", ".join(answer) for text, answer in answers.items()}
    return PermissionResultAllow({**request.input, "answers": flat})


def plan_in(request: CanUseTool) -> str | None:
    """The plan that an ``ExitPlanMode`` call asks to carry out; to allow the call is to approve the plan."""
    plan = request.input.get("plan") if request.tool_name == "ExitPlanMode" else None
    return plan if isinstance(plan, str) else None
