"""Claude Code's events, translated one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, assert_never, cast

import msgspec

from ...agents.claude import blocks
from ...agents.claude import events as cli
from ...agents.claude.blocks import ClaudeUsage
from ...agents.claude.events import StreamEvent
from ...transports.launch import Exited, Stalled
from ...unified.events import (
    Error,
    Event,
    Init,
    Notice,
    PermissionRequest,
    Retry,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolName,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
    stalled,
)
from ...unified.faults import kind_of
from ...unified.images import image_notice, that_fit
from ...unified.settings import AgentCommand, AgentReport
from ...unified.tools import operation_of
from ...wire import shapes
from .limits import limit_notice, with_quota
from .tool_results import EDITORS, TodoPlan, change_in, images_of, outcome_of, shown_in
from .tools import RENAMED, name_of, target_of
from .turn_results import ApiFault, ClaudeSpending, Ending, broken_ending, ending_of

SYNTHETIC, NO_CONTENT = "<synthetic>", "(no content)"
"""The message that Claude Code makes up when the model sent no text."""
CHOICES = ("allow_once", "allow_always", "reject_once")


class OpenCall(msgspec.Struct, gc=False):
    """A call that has no result yet."""

    name: ToolName
    native_name: str
    input: dict[str, Any]


class ClaudeDictionary:
    """``prompted``: the session starts the turns; else (a recording) the agent's own ``init`` does.

    ``resumed``: the session continues a stored one, which Claude Code does not say itself.
    """

    def __init__(self, *, prompted: bool = False, resumed: bool = False) -> None:
        self.asks_for_servers = False
        """What tool servers ask is asked about; else it was declined."""
        self.prompted = prompted
        self.resumed = resumed
        self.report = AgentReport()
        self._main = Deltas()
        self._threads: dict[str, Deltas] = {}
        self._spending = ClaudeSpending()
        self._todos = TodoPlan()
        self._calls: dict[str, OpenCall] = {}
        self._refused: set[str] = set()
        self._questioned: set[str] = set()
        self._denied: set[str] = set()
        self._agents: dict[str, str] = {}  # a sub-agent's task → the call that started it
        self._servers: dict[str, str] = {}
        self._introduced = False
        self._in_turn = False
        self._fault: ApiFault | None = None
        self._ending: Ending | None = None
        self._results = 0
        self._structured: Any = None
        self._duration: float | None = None
        self._wants_structure = False
        self._text_length = 0  # how much text has come since the last call or result

    # --------------------------------------------------------------------------------------------- from the driver

    def refuse(self, tool_use_id: str) -> None:
        """This call was refused by a hook of ours, which the result will not say."""
        self._refused.add(tool_use_id)

    def request(self, question: cli.CanUseTool) -> PermissionRequest:
        """A question of Claude Code's, in our words."""
        name = name_of(question.tool_name)
        return PermissionRequest(
            request_id=question.request_id,
            tool_use_id=question.tool_use_id,
            tool_name=name,
            native_name=question.tool_name,
            operation=operation_of(name),
            target=target_of(name, question.tool_name, question.input) or question.blocked_path or "",
            input=question.input,
            description=question.description or question.title or question.decision_reason or "",
            choices=list(CHOICES),
            parent_tool_use_id=self._agents.get(question.agent_id or ""),
        )

    # ------------------------------------------------------------------------------------------- from Claude Code

    def translate(self, native: cli.Event) -> list[Event]:
        translate = _BY_KIND.get(type(native))
        return self._notice(cast("cli.Notice", native)) if translate is None else translate(self, native)

    def _nothing(self, native: object) -> list[Event]:
        return []

    def _response(self, native: cli.ControlResponse) -> list[Event]:
        if native.ok:
            return []
        return [Notice(level="warning", code="request_refused", message=native.response.error)]

    def elicitation(self, question: cli.Elicitation) -> PermissionRequest:
        """What an MCP server asks the user. Allowed with ``updated_input={"content": …}``, it is answered."""
        form = {"message": question.message, "schema": question.requested_schema, "url": question.url}
        return PermissionRequest(
            request_id=question.request_id,
            tool_name="question",
            native_name="elicitation",
            operation=operation_of("question"),
            target=question.message or question.url or "",
            input={name: value for name, value in form.items() if value},
            description=f"{question.mcp_server_name}: {question.message}",
        )

    def _elicitation(self, native: cli.Elicitation) -> list[Event]:
        if self.asks_for_servers:
            return []
        words = f"{native.mcp_server_name} asked for input and was declined: {native.message}"
        return [Notice(level="warning", code="elicitation_declined", message=words)]

    def _dialog(self, native: cli.RequestUserDialog) -> list[Event]:
        return [Notice(level="info", code="dialog_cancelled", message=native.dialog_kind)]

    def _question(self, native: cli.CanUseTool | cli.HookCallback) -> list[Event]:
        if native.tool_use_id and (not self.prompted or isinstance(native, cli.CanUseTool)):
            self._questioned.add(native.tool_use_id)
        return []

    def _stalled(self, native: Stalled) -> list[Event]:
        if self.prompted and self._questioned:
            return []  # it waits for an answer of ours
        return [stalled(native.seconds)]

    def _unknown(self, native: shapes.UnknownMessage) -> list[Event]:
        return [Unrecognized(raw=native.raw.decode("utf-8", "replace"), why=native.why)]

    def _thread(self, parent: str | None) -> Deltas:
        if parent is None:
            return self._main
        thread = self._threads.get(parent)
        if thread is None:
            thread = self._threads[parent] = Deltas(parent)
        return thread

    def _step(self, native: StreamEvent) -> list[Event]:
        parent, step = native.parent_tool_use_id, native.event
        thread = self._main if parent is None else self._thread(parent)
        if type(step) is blocks.ContentBlockDelta:  # the bulk of a stream
            return thread.piece(step.delta)
        if isinstance(step, blocks.MessageDelta) and step.usage is not None:
            return [self._spending.call(thread.call, step.usage)]
        return thread.step(step)

    def _init(self, native: cli.SystemInit) -> list[Event]:
        self._introduced = True
        commands = tuple(AgentCommand(name=name) for name in native.slash_commands)
        self.report = msgspec.structs.replace(self.report, commands=commands)
        self._wants_structure = "StructuredOutput" in native.tools
        out: list[Event] = [
            Init(
                model=native.model,
                cwd=native.cwd,
                tools=[RENAMED.get(name, name) for name in native.tools],
                agent_version=native.claude_code_version,
                native_session_id=native.session_id,
                resumed=self.resumed,
            )
        ]
        for server in native.mcp_servers:
            if self._servers.get(server.name) != server.status:
                self._servers[server.name] = server.status
                if server.status != "connected":
                    words = f"MCP server {server.name!r} is not connected ({server.status}): its tools are missing"
                    out.append(Notice(level="warning", code="mcp_server", message=words))
        if not self._in_turn and not self.prompted:
            out.append(TurnStarted())
        self._in_turn = True
        return out

    # ------------------------------------------------------------------------------------------------------- messages

    def _assistant(self, native: cli.Assistant) -> list[Event]:
        parent, message = native.parent_tool_use_id, native.message
        if native.error is not None:
            words = "\n".join(block.text for block in message.blocks() if isinstance(block, blocks.TextBlock))
            return self._failed(ApiFault(native.error, words), parent)
        thread = self._main if parent is None else self._thread(parent)
        out: list[Event] = []
        for block in message.blocks():
            out += BY_BLOCK[type(block)](self, block, message, thread)
        return out

    def _text_block(self, block: blocks.TextBlock, message: blocks.ApiMessage, thread: Deltas) -> list[Event]:
        out = thread.repetition_notice()
        thread.drop()
        if block.text and (block.text != NO_CONTENT or message.model != SYNTHETIC):
            self._text_length += len(block.text)
            out.append(Text(text=block.text, message_id=message.id, parent_tool_use_id=thread.parent))
        return out

    def _thinking_block(self, block: blocks.ThinkingBlock, message: blocks.ApiMessage, thread: Deltas) -> list[Event]:
        out = thread.repetition_notice()
        thread.drop()
        if block.thinking:
            out.append(Thinking(text=block.thinking, parent_tool_use_id=thread.parent))
        return out

    def _repeated_result(
        self, block: blocks.ToolResultBlock, message: blocks.ApiMessage, thread: Deltas
    ) -> list[Event]:
        return self._finished(block, None, thread.parent)

    def _unknown_block(self, block: shapes.UnknownMessage, *_: object) -> list[Event]:
        return self._unknown(block)

    def _image(self, block: blocks.ImageBlock, message: blocks.ApiMessage, thread: Deltas) -> list[Event]:
        return [image_notice(image, thread.parent) for image in shown_in(block)]

    def _for_the_model(self, block: object, *_: object) -> list[Event]:
        return []  # a document, a thought that nobody may read

    def _failed(self, fault: ApiFault, parent: str | None) -> list[Event]:
        if parent is None:
            self._fault = fault  # reported with the result, which knows whether the turn ended by it
            return []
        return [Error(kind=kind_of(fault.message), message=fault.message, parent_tool_use_id=parent)]

    def _called(
        self, block: blocks.ToolUseBlock | blocks.ServerToolUseBlock, message: blocks.ApiMessage, thread: Deltas
    ) -> list[Event]:
        thread.drop()
        self._text_length = 0
        name = name_of(block.name)
        self._calls[block.id] = OpenCall(name, block.name, block.input)
        description = block.input.get("description")
        return [
            ToolUse(
                tool_use_id=block.id,
                name=name,
                native_name=block.name,
                input=block.input,
                operation=operation_of(name),
                target=target_of(name, block.name, block.input),
                description=description if isinstance(description, str) else "",
                parent_tool_use_id=thread.parent,
            )
        ]

    def _served(self, block: blocks.ServerToolResultBlock, message: blocks.ApiMessage, thread: Deltas) -> list[Event]:
        """The result of a call that the API carried out itself."""
        call = self._calls.pop(block.tool_use_id, None)
        content: object = msgspec.json.decode(block.content)
        failed = isinstance(content, dict) and "error_code" in content
        return [
            ToolResult(
                tool_use_id=block.tool_use_id,
                name=call.name if call is not None else "other",
                status="error" if failed else "success",
                output=bytes(block.content).decode("utf-8", "replace"),
                parent_tool_use_id=thread.parent,
            )
        ]

    def _user(self, native: cli.User) -> list[Event]:
        if native.is_replay or native.is_synthetic:
            return []
        content = native.message.text_or_blocks()
        if isinstance(content, str):
            return _local(content)
        out: list[Event] = []
        for block in content:  # else a sub-agent's prompt, or the note of an interruption, which the result reports too
            if type(block) is blocks.ToolResultBlock:
                out += self._finished(block, native, native.parent_tool_use_id)
            elif type(block) is shapes.UnknownMessage:
                out += self._unknown(block)
        return out

    def _finished(self, block: blocks.ToolResultBlock, native: cli.User | None, parent: str | None) -> list[Event]:
        call = self._calls.pop(block.tool_use_id, None) or OpenCall("other", "", {})
        report = blocks.NOTHING if native is None else native.tool_use_result
        denied = questioned = False
        if block.tool_use_id in self._refused:
            denied = True
            self._refused.remove(block.tool_use_id)
        if block.tool_use_id in self._questioned:
            questioned = not self.prompted  # a recording may not show the answer; a session knows it
            self._questioned.remove(block.tool_use_id)
        self._text_length = 0
        outcome = outcome_of(
            call.native_name, block, report, denied=denied, questioned=questioned, recorded=not self.prompted
        )
        if outcome.status == "denied":
            self._denied.add(block.tool_use_id)
        out: list[Event] = []
        if outcome.status == "success":
            if call.native_name in EDITORS:
                change = change_in(call.native_name, call.input, report, outcome.output, block.tool_use_id)
                if change is not None:
                    msgspec.structs.force_setattr(change, "parent_tool_use_id", parent)
                    out.append(change)
            elif call.name == "plan" and parent is None:
                plan = self._todos.after(call.native_name, call.input, report)
                if plan is not None:
                    out.append(plan)
        out.append(
            ToolResult(
                tool_use_id=block.tool_use_id,
                name=call.name,
                status=outcome.status,
                output=outcome.output,
                exit_code=outcome.exit_code,
                duration_ms=outcome.duration_ms,
                images=[] if isinstance(block.content, str) else that_fit(images_of(block)),
                parent_tool_use_id=parent,
            )
        )
        return out

    def _status(self, native: cli.SystemStatus) -> list[Event]:
        if native.permission_mode is not None:
            return [Notice(level="info", code="mode", message=native.permission_mode)]
        if native.status == "compacting":
            return [Notice(level="info", code="compacting", message="the conversation is being summarized")]
        if native.compact_error:
            return [Notice(level="warning", code="compaction_failed", message=native.compact_error)]
        return []

    def _notice(self, native: cli.Notice) -> list[Event]:
        match native:
            case cli.PermissionDenied():
                self._refused.add(native.tool_use_id)
            case cli.ApiRetry() | cli.ModelFallback():
                out = self._main.break_off()
                self._main.expect_repetition(self._text_length)
                self._text_length = 0
                return [*out, *_notice_events(native)]
            case cli.RateLimitEvent():
                quotas = with_quota(self.report.quotas, native.rate_limit_info)
                self.report = msgspec.structs.replace(self.report, quotas=quotas)
            case cli.TaskStarted():
                if native.tool_use_id is not None:
                    self._agents[native.task_id] = native.tool_use_id
            case cli.TaskNotification():
                if native.tool_use_id not in self._calls:  # its call has its result already: it ran in the background
                    words = f"{native.status}: {native.summary}"
                    well = native.status == "completed"
                    return [Notice(level="info" if well else "warning", code="background_task", message=words)]
            case _:
                pass
        return _notice_events(native)

    # ---------------------------------------------------------------------------------------------------------- turns

    def _note_context(self, native: cli.ClaudeResult) -> None:
        call = self._main.call
        used = call.input_tokens + (call.cache_creation_input_tokens or 0) + (call.cache_read_input_tokens or 0)
        size = max((model.context_window for model in native.model_usage.values()), default=0)
        if used and size:
            self.report = msgspec.structs.replace(self.report, context_used=used, context_size=size)

    def _result(self, native: cli.ClaudeResult) -> list[Event]:
        self._in_turn = True
        self._note_context(native)
        self._ending = ending_of(native, self._fault, wants_structure=self._wants_structure)
        self._fault = None
        self._text_length = 0
        self._results += 1
        self._structured = native.structured_output
        self._duration = native.duration_ms if self._results == 1 else None
        denials = [
            Notice(
                level="info", code="permission_denied", message=f"{denial.tool_name} was refused: {denial.tool_use_id}"
            )
            for denial in native.permission_denials
            if not self.prompted and denial.tool_use_id not in self._denied
        ]
        return [
            *self._introduction(native, self._ending),
            *self._main.flush(),
            *denials,
            *self._spending.result(native),
        ]

    def _introduction(self, native: cli.ClaudeResult, ending: Ending) -> list[Event]:
        """A turn may fail before ``init``. For a session that it cannot find, Claude Code makes an id up."""
        lost = any(isinstance(event, Error) and event.kind == "session_not_found" for event in ending.events)
        if self._introduced or lost or not native.session_id:
            return []
        self._introduced = True
        return [Init(native_session_id=native.session_id, resumed=self.resumed)]

    def _turn_settled(self, native: cli.TurnSettled) -> list[Event]:
        out = [event for thread in (self._main, *self._threads.values()) for event in thread.flush()]
        if native.unfinished:
            words = f"background tasks were still running when Claude Code exited: {', '.join(native.unfinished)}"
            out.append(Notice(level="warning", code="unfinished_tasks", message=words))
        ending = self._ending if native.result is not None else None
        if ending is None:
            ending = broken_ending()
        out += ending.events
        out.append(
            TurnCompleted(
                status=ending.status,
                usage=self._spending.settle(),
                result=ending.result,
                structured=self._structured,
                duration_ms=self._duration,
            )
        )
        self._threads.clear()
        self._calls.clear()
        for marks in (self._refused, self._questioned, self._denied):
            marks.clear()
        self._in_turn = False
        self._fault = self._ending = self._structured = self._duration = None
        self._results = 0
        return out

    def _exited(self, native: Exited) -> list[Event]:
        words = native.stderr.strip().splitlines()
        if not native.code or not words:
            return []
        message = f"Claude Code exited with code {native.code}: {words[-1]}"
        return [Notice(level="warning", code="exited", message=message)]


def _local(content: str) -> list[Event]:
    """What a slash command printed; the rest of what comes as plain text is for the model."""
    begin, end = "<local-command-stdout>", "</local-command-stdout>"
    if not content.startswith(begin):
        return []
    words = content.removeprefix(begin).removesuffix(end).strip()
    return [Notice(level="info", code="command_output", message=words)] if words else []


# ---------------------------------------------------------------------------- the model's stream, piece by piece


class Deltas:
    """The block that one thread of the conversation (the main one, or a sub-agent's) is streaming."""

    def __init__(self, parent: str | None = None) -> None:
        self.parent = parent
        self._message_id = ""
        self._kind = ""
        self._pieces: list[str] = []
        self._repeated = 0
        self.call = ClaudeUsage()

    def piece(self, delta: blocks.BlockDelta) -> list[Event]:
        if type(delta) is blocks.TextBlockDelta:
            text = delta.text
            if self._kind != "text":
                return self._begin("text", text)
            self._pieces.append(text)
            return [TextDelta(text=text, message_id=self._message_id, parent_tool_use_id=self.parent)]
        if type(delta) is blocks.ThinkingBlockDelta:
            text = delta.thinking
            if self._kind != "thinking":
                return self._begin("thinking", text)
            self._pieces.append(text)
            return [ThinkingDelta(text=text, parent_tool_use_id=self.parent)]
        return []  # a call's input, a signature, a citation: all come again with the whole block

    def step(self, step: blocks.StreamStep) -> list[Event]:
        match step:
            case blocks.MessageStart():
                out = self.break_off()
                self._message_id = step.message.id
                self.call = step.message.usage or ClaudeUsage()
                return out
            case blocks.ContentBlockStart():
                return self.flush()
            case _:
                return []

    def drop(self) -> None:
        """Claude Code itself sends the block as a whole."""
        self._kind = ""
        self._pieces = []

    def flush(self) -> list[Event]:
        """What came of an unfinished block, as a whole."""
        joined, kind = "".join(self._pieces), self._kind
        self.drop()
        if not joined:
            return []
        if kind == "text":
            return [Text(text=joined, message_id=self._message_id, parent_tool_use_id=self.parent)]
        return [Thinking(text=joined, parent_tool_use_id=self.parent)]

    def break_off(self) -> list[Event]:
        """The answer ends in the middle, and will be repeated: by a retry, or by another model."""
        size = sum(map(len, self._pieces))
        if size:
            self._repeated = size
        return self.flush()

    def expect_repetition(self, size: int) -> None:
        """The last ``size`` characters, which came as whole blocks, belong to an answer that will be repeated."""
        self._repeated = max(self._repeated, size)

    def repetition_notice(self) -> list[Event]:
        """Once, before an answer that may repeat what came already."""
        size, self._repeated = self._repeated, 0
        if not size:
            return []
        message = f"the answer broke off after {size} characters and starts again: what follows may repeat them"
        return [Notice(level="warning", code="text_repeated", message=message, parent_tool_use_id=self.parent)]

    def _begin(self, kind: str, text: str) -> list[Event]:
        out = [*self.flush(), *self.repetition_notice()]
        self._kind, self._pieces = kind, [text]
        if kind == "text":
            return [*out, TextDelta(text=text, message_id=self._message_id, parent_tool_use_id=self.parent)]
        return [*out, ThinkingDelta(text=text, parent_tool_use_id=self.parent)]


_BY_KIND: dict[type, Callable[[ClaudeDictionary, Any], list[Event]]] = {
    StreamEvent: ClaudeDictionary._step,
    cli.Assistant: ClaudeDictionary._assistant,
    cli.User: ClaudeDictionary._user,
    cli.SystemInit: ClaudeDictionary._init,
    cli.SystemStatus: ClaudeDictionary._status,
    cli.ClaudeResult: ClaudeDictionary._result,
    cli.TurnSettled: ClaudeDictionary._turn_settled,
    cli.ControlResponse: ClaudeDictionary._response,
    cli.ControlCancelRequest: ClaudeDictionary._nothing,
    cli.Elicitation: ClaudeDictionary._elicitation,
    cli.RequestUserDialog: ClaudeDictionary._dialog,
    cli.CanUseTool: ClaudeDictionary._question,
    cli.HookCallback: ClaudeDictionary._question,
    cli.McpMessage: ClaudeDictionary._nothing,
    Stalled: ClaudeDictionary._stalled,
    Exited: ClaudeDictionary._exited,
    shapes.UnknownMessage: ClaudeDictionary._unknown,
}
"""The kinds that are not mere notices. A table, as in the grammar: a ``match`` asks a struct for one class after the
other."""

BY_BLOCK: dict[type, Callable[[ClaudeDictionary, Any, blocks.ApiMessage, Deltas], list[Event]]] = {
    blocks.TextBlock: ClaudeDictionary._text_block,
    blocks.ThinkingBlock: ClaudeDictionary._thinking_block,
    blocks.ToolUseBlock: ClaudeDictionary._called,
    blocks.ServerToolUseBlock: ClaudeDictionary._called,
    blocks.ServerToolResultBlock: ClaudeDictionary._served,
    blocks.ToolResultBlock: ClaudeDictionary._repeated_result,
    blocks.RedactedThinkingBlock: ClaudeDictionary._for_the_model,
    blocks.ImageBlock: ClaudeDictionary._image,
    blocks.DocumentBlock: ClaudeDictionary._for_the_model,
    blocks.ToolReferenceBlock: ClaudeDictionary._for_the_model,
    shapes.UnknownMessage: ClaudeDictionary._unknown_block,
}
"""What the model's message is made of."""


# --------------------------------------------------------------------------------------- beside the conversation

_LEVELS: dict[str, Literal["info", "warning", "error"]] = {"warning": "warning", "error": "error"}


def _notice_events(notice: cli.Notice) -> list[Event]:
    match notice:
        case cli.ApiRetry():
            status = "" if notice.error_status is None else f" (HTTP {notice.error_status})"
            return [
                Retry(
                    attempt=notice.attempt,
                    max_attempts=notice.max_retries or None,
                    delay_ms=notice.retry_delay_ms,
                    reason=f"{notice.error or 'the model did not answer'}{status}",
                )
            ]
        case cli.ModelFallback():
            words = notice.content or f"{notice.original_model} is not available; {notice.fallback_model} continues"
            return [Notice(level="warning", code="model_fallback", message=words)]
        case cli.ModelRefusal():
            words = notice.content or notice.api_refusal_explanation or f"{notice.original_model} refused to answer"
            return [Notice(level="warning", code="model_refusal", message=words)]
        case cli.PermissionDenied():
            return [Notice(level="info", code="permission_denied", message=f"{notice.tool_name}: {notice.message}")]
        case cli.CompactBoundary():
            figures = notice.compact_metadata
            after = "" if figures.post_tokens is None else f" → {figures.post_tokens}"
            words = f"the conversation was summarized ({figures.trigger}): {figures.pre_tokens}{after} tokens"
            return [Notice(level="info", code="compacted", message=words)]
        case cli.HookResponse():
            if not notice.exit_code and notice.outcome in ("", "success"):
                return []
            words = notice.stderr.strip() or notice.output.strip() or notice.outcome
            return [Notice(level="warning", code="hook_failed", message=f"{notice.hook_name}: {words}")]
        case cli.RateLimitEvent():
            return limit_notice(notice.rate_limit_info)
        case cli.AuthStatus():
            return [] if notice.error is None else [Notice(level="error", code="sign_in", message=notice.error)]
        case cli.PromptSuggestion():
            return [Notice(level="info", code="prompt_suggestion", message=notice.suggestion)]
        case cli.SystemNotice():
            return [Notice(level=_LEVELS.get(notice.level or "", "info"), code=notice.subtype, message=notice.words())]
        case (
            cli.ThinkingTokens()
            | cli.HookStarted()
            | cli.HookProgress()
            | cli.SessionStateChanged()
            | cli.ClaudeToolProgress()  # only how long it has been running
            | cli.ToolUseSummary()
            | cli.KeepAlive()
            | cli.ClaudeStateNotice()
            | cli.TaskStarted()
            | cli.TaskProgress()  # the sub-agent's own calls come themselves
            | cli.TaskUpdated()
            | cli.TaskNotification()
            | cli.SystemStatus()  # has a rule of its own
        ):
            return []
        case _:
            assert_never(notice)
