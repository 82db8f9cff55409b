"""What ``codex app-server`` reports by itself, in its own words. Each names the thread it is about.

Sub-agents are threads on the same pipe: their notifications, even their ``turn/completed``, come in between.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast, get_args

import msgspec

from ...transports.launch import Exited, Stalled
from ...wire.shapes import UnknownMessage, decode_or_reason, decode_question
from ...wire.stamps import Stamped
from .events import CodexUsage
from .questions import Question
from .threads import (
    CallRefusal,
    CallReply,
    CodexTurn,
    FileUpdateChange,
    Thread,
    ThreadItem,
    ThreadStatus,
    ThreadTokenUsage,
    TurnErrorDetails,
    decode_item,
)


class ThreadStartedNotification(Stamped, frozen=True):
    thread: Thread

    @property
    def thread_id(self) -> str:
        return self.thread.id


class ThreadStatusChangedNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    status: ThreadStatus = ThreadStatus()


class ThreadNameUpdatedNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    thread_name: str | None = None


class ThreadSettingsUpdatedNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    thread_settings: dict[str, Any] = {}


class ThreadGoalUpdatedNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    goal: dict[str, Any] = {}
    native_turn_id: str | None = msgspec.field(default=None, name="turnId")


class ThreadTokenUsageUpdatedNotification(Stamped, frozen=True, rename="camel"):
    """After every model call, and at once after a resume (then ``native_turn_id`` is an earlier turn).

    ``turn_usage`` is the running turn so far, worked out by the protocol; ``None`` when none runs.
    """

    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    token_usage: ThreadTokenUsage = ThreadTokenUsage()
    turn_usage: CodexUsage | None = None


class ThreadChangedNotification(Stamped, frozen=True, rename="camel"):
    """Archived, deleted, closed, goal cleared, read state …: ``method`` says which; only the thread matters."""

    thread_id: str
    method: str = ""


class TurnStartedNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    turn: CodexTurn = CodexTurn()


class TurnCompletedNotification(Stamped, frozen=True, rename="camel"):
    """The end of a turn, whatever its status. ``turn_usage`` is worked out by the protocol from the thread's totals."""

    thread_id: str
    turn: CodexTurn = CodexTurn()
    turn_usage: CodexUsage | None = None


class TurnDiffUpdatedNotification(Stamped, frozen=True, rename="camel"):
    """The git diff of the turn so far; repeated."""

    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    diff: str = ""


class TurnPlanStep(msgspec.Struct, frozen=True):
    """``status``: pending, inProgress, completed."""

    step: str = ""
    status: str = ""


class TurnPlanUpdatedNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    explanation: str | None = None
    plan: list[TurnPlanStep] = []


class ItemStartedNotification(Stamped, frozen=True):
    thread_id: str
    native_turn_id: str
    item: ThreadItem | UnknownMessage


class ItemCompletedNotification(Stamped, frozen=True):
    """Items that an interrupt leaves open never get one."""

    thread_id: str
    native_turn_id: str
    item: ThreadItem | UnknownMessage


class AgentMessageDeltaNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""
    delta: str = ""


class PlanDeltaNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""
    delta: str = ""


class ReasoningSummaryPartAddedNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""
    summary_index: int = 0


class ReasoningSummaryTextDeltaNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""
    summary_index: int = 0
    delta: str = ""


class ReasoningTextDeltaNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""
    content_index: int = 0
    delta: str = ""


class CommandExecutionOutputDeltaNotification(Stamped, frozen=True, rename="camel"):
    """The first chunks may be missing: the completed item has the whole output."""

    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""
    delta: str = ""


class TerminalInteractionNotification(Stamped, frozen=True, rename="camel"):
    """The model typed into a running command."""

    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""
    process_id: str = ""
    stdin: str = ""


class FileChangeOutputDeltaNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""
    delta: str = ""


class FileChangePatchUpdatedNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""
    changes: list[FileUpdateChange] = []


class McpToolCallProgressNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""
    message: str = ""


class McpServerStatusUpdatedNotification(Stamped, frozen=True, rename="camel"):
    """``status``: starting, ready, failed, cancelled."""

    name: str = ""
    status: str = ""
    error: str | None = None
    thread_id: str | None = None


class AutoApprovalReviewNotification(Stamped, frozen=True, rename="camel"):
    """The reviewer model looks at an action (started or completed, see ``review``)."""

    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    review_id: str = ""
    target_item_id: str | None = None
    review: dict[str, Any] = {}


class HookNotification(Stamped, frozen=True, rename="camel"):
    """A hook of the user's started or completed (see ``run``)."""

    thread_id: str
    native_turn_id: str | None = msgspec.field(default=None, name="turnId")
    run: dict[str, Any] = {}


class ServerRequestResolvedNotification(Stamped, frozen=True, rename="camel"):
    """A question is closed: answered, or made void by an interrupt."""

    thread_id: str
    request_id: int | str


class ContextCompactedNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")


class ModelReroutedNotification(Stamped, frozen=True, rename="camel"):
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    from_model: str = ""
    to_model: str = ""
    reason: Any = None


class ErrorNotification(Stamped, frozen=True, rename="camel"):
    """With ``will_retry`` harmless; without, ``turn/completed`` with status failed follows."""

    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    error: TurnErrorDetails = TurnErrorDetails()
    will_retry: bool = False


class WarningNotification(Stamped, frozen=True, rename="camel"):
    message: str = ""
    thread_id: str | None = None


class ConfigWarningNotification(Stamped, frozen=True, rename="camel"):
    summary: str = ""
    details: str | None = None


class DeprecationNoticeNotification(Stamped, frozen=True, rename="camel"):
    summary: str = ""
    details: str | None = None


class AccountRateLimitsUpdatedNotification(Stamped, frozen=True, rename="camel"):
    rate_limits: dict[str, Any] = {}


class AccountUpdatedNotification(Stamped, frozen=True, rename="camel"):
    auth_mode: str | None = None
    plan_type: str | None = None


class RemoteControlStatusChangedNotification(Stamped, frozen=True, rename="camel"):
    status: str = ""
    server_name: str = ""


class ModelProviderNotification(Stamped, frozen=True, rename="camel"):
    """The provider's sign-in has run out, and is renewed in mid-turn. ``method`` tells the beginning from the end."""

    thread_id: str = ""
    native_turn_id: str = msgspec.field(default="", name="turnId")
    provider: str = ""
    message: str = ""
    method: str = ""


class OtherNotification(Stamped, frozen=True):
    """Something that is no part of a conversation: see ``WITHOUT_MEANING``."""

    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class ItemParams(msgspec.Struct, frozen=True, rename="camel"):
    """An item notification before its item is typed."""

    thread_id: str
    item: msgspec.Raw
    native_turn_id: str = msgspec.field(default="", name="turnId")


Notification: TypeAlias = (
    ThreadStartedNotification
    | ThreadStatusChangedNotification
    | ThreadNameUpdatedNotification
    | ThreadSettingsUpdatedNotification
    | ThreadGoalUpdatedNotification
    | ThreadTokenUsageUpdatedNotification
    | ThreadChangedNotification
    | TurnStartedNotification
    | TurnCompletedNotification
    | TurnDiffUpdatedNotification
    | TurnPlanUpdatedNotification
    | ItemStartedNotification
    | ItemCompletedNotification
    | AgentMessageDeltaNotification
    | PlanDeltaNotification
    | ReasoningSummaryPartAddedNotification
    | ReasoningSummaryTextDeltaNotification
    | ReasoningTextDeltaNotification
    | CommandExecutionOutputDeltaNotification
    | TerminalInteractionNotification
    | FileChangeOutputDeltaNotification
    | FileChangePatchUpdatedNotification
    | McpToolCallProgressNotification
    | McpServerStatusUpdatedNotification
    | AutoApprovalReviewNotification
    | HookNotification
    | ServerRequestResolvedNotification
    | ContextCompactedNotification
    | ModelReroutedNotification
    | ErrorNotification
    | WarningNotification
    | ConfigWarningNotification
    | DeprecationNoticeNotification
    | AccountRateLimitsUpdatedNotification
    | AccountUpdatedNotification
    | RemoteControlStatusChangedNotification
    | ModelProviderNotification
    | OtherNotification
)
AppEvent: TypeAlias = Notification | Question | CallReply | CallRefusal | UnknownMessage | Exited | Stalled
"""Everything a thread of the app-server can yield."""

NOTIFICATIONS: dict[str, type[Any]] = {
    "error": ErrorNotification,
    "thread/started": ThreadStartedNotification,
    "thread/status/changed": ThreadStatusChangedNotification,
    "thread/name/updated": ThreadNameUpdatedNotification,
    "thread/settings/updated": ThreadSettingsUpdatedNotification,
    "thread/goal/updated": ThreadGoalUpdatedNotification,
    "thread/tokenUsage/updated": ThreadTokenUsageUpdatedNotification,
    "thread/compacted": ContextCompactedNotification,
    "thread/archived": ThreadChangedNotification,
    "thread/unarchived": ThreadChangedNotification,
    "thread/deleted": ThreadChangedNotification,
    "thread/closed": ThreadChangedNotification,
    "thread/reverted": ThreadChangedNotification,
    "thread/goal/cleared": ThreadChangedNotification,
    "thread/readState/changed": ThreadChangedNotification,
    "thread/queue/changed": ThreadChangedNotification,
    "turn/started": TurnStartedNotification,
    "turn/completed": TurnCompletedNotification,
    "turn/diff/updated": TurnDiffUpdatedNotification,
    "turn/plan/updated": TurnPlanUpdatedNotification,
    "item/started": ItemParams,
    "item/completed": ItemParams,
    "item/agentMessage/delta": AgentMessageDeltaNotification,
    "item/plan/delta": PlanDeltaNotification,
    "item/reasoning/summaryPartAdded": ReasoningSummaryPartAddedNotification,
    "item/reasoning/summaryTextDelta": ReasoningSummaryTextDeltaNotification,
    "item/reasoning/textDelta": ReasoningTextDeltaNotification,
    "item/commandExecution/outputDelta": CommandExecutionOutputDeltaNotification,
    "item/commandExecution/terminalInteraction": TerminalInteractionNotification,
    "item/fileChange/outputDelta": FileChangeOutputDeltaNotification,
    "item/fileChange/patchUpdated": FileChangePatchUpdatedNotification,
    "item/mcpToolCall/progress": McpToolCallProgressNotification,
    "item/autoApprovalReview/started": AutoApprovalReviewNotification,
    "item/autoApprovalReview/completed": AutoApprovalReviewNotification,
    "hook/started": HookNotification,
    "hook/completed": HookNotification,
    "mcpServer/startupStatus/updated": McpServerStatusUpdatedNotification,
    "serverRequest/resolved": ServerRequestResolvedNotification,
    "model/rerouted": ModelReroutedNotification,
    "warning": WarningNotification,
    "guardianWarning": WarningNotification,
    "configWarning": ConfigWarningNotification,
    "deprecationNotice": DeprecationNoticeNotification,
    "account/rateLimits/updated": AccountRateLimitsUpdatedNotification,
    "account/updated": AccountUpdatedNotification,
    "remoteControl/status/changed": RemoteControlStatusChangedNotification,
    "modelProvider/authRecoveryStarted": ModelProviderNotification,
    "modelProvider/authRecoveryCompleted": ModelProviderNotification,
}

WITHOUT_MEANING = frozenset(
    {
        "account/gatewayOAuth/changed", "account/login/completed", "app/list/updated",
        "autoApprovalReview/strictReviewRequired", "command/exec/outputDelta", "externalAgentConfig/import/completed",
        "externalAgentConfig/import/progress", "fs/changed", "fuzzyFileSearch/sessionCompleted",
        "fuzzyFileSearch/sessionUpdated", "mcpServer/event/stream/notification", "mcpServer/oauthLogin/completed",
        "model/safetyBuffering/updated", "model/verification", "process/exited", "process/outputDelta",
        "project/changed", "skills/changed", "thread/attachment/updated", "thread/environment/connected",
        "thread/environment/disconnected", "thread/prediction/updated", "thread/project/updated",
        "thread/realtime/closed", "thread/realtime/error", "thread/realtime/item/completed",
        "thread/realtime/item/started", "thread/realtime/item/transcript/delta", "thread/realtime/itemAdded",
        "thread/realtime/outputAudio/delta", "thread/realtime/sdp", "thread/realtime/started",
        "thread/realtime/transcript/delta", "thread/realtime/transcript/done", "turn/moderationMetadata",
        "windows/worldWritableWarning", "windowsSandbox/setupCompleted",
    }
)  # fmt: skip
"""Notifications of the published schema that say nothing of a conversation: settings, sign-in, files watched, voices,
calls of other clients. ``tests/live/test_schemas.py`` compares with the schema that the installed Codex prints."""

Piece: TypeAlias = (
    AgentMessageDeltaNotification
    | PlanDeltaNotification
    | ReasoningSummaryPartAddedNotification
    | ReasoningSummaryTextDeltaNotification
    | ReasoningTextDeltaNotification
    | CommandExecutionOutputDeltaNotification
    | FileChangeOutputDeltaNotification
    | McpToolCallProgressNotification
)
PIECES: frozenset[type] = frozenset(get_args(Piece))
"""The bulk of a stream: pieces of an item, which change nothing in the state of a thread."""

_DECODERS = {method: msgspec.json.Decoder(shape) for method, shape in NOTIFICATIONS.items()}


def decode(message: bytes, method: str, params: msgspec.Raw) -> Notification | UnknownMessage:
    """Type one notification; ``message`` is the whole line, kept when it has no type. Never raises on content."""
    decoder = _DECODERS.get(method)
    if decoder is None:
        if method in WITHOUT_MEANING:
            return OtherNotification(method, params)
        return UnknownMessage(message, f"unknown notification {method!r}")
    if decoder.type in PIECES:
        try:
            return cast("Piece", decoder.decode(params))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # the forgiving way, as for all others
    decode_params = decode_question if decoder.type is FileChangePatchUpdatedNotification else decode_or_reason
    value = decode_params(decoder, params)
    if isinstance(value, str):
        return UnknownMessage(message, f"{method}: {value}")
    if isinstance(value, ItemParams):
        item = decode_item(bytes(value.item))
        shape = ItemStartedNotification if method == "item/started" else ItemCompletedNotification
        return shape(value.thread_id, value.native_turn_id, item)
    if isinstance(value, ThreadChangedNotification):
        return ThreadChangedNotification(value.thread_id, method)
    if isinstance(value, ModelProviderNotification):
        return msgspec.structs.replace(value, method=method)
    typed: Notification = value
    return typed
