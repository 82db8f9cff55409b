"""What OpenCode says, in its own words: ``run`` prints one event a line (see ``run_events``), ``serve`` streams them.

The events of ``serve`` are the ``properties`` of what the server sent; the name in the table is its ``type``. The last
few are not OpenCode's: they say what happened around it.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from stagedoor.transports.launch import Exited, Stalled
from stagedoor.wire.shapes import Unrecognized

from .parts import PARTS, Part, Tokens
from .parts import Failure as Failure
from .records import Choice as Choice
from .records import Message as Message
from .records import Question as Question
from .records import SessionRecord as SessionRecord
from .records import Status as Status
from .records import Times as Times
from .records import Todo as Todo
from .records import ToolRef as ToolRef
from .run_events import RUN_EVENTS as RUN_EVENTS
from .run_events import Error as Error
from .run_events import KnownRunEvent as KnownRunEvent
from .run_events import Reasoning as Reasoning
from .run_events import StepFinish as StepFinish
from .run_events import StepStart as StepStart
from .run_events import Text as Text
from .run_events import ToolUse as ToolUse

# ------------------------------------------------------------------------------------------------------------- serve


class _OfSession(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str = msgspec.field(default="", name="sessionID")


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


class StepsExhausted(msgspec.Struct, frozen=True):
    """The model was asked as often as ``most_steps`` allows and wants to go on; the turn is ended."""

    session_id: str
    steps: int


RunEvent: TypeAlias = KnownRunEvent | Runaway | StepsExhausted | Unrecognized | Exited | Stalled
ServerEvent: TypeAlias = (
    KnownServerEvent
    | ServerNotice
    | ServerListening
    | ServerSaid
    | Answered
    | Refused
    | TurnEnded
    | Runaway
    | StepsExhausted
    | Unrecognized
    | Exited
    | Stalled
)
Event: TypeAlias = RunEvent | ServerEvent
