"""The items of the app-server's threads, in its own words (camelCase on the wire, snake_case here)."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ...wire.shapes import Shapes, Unrecognized


class UserMessageThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    content: list[msgspec.Raw] = []
    client_id: str | None = None

    @property
    def text(self) -> str:
        parts = [part for raw in self.content if isinstance(part := USER_INPUT.decode(bytes(raw)), TextUserInput)]
        return "\n".join(part.text for part in parts)


class TextUserInput(msgspec.Struct, frozen=True):
    text: str = ""


class ImageUserInput(msgspec.Struct, frozen=True):
    url: str = ""


class LocalImageUserInput(msgspec.Struct, frozen=True):
    path: str = ""


UserInput: TypeAlias = TextUserInput | ImageUserInput | LocalImageUserInput

USER_INPUT: Shapes[UserInput] = Shapes(
    {"text": TextUserInput, "image": ImageUserInput, "localImage": LocalImageUserInput}
)


class HookPromptThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    fragments: list[Any] = []


class AgentMessageThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    """``phase``: commentary, or none for the answer. ``text`` is empty in ``item/started``."""

    id: str = ""
    text: str = ""
    phase: str | None = None
    questions: list[Any] | None = None


class PlanThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    """The plan proposed in plan mode (steps of a running turn come as ``turn/plan/updated``)."""

    id: str = ""
    text: str = ""


class ReasoningThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    summary: list[str] = []
    content: list[str] = []

    @property
    def words(self) -> str:
        return "\n".join(self.summary or self.content)


class CommandExecutionThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    """``status``: inProgress, completed, failed, declined. Trust ``aggregated_output``, not the deltas."""

    id: str = ""
    command: str = ""
    cwd: str = ""
    status: str = ""
    source: str = ""
    process_id: str | None = None
    command_actions: list[Any] = []
    aggregated_output: str | None = None
    exit_code: int | None = None
    duration_ms: float | None = None


class PatchChangeKind(msgspec.Struct, frozen=True):
    """``type``: add, delete, update. ``move_path`` (snake_case on the wire too) is set for a rename."""

    type: str = ""
    move_path: str | None = None


class FileUpdateChange(msgspec.Struct, frozen=True):
    """``diff`` is the whole content for an added or deleted file, unified hunks for an updated one."""

    path: str = ""
    kind: PatchChangeKind = PatchChangeKind()
    diff: str = ""


class FileChangeThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    changes: list[FileUpdateChange] = []
    status: str = ""


class McpToolCallError(msgspec.Struct, frozen=True):
    message: str = ""


class McpToolCallResult(msgspec.Struct, frozen=True, rename="camel"):
    content: list[Any] = []
    structured_content: Any = None


class McpToolCallThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    server: str = ""
    tool: str = ""
    status: str = ""
    arguments: Any = None
    result: McpToolCallResult | None = None
    error: McpToolCallError | None = None
    read_only_hint: bool | None = None
    duration_ms: float | None = None


class DynamicToolCallThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    """A call of a tool that the client itself offered."""

    id: str = ""
    tool: str = ""
    namespace: str | None = None
    arguments: Any = None
    status: str = ""
    content_items: list[Any] | None = None
    success: bool | None = None
    duration_ms: float | None = None


class FunctionCallOutputThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    name: str = ""
    namespace: str | None = None
    output: Any = None


class CollabAgentState(msgspec.Struct, frozen=True):
    """``status``: pendingInit, running, completed, errored, shutdown, notFound."""

    status: str = ""
    message: str | None = None


class CollabAgentToolCallThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    """``tool``: spawnAgent, sendInput, wait, closeAgent. The receivers are threads on the same pipe."""

    id: str = ""
    tool: str = ""
    status: str = ""
    sender_thread_id: str = ""
    receiver_thread_ids: list[str] = []
    prompt: str | None = None
    model: str | None = None
    agents_states: dict[str, CollabAgentState] = {}


class SubAgentActivityThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    """A sub-agent of the second kind. ``kind``: started, interacted, interrupted, completed."""

    id: str = ""
    kind: str = ""
    agent_path: str = ""
    agent_thread_id: str = ""
    model: str | None = None


class WebSearchThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    query: str = ""
    action: Any = None
    results: list[Any] | None = None


class ImageViewThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    path: str = ""


class ImageGenerationThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    status: str = ""
    result: str = ""
    saved_path: str | None = None


class SleepThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    duration_ms: float = 0


class EnteredReviewModeThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    review: str = ""


class ExitedReviewModeThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    review: str = ""


class ContextCompactionThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""


ThreadItem: TypeAlias = (
    UserMessageThreadItem
    | HookPromptThreadItem
    | AgentMessageThreadItem
    | PlanThreadItem
    | ReasoningThreadItem
    | CommandExecutionThreadItem
    | FileChangeThreadItem
    | McpToolCallThreadItem
    | DynamicToolCallThreadItem
    | FunctionCallOutputThreadItem
    | CollabAgentToolCallThreadItem
    | SubAgentActivityThreadItem
    | WebSearchThreadItem
    | ImageViewThreadItem
    | ImageGenerationThreadItem
    | SleepThreadItem
    | EnteredReviewModeThreadItem
    | ExitedReviewModeThreadItem
    | ContextCompactionThreadItem
)

SHAPES: Shapes[ThreadItem] = Shapes(
    {
        "userMessage": UserMessageThreadItem,
        "hookPrompt": HookPromptThreadItem,
        "agentMessage": AgentMessageThreadItem,
        "plan": PlanThreadItem,
        "reasoning": ReasoningThreadItem,
        "commandExecution": CommandExecutionThreadItem,
        "fileChange": FileChangeThreadItem,
        "mcpToolCall": McpToolCallThreadItem,
        "dynamicToolCall": DynamicToolCallThreadItem,
        "functionCallOutput": FunctionCallOutputThreadItem,
        "collabAgentToolCall": CollabAgentToolCallThreadItem,
        "subAgentActivity": SubAgentActivityThreadItem,
        "webSearch": WebSearchThreadItem,
        "imageView": ImageViewThreadItem,
        "imageGeneration": ImageGenerationThreadItem,
        "sleep": SleepThreadItem,
        "enteredReviewMode": EnteredReviewModeThreadItem,
        "exitedReviewMode": ExitedReviewModeThreadItem,
        "contextCompaction": ContextCompactionThreadItem,
    }
)


def decode(raw: bytes) -> ThreadItem | Unrecognized:
    return SHAPES.decode(raw)
