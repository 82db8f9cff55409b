"""What OpenCode says, in its own words: ``run`` prints one event a line, ``serve`` streams them.

The events of ``run`` wrap one finished part each. Those of ``serve`` are the ``properties`` of what the server sent;
the name in the table is its ``type``. The last few are not OpenCode's: they say what happened around it.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from podium.transports.launch import Exited, Stalled
from podium.wire.shapes import Shapes, Unrecognized

from .parts import PARTS, Failure, Part, ReasoningPart, StepFinishPart, StepStartPart, TextPart, Tokens, ToolPart

# ------------------------------------------------------------------------------------------------- run --format json


class _RunEvent(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str = msgspec.field(default="", name="sessionID")
    timestamp: float = 0


class StepStart(_RunEvent, frozen=True, kw_only=True):
    part: StepStartPart


class Text(_RunEvent, frozen=True, kw_only=True):
    part: TextPart


class Reasoning(_RunEvent, frozen=True, kw_only=True):
    part: ReasoningPart


class ToolUse(_RunEvent, frozen=True, kw_only=True):
    """A finished call: its state is ``completed`` or ``error``."""

    part: ToolPart


class StepFinish(_RunEvent, frozen=True, kw_only=True):
    part: StepFinishPart


class Error(_RunEvent, frozen=True, kw_only=True):
    error: Failure


KnownRunEvent: TypeAlias = StepStart | Text | Reasoning | ToolUse | StepFinish | Error

RUN_EVENTS: Shapes[KnownRunEvent] = Shapes(
    {
        "step_start": StepStart,
        "text": Text,
        "reasoning": Reasoning,
        "tool_use": ToolUse,
        "step_finish": StepFinish,
        "error": Error,
    }
)

# ------------------------------------------------------------------------------------------------------------- serve


class _OfSession(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str = msgspec.field(default="", name="sessionID")


class Times(msgspec.Struct, frozen=True):
    """Milliseconds since the epoch."""

    created: float = 0
    updated: float | None = None
    completed: float | None = None
    archived: float | None = None


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session as the server keeps it; ``parent_id`` is set for a sub-agent's."""

    id: str
    directory: str = ""
    parent_id: str | None = msgspec.field(default=None, name="parentID")
    project_id: str = msgspec.field(default="", name="projectID")
    title: str = ""
    version: str = ""
    agent: str | None = None
    model: dict[str, Any] | None = None
    cost: float = 0
    tokens: Tokens = Tokens()
    time: Times = Times()


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A user's or an assistant's message, without its parts. An assistant's is over when ``time.completed`` is set."""

    id: str
    role: str = ""
    session_id: str = msgspec.field(default="", name="sessionID")
    parent_id: str | None = msgspec.field(default=None, name="parentID")
    provider_id: str = msgspec.field(default="", name="providerID")
    model_id: str = msgspec.field(default="", name="modelID")
    agent: str = ""
    finish: str | None = None
    error: Failure | None = None
    cost: float = 0
    tokens: Tokens = Tokens()
    time: Times = Times()
    structured: Any = None


class Status(msgspec.Struct, frozen=True):
    """``busy``, ``idle``, or ``retry`` (``next`` is when, in milliseconds since the epoch)."""

    type: str = ""
    attempt: int | None = None
    message: str | None = None
    next: float | None = None


class ToolRef(msgspec.Struct, frozen=True):
    message_id: str = msgspec.field(default="", name="messageID")
    call_id: str = msgspec.field(default="", name="callID")


class Choice(msgspec.Struct, frozen=True):
    label: str = ""
    description: str = ""


class Question(msgspec.Struct, frozen=True):
    question: str = ""
    header: str = ""
    options: list[Choice] = []
    multiple: bool = False
    custom: bool | None = None


class Todo(msgspec.Struct, frozen=True):
    content: str = ""
    status: str = ""
    priority: str = ""


class ServerConnected(msgspec.Struct, frozen=True):
    """The first event of every stream; a second one means that the first stream broke and something may be missed."""


class ServerHeartbeat(msgspec.Struct, frozen=True):
    """Every ten seconds."""


class SessionCreated(_OfSession, frozen=True, kw_only=True):
    info: SessionRecord


class SessionUpdated(_OfSession, frozen=True, kw_only=True):
    info: SessionRecord


class SessionDeleted(_OfSession, frozen=True, kw_only=True):
    info: SessionRecord


class SessionStatus(_OfSession, frozen=True, kw_only=True):
    status: Status = Status()


class SessionIdle(_OfSession, frozen=True, kw_only=True):
    """Not the end of a turn by itself: after an abort or an error it comes twice. See ``TurnEnded``."""


class SessionError(_OfSession, frozen=True, kw_only=True):
    error: Failure = Failure()


class SessionDiff(_OfSession, frozen=True, kw_only=True):
    diff: list[msgspec.Raw] = []


class SessionCompacted(_OfSession, frozen=True, kw_only=True):
    pass


class MessageUpdated(_OfSession, frozen=True, kw_only=True):
    info: Message


class MessageRemoved(_OfSession, frozen=True, kw_only=True):
    message_id: str = msgspec.field(default="", name="messageID")


class MessagePartUpdated(_OfSession, frozen=True, kw_only=True):
    """A part as it now is, whole."""

    part: msgspec.Raw
    time: float = 0

    def typed(self) -> Part:
        return PARTS.decode(bytes(self.part))


class MessagePartDelta(_OfSession, frozen=True, kw_only=True):
    """More of one field of a part."""

    message_id: str = msgspec.field(default="", name="messageID")
    part_id: str = msgspec.field(default="", name="partID")
    field: str = "text"
    delta: str = ""


class MessagePartRemoved(_OfSession, frozen=True, kw_only=True):
    message_id: str = msgspec.field(default="", name="messageID")
    part_id: str = msgspec.field(default="", name="partID")


class PermissionAsked(_OfSession, frozen=True, kw_only=True):
    """``always`` are the patterns that the answer *always* would allow. ``metadata`` holds the command or the diff."""

    id: str
    permission: str = ""
    patterns: list[str] = []
    metadata: dict[str, Any] = {}
    always: list[str] = []
    tool: ToolRef | None = None


class PermissionReplied(_OfSession, frozen=True, kw_only=True):
    request_id: str = msgspec.field(default="", name="requestID")
    reply: str = ""


class QuestionAsked(_OfSession, frozen=True, kw_only=True):
    id: str
    questions: list[Question] = []
    tool: ToolRef | None = None


class QuestionReplied(_OfSession, frozen=True, kw_only=True):
    request_id: str = msgspec.field(default="", name="requestID")
    answers: list[list[str]] = []


class QuestionRejected(_OfSession, frozen=True, kw_only=True):
    request_id: str = msgspec.field(default="", name="requestID")


class TodoUpdated(_OfSession, frozen=True, kw_only=True):
    todos: list[Todo] = []


class FileEdited(msgspec.Struct, frozen=True):
    file: str = ""


class CommandExecuted(_OfSession, frozen=True, kw_only=True):
    name: str = ""
    arguments: str = ""
    message_id: str = msgspec.field(default="", name="messageID")


class ServerNotice(msgspec.Struct, frozen=True):
    """News of the server that concern no conversation: plugins loaded, catalogs refreshed, files watched."""

    type: str
    properties: msgspec.Raw = msgspec.Raw(b"{}")


KnownServerEvent: TypeAlias = (
    ServerConnected
    | ServerHeartbeat
    | SessionCreated
    | SessionUpdated
    | SessionDeleted
    | SessionStatus
    | SessionIdle
    | SessionError
    | SessionDiff
    | SessionCompacted
    | MessageUpdated
    | MessageRemoved
    | MessagePartUpdated
    | MessagePartDelta
    | MessagePartRemoved
    | PermissionAsked
    | PermissionReplied
    | QuestionAsked
    | QuestionReplied
    | QuestionRejected
    | TodoUpdated
    | FileEdited
    | CommandExecuted
)

SERVER_EVENTS: dict[str, type[KnownServerEvent]] = {
    "server.connected": ServerConnected,
    "server.heartbeat": ServerHeartbeat,
    "session.created": SessionCreated,
    "session.updated": SessionUpdated,
    "session.deleted": SessionDeleted,
    "session.status": SessionStatus,
    "session.idle": SessionIdle,
    "session.error": SessionError,
    "session.diff": SessionDiff,
    "session.compacted": SessionCompacted,
    "message.updated": MessageUpdated,
    "message.removed": MessageRemoved,
    "message.part.updated": MessagePartUpdated,
    "message.part.delta": MessagePartDelta,
    "message.part.removed": MessagePartRemoved,
    "permission.asked": PermissionAsked,
    "permission.replied": PermissionReplied,
    "question.asked": QuestionAsked,
    "question.replied": QuestionReplied,
    "question.rejected": QuestionRejected,
    "todo.updated": TodoUpdated,
    "file.edited": FileEdited,
    "command.executed": CommandExecuted,
}

SERVER_NOTICES = frozenset(
    {
        "catalog.updated",
        "file.watcher.updated",
        "global.disposed",
        "installation.update-available",
        "installation.updated",
        "integration.connection.updated",
        "integration.updated",
        "lsp.client.diagnostics",
        "lsp.updated",
        "mcp.browser.open.failed",
        "mcp.tools.changed",
        "models-dev.refreshed",
        "plugin.added",
        "project.directories.updated",
        "project.updated",
        "pty.created",
        "pty.deleted",
        "pty.exited",
        "pty.updated",
        "reference.updated",
        "server.instance.disposed",
        "sync",
        "tui.command.execute",
        "tui.prompt.append",
        "tui.session.select",
        "tui.toast.show",
        "vcs.branch.updated",
        "workspace.failed",
        "workspace.ready",
        "workspace.status",
        "worktree.failed",
        "worktree.ready",
    }
)

# ---------------------------------------------------------------------------------------- what happened around it


class ServerListening(msgspec.Struct, frozen=True):
    url: str


class ServerSaid(msgspec.Struct, frozen=True):
    """A line the server printed."""

    line: str


class Answered(msgspec.Struct, frozen=True):
    """The server's answer to one of our calls. ``call`` is empty in a recording, which does not say."""

    status: int
    body: bytes = b""
    call: str = ""


class Refused(msgspec.Struct, frozen=True):
    """The server answered one of our calls with an error."""

    status: int
    call: str = ""
    message: str = ""


class TurnEnded(msgspec.Struct, frozen=True):
    """The turn is over: the session is idle and none of its messages is unfinished. Once per prompt.

    ``finish`` is why the model stopped last (``tool-calls`` after a rejected permission); ``tokens`` and ``cost`` are
    the turn's sums.
    """

    session_id: str
    outcome: Literal["completed", "failed", "aborted"]
    finish: str | None = None
    error: Failure | None = None
    tokens: Tokens = Tokens()
    cost: float = 0


class Runaway(msgspec.Struct, frozen=True):
    """So many steps in a row began and came to nothing; OpenCode would go on for ever, so the turn is ended."""

    session_id: str
    steps: int
    why: str = "the model's answers end without a reason, and OpenCode repeats the request without limit"


RunEvent: TypeAlias = KnownRunEvent | Runaway | Unrecognized | Exited | Stalled
ServerEvent: TypeAlias = (
    KnownServerEvent
    | ServerNotice
    | ServerListening
    | ServerSaid
    | Answered
    | Refused
    | TurnEnded
    | Runaway
    | Unrecognized
    | Exited
    | Stalled
)
Event: TypeAlias = RunEvent | ServerEvent
