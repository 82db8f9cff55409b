"""OpenCode's events, in its own words: ``run`` prints one finished part a line, ``serve`` streams events.

The events of ``serve`` are the ``properties`` of what the server sent; the name in the table is its ``type``. The last
few are not OpenCode's: they report what happened around it.
"""

from __future__ import annotations

# A session that the CLI names itself takes the place of the one we know:
# pyright: reportIncompatibleMethodOverride=false
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from stagedoor.transports.launch import Exited, Stalled
from stagedoor.wire.shapes import Shapes, UnknownMessage
from stagedoor.wire.stamps import Stamped, written_at

from .parts import (
    OpenCodeFailure,
    OpenCodeMessage,
    OpenCodeQuestion,
    OpenCodeStatus,
    OpenCodeTodo,
    OpenCodeTokens,
    Part,
    ReasoningPart,
    SessionRecord,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
    ToolRef,
    decode_part,
)

# ----------------------------------------------------------------------------------------------------------------- run


class _RunEvent(Stamped, frozen=True, kw_only=True):
    session_id: str = msgspec.field(default="", name="sessionID")
    printed_at: float = msgspec.field(default=0, name="timestamp")
    """Milliseconds since 1970, as OpenCode printed it."""

    @property
    def timestamp(self) -> datetime:
        return written_at(self.printed_at, self)


class StepStart(_RunEvent, frozen=True, kw_only=True):
    part: StepStartPart = StepStartPart()


class OpenCodeText(_RunEvent, frozen=True, kw_only=True):
    part: TextPart


class OpenCodeReasoning(_RunEvent, frozen=True, kw_only=True):
    part: ReasoningPart


class OpenCodeToolUse(_RunEvent, frozen=True, kw_only=True):
    """A finished call: its state is ``completed`` or ``error``."""

    part: ToolPart


class StepFinish(_RunEvent, frozen=True, kw_only=True):
    part: StepFinishPart = StepFinishPart()


class OpenCodeError(_RunEvent, frozen=True, kw_only=True):
    error: OpenCodeFailure


KnownRunEvent: TypeAlias = StepStart | OpenCodeText | OpenCodeReasoning | OpenCodeToolUse | StepFinish | OpenCodeError

RUN_EVENTS: Shapes[KnownRunEvent] = Shapes(
    {
        "step_start": StepStart,
        "text": OpenCodeText,
        "reasoning": OpenCodeReasoning,
        "tool_use": OpenCodeToolUse,
        "step_finish": StepFinish,
        "error": OpenCodeError,
    }
)

# ------------------------------------------------------------------------------------------------------------- serve


class OfSession(Stamped, frozen=True, kw_only=True):
    session_id: str = msgspec.field(default="", name="sessionID")


class ServerConnected(Stamped, frozen=True):
    """The first event of every stream; a second one means that the first stream broke and something may be missed."""


class ServerHeartbeat(Stamped, frozen=True):
    """Every ten seconds."""


class SessionCreated(OfSession, frozen=True, kw_only=True):
    info: SessionRecord


class SessionUpdated(OfSession, frozen=True, kw_only=True):
    info: SessionRecord


class SessionDeleted(OfSession, frozen=True, kw_only=True):
    info: SessionRecord


class SessionStatus(OfSession, frozen=True, kw_only=True):
    status: OpenCodeStatus = OpenCodeStatus()


class SessionIdle(OfSession, frozen=True, kw_only=True):
    """Not the end of a turn by itself: after an abort or an error it comes twice. See ``TurnEnded``."""


class SessionError(OfSession, frozen=True, kw_only=True):
    error: OpenCodeFailure = OpenCodeFailure()


class SessionDiff(OfSession, frozen=True, kw_only=True):
    diff: list[msgspec.Raw] = []


class SessionCompacted(OfSession, frozen=True, kw_only=True):
    pass


class MessageUpdated(OfSession, frozen=True, kw_only=True):
    info: OpenCodeMessage


class MessageRemoved(OfSession, frozen=True, kw_only=True):
    message_id: str = msgspec.field(default="", name="messageID")


class MessagePartUpdated(OfSession, frozen=True, kw_only=True, gc=False):
    """A part as it now is, whole."""

    part: msgspec.Raw
    time: float = 0

    def typed(self) -> Part:
        return decode_part(self.part)


class MessagePartDelta(OfSession, frozen=True, kw_only=True, gc=False):
    """More of one field of a part."""

    message_id: str = msgspec.field(default="", name="messageID")
    part_id: str = msgspec.field(default="", name="partID")
    field: str = "text"
    delta: str = ""


class MessagePartRemoved(OfSession, frozen=True, kw_only=True):
    message_id: str = msgspec.field(default="", name="messageID")
    part_id: str = msgspec.field(default="", name="partID")


class PermissionAsked(OfSession, frozen=True, kw_only=True):
    """``always`` are the patterns that the answer *always* would allow. ``metadata`` holds the command or the diff."""

    id: str
    permission: str = ""
    patterns: list[str] = []
    metadata: dict[str, Any] = {}
    always: list[str] = []
    tool: ToolRef | None = None
    next_api: bool = False
    """Asked as ``permission.v2.asked``: it is answered elsewhere."""


class PermissionV2Asked(OfSession, frozen=True, kw_only=True):
    """The same question in the words of OpenCode's next API."""

    id: str
    action: str
    resources: list[str] = []
    save: list[str] = []
    metadata: dict[str, Any] = {}
    source: ToolRef | None = None

    def question(self) -> PermissionAsked:
        return PermissionAsked(
            session_id=self.session_id,
            id=self.id,
            permission=self.action,
            patterns=self.resources,
            metadata=self.metadata,
            always=self.save,
            tool=self.source,
            next_api=True,
        )


class PermissionReplied(OfSession, frozen=True, kw_only=True):
    request_id: str = msgspec.field(default="", name="requestID")
    reply: str = ""


class QuestionAsked(OfSession, frozen=True, kw_only=True):
    id: str
    questions: list[OpenCodeQuestion] = []
    tool: ToolRef | None = None
    next_api: bool = False


class QuestionReplied(OfSession, frozen=True, kw_only=True):
    request_id: str = msgspec.field(default="", name="requestID")
    answers: list[list[str]] = []


class QuestionRejected(OfSession, frozen=True, kw_only=True):
    request_id: str = msgspec.field(default="", name="requestID")


class TodoUpdated(OfSession, frozen=True, kw_only=True):
    todos: list[OpenCodeTodo] = []


class FileEdited(Stamped, frozen=True):
    file: str = ""


class CommandExecuted(OfSession, frozen=True, kw_only=True):
    name: str = ""
    arguments: str = ""
    message_id: str = msgspec.field(default="", name="messageID")


class ServerNotice(Stamped, frozen=True):
    """An event of the server that concerns no conversation: plugins loaded, catalogs refreshed, files watched."""

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

SERVER_EVENTS: dict[str, type[KnownServerEvent | PermissionV2Asked]] = {
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
    "permission.v2.asked": PermissionV2Asked,
    "permission.replied": PermissionReplied,
    "permission.v2.replied": PermissionReplied,
    "question.asked": QuestionAsked,
    "question.v2.asked": QuestionAsked,
    "question.v2.replied": QuestionReplied,
    "question.v2.rejected": QuestionRejected,
    "question.replied": QuestionReplied,
    "question.rejected": QuestionRejected,
    "todo.updated": TodoUpdated,
    "file.edited": FileEdited,
    "command.executed": CommandExecuted,
}

SERVER_QUESTIONS = frozenset({"permission.asked", "permission.v2.asked", "question.asked", "question.v2.asked"})

SERVER_NOTICES = frozenset(
    {
        "catalog.updated", "file.watcher.updated", "global.disposed", "installation.update-available",
        "installation.updated", "integration.connection.updated", "integration.updated", "lsp.client.diagnostics",
        "lsp.updated", "mcp.browser.open.failed", "mcp.tools.changed", "models-dev.refreshed", "plugin.added",
        "project.directories.updated", "project.updated", "pty.created", "pty.deleted", "pty.exited", "pty.updated",
        "reference.updated", "server.instance.disposed", "sync", "tui.command.execute", "tui.prompt.append",
        "tui.session.select", "tui.toast.show", "vcs.branch.updated", "workspace.failed", "workspace.ready",
        "workspace.status", "worktree.failed", "worktree.ready",
        # Sessions of the next API, of which we open none; what they have in common with ours comes in our words, too.
        "session.next.agent.switched", "session.next.compaction.delta", "session.next.compaction.ended",
        "session.next.compaction.started", "session.next.context.updated", "session.next.model.switched",
        "session.next.moved", "session.next.prompt.admitted", "session.next.prompted", "session.next.reasoning.delta",
        "session.next.reasoning.ended", "session.next.reasoning.started", "session.next.retried",
        "session.next.revert.cleared", "session.next.revert.committed", "session.next.revert.staged",
        "session.next.shell.ended", "session.next.shell.started", "session.next.step.ended",
        "session.next.step.failed", "session.next.step.started", "session.next.synthetic", "session.next.text.delta",
        "session.next.text.ended", "session.next.text.started", "session.next.tool.called",
        "session.next.tool.failed", "session.next.tool.input.delta", "session.next.tool.input.ended",
        "session.next.tool.input.started", "session.next.tool.progress", "session.next.tool.success",
    }
)  # fmt: skip

# ---------------------------------------------------------------------------------------- what happened around it


class ServerListening(Stamped, frozen=True):
    url: str


class ServerOutput(Stamped, frozen=True):
    """A line the server printed."""

    line: str


class ServerAnswer(Stamped, frozen=True):
    """The server's answer to one of our calls. ``call`` is empty in a recording, which does not say."""

    status: int
    body: bytes = b""
    call: str = ""


class ServerRefusal(Stamped, frozen=True):
    """The server answered one of our calls with an error."""

    status: int
    call: str = ""
    message: str = ""


class TurnEnded(Stamped, frozen=True):
    """The turn is over: the session is idle and none of its messages is unfinished. Once per prompt.

    ``finish`` is why the model stopped last (``tool-calls`` after a rejected permission); ``tokens`` and ``cost`` are
    the turn's sums.
    """

    session_id: str
    outcome: Literal["completed", "failed", "aborted"]
    finish: str | None = None
    error: OpenCodeFailure | None = None
    tokens: OpenCodeTokens = OpenCodeTokens()
    cost: float = 0


class Runaway(Stamped, frozen=True):
    """So many steps in a row came to nothing. OpenCode would continue for ever, so the turn is ended.

    ``empty_steps``: the model's answers end without a reason, and OpenCode repeats the request without limit.
    ``context_overflow``: the context overflows however often OpenCode summarizes the conversation.
    """

    session_id: str
    steps: int
    cause: Literal["empty_steps", "context_overflow"] = "empty_steps"


class StepsExhausted(Stamped, frozen=True):
    """The model used as many requests as ``most_steps`` allows and wants to continue; the turn is ended."""

    session_id: str
    steps: int


RunEvent: TypeAlias = KnownRunEvent | Runaway | StepsExhausted | UnknownMessage | Exited | Stalled
ServerEvent: TypeAlias = (
    KnownServerEvent
    | ServerNotice
    | ServerListening
    | ServerOutput
    | ServerAnswer
    | ServerRefusal
    | TurnEnded
    | Runaway
    | StepsExhausted
    | UnknownMessage
    | Exited
    | Stalled
)
Event: TypeAlias = RunEvent | ServerEvent
