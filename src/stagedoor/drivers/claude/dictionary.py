"""Claude Code's events, translated one by one."""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from ...agents.claude import blocks, notices, requests
from ...agents.claude import events as native_events
from ...agents.claude.events import Assistant, Result, StreamEvent, SystemInit, TurnSettled, User
from ...agents.claude.events import Event as NativeEvent
from ...transports.launch import Exited, Stalled
from ...unified.events import (
    Error,
    Event,
    Init,
    Notice,
    PermissionRequest,
    Text,
    Thinking,
    ToolName,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
    stalled,
)
from ...unified.faults import kind_of
from ...unified.tools import operation_of
from ...wire import shapes
from .deltas import Deltas
from .edits import EDITORS, change_in
from .endings import Ending, Fault, broken, ending_of
from .notices import told
from .outcomes import outcome_of
from .plan import TodoList
from .spending import Spending
from .tools import name_of, target_of

SYNTHETIC, NO_CONTENT = "<synthetic>", "(no content)"
"""What Claude Code puts in the model's mouth when it has said nothing."""
CHOICES = ("allow_once", "allow_always", "reject_once")


class _Call(msgspec.Struct, gc=False):
    """A call that has no result yet."""

    name: ToolName
    native_name: str
    input: dict[str, Any]


class ClaudeDictionary:
    """``prompted``: somebody else says when a turn starts; else (a recording) the agent's own ``init`` does.

    ``resumed``: the session goes on with a stored one, which Claude Code does not say itself.
    """

    def __init__(self, *, prompted: bool = False, resumed: bool = False) -> None:
        self.prompted = prompted
        self.resumed = resumed
        self._main = Deltas()
        self._threads: dict[str, Deltas] = {}
        self._spending = Spending()
        self._todos = TodoList()
        self._calls: dict[str, _Call] = {}
        self._refused: set[str] = set()
        self._asked: set[str] = set()
        self._told_denied: set[str] = set()
        self._agents: dict[str, str] = {}  # a sub-agent's task → the call that started it
        self._servers: dict[str, str] = {}
        self._introduced = False
        self._in_turn = False
        self._fault: Fault | None = None
        self._ending: Ending | None = None
        self._results = 0
        self._structured: Any = None
        self._duration: float | None = None
        self._wants_structure = False
        self._last_words = 0  # how much text has come since the last call or result

    # ------------------------------------------------------------------------------------------- what the driver tells

    def refuse(self, tool_use_id: str) -> None:
        """This call was refused by a hook of ours, which the result will not say."""
        self._refused.add(tool_use_id)

    def request(self, asked: requests.CanUseTool) -> PermissionRequest:
        """A question of Claude Code's, in our words."""
        name = name_of(asked.tool_name)
        return PermissionRequest(
            request_id=asked.request_id,
            tool_use_id=asked.tool_use_id,
            tool_name=name,
            native_name=asked.tool_name,
            operation=operation_of(name),
            target=target_of(name, asked.tool_name, asked.input) or asked.blocked_path or "",
            input=asked.input,
            description=asked.description or asked.title or asked.decision_reason or "",
            choices=list(CHOICES),
            parent_tool_use_id=self._agents.get(asked.agent_id or ""),
        )

    # --------------------------------------------------------------------------------------------------- what is heard

    def translate(self, native: NativeEvent) -> list[Event]:
        if type(native) is StreamEvent:  # the bulk of a stream, before the long way through the table
            parent = native.parent_tool_use_id
            thread = self._main if parent is None else self._thread(parent)
            pieces = thread.piece(native)
            return self._step(thread, native) if pieces is None else pieces
        match native:
            case StreamEvent():
                return self._step(self._thread(native.parent_tool_use_id), native)
            case Assistant():
                return self._said(native)
            case User():
                return self._answered(native)
            case SystemInit():
                return self._init(native)
            case Result():
                return self._result(native)
            case TurnSettled():
                return self._settled(native)
            case native_events.ControlResponse():
                if native.ok:
                    return []
                return [Notice(level="warning", code="request_refused", message=native.response.error)]
            case requests.Elicitation():
                words = f"{native.mcp_server_name} asks for input, which was declined: {native.message}"
                return [Notice(level="warning", code="elicitation_declined", message=words)]
            case requests.RequestUserDialog():
                return [Notice(level="info", code="dialog_cancelled", message=native.dialog_kind)]
            case requests.CanUseTool() | requests.HookCallback():
                if native.tool_use_id and (not self.prompted or isinstance(native, requests.CanUseTool)):
                    self._asked.add(native.tool_use_id)
                return []
            case requests.McpMessage() | native_events.ControlCancelRequest():
                return []
            case Stalled():
                if self.prompted and self._asked:
                    return []  # it waits for an answer of ours
                return [stalled(native.seconds)]
            case Exited():
                return self._exited(native)
            case shapes.Unrecognized():
                return [Unrecognized(raw=native.raw.decode("utf-8", "replace"), why=native.why)]
            case (
                notices.SystemStatus() | notices.ThinkingTokens() | notices.ApiRetry() | notices.ModelFallback()
                | notices.ModelRefusal() | notices.PermissionDenied() | notices.CompactBoundary()
                | notices.HookStarted() | notices.HookProgress() | notices.HookResponse()
                | notices.SessionStateChanged() | notices.SystemNotice() | notices.RateLimitEvent()
                | notices.ToolProgress() | notices.ToolUseSummary() | notices.AuthStatus()
                | notices.PromptSuggestion() | notices.KeepAlive() | notices.TaskStarted()
                | notices.TaskProgress() | notices.TaskUpdated() | notices.TaskNotification()
            ):  # fmt: skip
                return self._noted(native)
            case _:
                assert_never(native)

    def _thread(self, parent: str | None) -> Deltas:
        if parent is None:
            return self._main
        thread = self._threads.get(parent)
        if thread is None:
            thread = self._threads[parent] = Deltas(parent)
        return thread

    def _step(self, thread: Deltas, native: StreamEvent) -> list[Event]:
        step = native.step()
        if isinstance(step, blocks.MessageDelta) and step.usage is not None:
            return [self._spending.call(thread.call, step.usage)]
        return thread.step(step)

    def _init(self, native: SystemInit) -> list[Event]:
        self._introduced = True
        self._wants_structure = "StructuredOutput" in native.tools
        out: list[Event] = [
            Init(
                model=native.model,
                cwd=native.cwd,
                tools=native.tools,
                agent_version=native.claude_code_version,
                native_session_id=native.session_id,
                resumed=self.resumed,
            )
        ]
        for server in native.mcp_servers:
            if self._servers.get(server.name) != server.status:
                self._servers[server.name] = server.status
                if server.status != "connected":
                    words = f"the MCP server {server.name} is {server.status}; its tools are missing"
                    out.append(Notice(level="warning", code="mcp_server", message=words))
        if not self._in_turn and not self.prompted:
            out.append(TurnStarted())
        self._in_turn = True
        return out

    # ------------------------------------------------------------------------------------------------------- messages

    def _said(self, native: Assistant) -> list[Event]:
        parent, message = native.parent_tool_use_id, native.message
        if native.error is not None:
            words = "\n".join(block.text for block in message.blocks() if isinstance(block, blocks.Text))
            return self._failed(Fault(native.error, words), parent)
        thread = self._main if parent is None else self._thread(parent)
        out: list[Event] = []
        for block in message.blocks():
            match block:
                case blocks.Text():
                    out += thread.repetition()
                    thread.whole()
                    if block.text and (block.text != NO_CONTENT or message.model != SYNTHETIC):
                        self._last_words += len(block.text)
                        out.append(Text(text=block.text, message_id=message.id, parent_tool_use_id=parent))
                case blocks.Thinking():
                    out += thread.repetition()
                    thread.whole()
                    if block.thinking:
                        out.append(Thinking(text=block.thinking, parent_tool_use_id=parent))
                case blocks.ToolUse() | blocks.ServerToolUse():
                    thread.whole()
                    self._last_words = 0
                    out.append(self._called(block, parent))
                case blocks.ServerToolResult():
                    out.append(self._served(block, parent))
                case blocks.ToolResult():
                    out += self._finished(block, None, parent)
                case shapes.Unrecognized():
                    out.append(Unrecognized(raw=block.raw.decode("utf-8", "replace"), why=block.why))
                case blocks.RedactedThinking() | blocks.Image() | blocks.Document() | blocks.ToolReference():
                    pass
                case _:
                    assert_never(block)
        return out

    def _failed(self, fault: Fault, parent: str | None) -> list[Event]:
        if parent is None:
            self._fault = fault  # told with the result, which knows whether the turn ended by it
            return []
        return [Error(kind=kind_of(fault.message), message=fault.message, parent_tool_use_id=parent)]

    def _called(self, block: blocks.ToolUse | blocks.ServerToolUse, parent: str | None) -> ToolUse:
        name = name_of(block.name)
        self._calls[block.id] = _Call(name, block.name, block.input)
        description = block.input.get("description")
        return ToolUse(
            tool_use_id=block.id,
            name=name,
            native_name=block.name,
            input=block.input,
            operation=operation_of(name),
            target=target_of(name, block.name, block.input),
            description=description if isinstance(description, str) else "",
            parent_tool_use_id=parent,
        )

    def _served(self, block: blocks.ServerToolResult, parent: str | None) -> ToolResult:
        """The result of a call that the API carried out itself."""
        call = self._calls.pop(block.tool_use_id, None)
        content: object = msgspec.json.decode(block.content)
        failed = isinstance(content, dict) and "error_code" in content
        return ToolResult(
            tool_use_id=block.tool_use_id,
            name=call.name if call is not None else "other",
            status="error" if failed else "success",
            output=bytes(block.content).decode("utf-8", "replace"),
            parent_tool_use_id=parent,
        )

    def _answered(self, native: User) -> list[Event]:
        if native.is_replay or native.is_synthetic:
            return []
        content = native.message.content
        if isinstance(content, str):
            return _local(content)
        out: list[Event] = []
        for block in native.message.blocks():
            match block:
                case blocks.ToolResult():
                    out += self._finished(block, native, native.parent_tool_use_id)
                case shapes.Unrecognized():
                    out.append(Unrecognized(raw=block.raw.decode("utf-8", "replace"), why=block.why))
                case _:
                    pass  # a sub-agent's prompt, or the note of an interruption, which the result tells too
        return out

    def _finished(self, block: blocks.ToolResult, native: User | None, parent: str | None) -> list[Event]:
        call = self._calls.pop(block.tool_use_id, None) or _Call("other", "", {})
        # The account of a plain command is not worth decoding: its output stands in the block as well.
        account: Any = None if native is None else native.structured_result()
        denied = block.tool_use_id in self._refused
        self._refused.discard(block.tool_use_id)
        self._last_words = 0
        # In a recording it is not to be seen what was answered; else the session knows.
        asked = block.tool_use_id in self._asked and not self.prompted
        self._asked.discard(block.tool_use_id)
        outcome = outcome_of(call.native_name, block, account, denied=denied, asked=asked, overheard=not self.prompted)
        if outcome.status == "denied":
            self._told_denied.add(block.tool_use_id)
        out: list[Event] = []
        if outcome.status == "success":
            if call.native_name in EDITORS:
                change = change_in(call.native_name, call.input, account, outcome.output, block.tool_use_id)
                if change is not None:
                    msgspec.structs.force_setattr(change, "parent_tool_use_id", parent)
                    out.append(change)
            elif call.name == "plan" and parent is None:
                plan = self._todos.after(call.native_name, call.input, account)
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
                parent_tool_use_id=parent,
            )
        )
        return out

    def _noted(self, native: notices.Notice) -> list[Event]:
        match native:
            case notices.PermissionDenied():
                self._refused.add(native.tool_use_id)
            case notices.ApiRetry() | notices.ModelFallback():
                out = self._main.broken_off()
                self._main.said_again(self._last_words)
                self._last_words = 0
                return [*out, *told(native)]
            case notices.TaskStarted():
                if native.tool_use_id is not None:
                    self._agents[native.task_id] = native.tool_use_id
            case notices.TaskNotification():
                if native.tool_use_id not in self._calls:  # its call has its result already: it ran in the background
                    words = f"{native.status}: {native.summary}"
                    well = native.status == "completed"
                    return [Notice(level="info" if well else "warning", code="background_task", message=words)]
            case _:
                pass
        return told(native)

    # ---------------------------------------------------------------------------------------------------------- turns

    def _result(self, native: Result) -> list[Event]:
        self._in_turn = True
        self._ending = ending_of(native, self._fault, wants_structure=self._wants_structure)
        self._fault = None
        self._last_words = 0
        self._results += 1
        self._structured = native.structured_output
        self._duration = native.duration_ms if self._results == 1 else None
        untold = [
            Notice(
                level="info", code="permission_denied", message=f"{denial.tool_name} was refused: {denial.tool_use_id}"
            )
            for denial in native.permission_denials
            if not self.prompted and denial.tool_use_id not in self._told_denied
        ]
        return [*self._introduction(native, self._ending), *self._main.rest(), *untold, *self._spending.result(native)]

    def _introduction(self, native: Result, ending: Ending) -> list[Event]:
        """A turn may fail before Claude Code has introduced itself. For a session it cannot find, it makes an id up."""
        lost = any(isinstance(event, Error) and event.kind == "session_not_found" for event in ending.said)
        if self._introduced or lost or not native.session_id:
            return []
        self._introduced = True
        return [Init(native_session_id=native.session_id, resumed=self.resumed)]

    def _settled(self, native: TurnSettled) -> list[Event]:
        out = [event for thread in (self._main, *self._threads.values()) for event in thread.rest()]
        if native.unfinished:
            words = f"background tasks were still running when Claude Code ended: {', '.join(native.unfinished)}"
            out.append(Notice(level="warning", code="unfinished_tasks", message=words))
        ending = self._ending if native.result is not None else None
        if ending is None:
            ending = broken()
        out += ending.said
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
        for marks in (self._refused, self._asked, self._told_denied):
            marks.clear()
        self._in_turn = False
        self._fault = self._ending = self._structured = self._duration = None
        self._results = 0
        return out

    def _exited(self, native: Exited) -> list[Event]:
        words = native.stderr.strip().splitlines()
        if not native.code or not words:
            return []
        message = f"Claude Code ended with code {native.code}: {words[-1]}"
        return [Notice(level="warning", code="exited", message=message)]


def _local(content: str) -> list[Event]:
    """What a slash command printed; the rest of what comes as plain text is for the model."""
    begin, end = "<local-command-stdout>", "</local-command-stdout>"
    if not content.startswith(begin):
        return []
    words = content.removeprefix(begin).removesuffix(end).strip()
    return [Notice(level="info", code="command_output", message=words)] if words else []
