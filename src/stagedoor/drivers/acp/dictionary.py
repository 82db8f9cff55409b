"""The Agent Client Protocol's words, translated. What an agent does differently comes in as a :class:`Manner`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, assert_never, cast

import msgspec

from ...agents.acp import events, requests, responses, updates
from ...agents.acp.config import AcpProfile, ServedRequest
from ...agents.acp.events import FileServed, TerminalServed
from ...agents.acp.requests import RequestPermission
from ...agents.acp.responses import OpenSessionResponse
from ...agents.acp.updates import Content, DiffContent, TerminalContent
from ...transports.launch import Exited, Stalled
from ...unified.diffs import change_of
from ...unified.events import (
    Error,
    Event,
    Init,
    Notice,
    PermissionRequest,
    Plan,
    PlanItem,
    Retry,
    Status,
    ToolName,
    ToolProgress,
    ToolResult,
    ToolStatus,
    ToolUse,
    TurnCompleted,
    Unrecognized,
    Usage,
    dollars,
    report_of,
    stalled,
)
from ...unified.faults import kind_of, no_answer
from ...unified.pieces import Pieces
from ...unified.settings import AgentCommand, AgentReport
from ...unified.tools import described, operation_of, target_of
from ...wire import shapes
from ...wire.jsonrpc import Id
from .call_details import (
    arguments_in,
    failure_in,
    output_text,
    served_as,
    terminal_exit_in,
    terminal_output_in,
    unfenced,
    with_plain_command,
)

KINDS: dict[str, ToolName] = {
    "read": "read_file", "edit": "edit_file", "delete": "edit_file", "move": "edit_file", "search": "search_content",
    "execute": "shell", "think": "other", "fetch": "web_fetch", "switch_mode": "other", "other": "other",
}  # fmt: skip
STATUSES: dict[str, Status] = {
    "end_turn": "success",
    "cancelled": "interrupted",
    "max_turn_requests": "max_turns",
    "max_tokens": "error",
    "refusal": "error",
}
REASONS = {
    "max_tokens": "the model's answer was cut off at its token limit",
    "refusal": "the model refused to answer",
}


OURS = "served-"
"""Begins the ids of calls that the agent has not announced, only asked us to do its part of."""
SERVED_NAMES: dict[ToolName, str] = {
    "read_file": "fs/read_text_file", "write_file": "fs/write_text_file", "shell": "terminal/create",
}  # fmt: skip


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent speaks the protocol.

    ``tools`` maps its own tool names (or titles) to ours; ``profile`` may find the name in a call's id.
    ``exit_code`` reads a command's exit code from a call's raw output, ``parent`` the sub-agent's call from what an
    update carries beside its own (``_meta``), ``name`` the tool's name from the same.
    """

    tools: Mapping[str, ToolName] = {}
    profile: AcpProfile = AcpProfile()
    exit_code: Callable[[Any], int | None] = lambda raw_output: None
    parent: Callable[[Any], str | None] = lambda meta: None
    name: Callable[[Any], str] = lambda meta: ""


class _CallState(msgspec.Struct):
    """A tool call so far; updates only bring what changed."""

    id: str
    title: str = ""
    native_name: str = ""
    kind: str = ""
    raw_input: Any = None
    path: str = ""
    text: str = ""
    diffs: dict[str, DiffContent] = {}
    announced: bool = False
    parent: str | None = None
    label: str = ""
    """Its first title where that is one word: mostly the tool's name, before the title tells what it does."""
    target: str = ""
    """What it was announced to act on."""
    is_known: bool = False
    """Its own input said so, and not only its title."""
    terminal: str = ""
    """The terminal of ours that its command runs in."""

    @property
    def is_placeholder(self) -> bool:
        """The agent has said that there is a call, not yet which: many do while the model still writes its input."""
        if self.raw_input or self.path or self.diffs or self.terminal:
            return False
        return self.raw_input is not None or " " not in self.title.strip()

    @property
    def is_being_written(self) -> bool:
        """Its text is its input so far, as JSON."""
        return not self.raw_input and self.text.lstrip().startswith("{")


def _tools_in(meta: dict[str, Any] | None) -> list[str]:
    """The protocol has no place for the tools that the model is offered: an agent may tell them beside its answer."""
    names: object = (meta or {}).get("tools")
    return [name for name in cast("list[object]", names) if isinstance(name, str)] if isinstance(names, list) else []


class AcpDictionary:
    def __init__(self, manner: Manner | None = None) -> None:
        self._manner = manner or Manner()
        self._pieces = Pieces()
        self._calls: dict[str, _CallState] = {}
        self._agent: responses.InitializeResponse | None = None
        self._cost_before = 0.0
        self._cost: float | None = None
        self._running = False
        self._answered = False  # whether there was any text since the last call
        self._terminals: dict[str, TerminalServed] = {}
        self.report = AgentReport()
        self.model = ""
        """The one that was asked for: it is set right after the agent has opened its session with another."""
        self.tools: tuple[str, ...] = ()
        """What the model is offered, where the agent has told us in words of its own."""
        self.serves = False
        """What we serve in this session is told; a recording does not say what became of it."""
        self._served: dict[Id, str] = {}
        self._announced: set[str] = set()

    def translate(self, native: events.Event) -> list[Event]:
        match native:
            case updates.SessionUpdate():
                return [] if native.replayed else self._update(native.update)
            case requests.RequestPermission():
                return [
                    *self._pieces.whole(),
                    *self._update_call(native.tool_call, in_question=True),
                    *self._announce(native.tool_call.tool_call_id),
                ]
            case responses.InitializeResponse():
                self._agent = native
                return []
            case responses.NewSessionResponse() | responses.ForkSessionResponse():
                return [self._init(native, resumed=False)]
            case responses.LoadSessionResponse() | responses.ResumeSessionResponse():
                return [self._init(native, resumed=True)]
            case responses.PromptResponse():
                return self._turn_ended(native)
            case events.RequestFailed():
                return self._failed(native)
            case events.Unanswered():
                return self._broken(native.method, "the agent ended before it finished its turn")
            case events.ModelFailed():
                return [Retry(attempt=native.attempt, reason=native.message)]
            case events.RequestDeclined():
                return [Notice(level="warning", code="request_declined", message=native.why)]
            case Stalled():
                return [stalled(native.seconds)]
            case Exited():
                return self._exited(native)
            case shapes.UnknownMessage():
                return [Unrecognized(raw=native.raw.decode("utf-8", "replace"), why=native.why)]
            case requests.ReadTextFile() | requests.WriteTextFile() | requests.CreateTerminal():
                return self._announce_served(native)
            case FileServed() | TerminalServed():
                return self._served_result(native)
            case (
                requests.TerminalOutput()
                | requests.ReleaseTerminal()
                | requests.WaitForTerminalExit()
                | requests.KillTerminal()
                | requests.CreateElicitation()
                | responses.AuthenticateResponse()
                | responses.ListSessionsResponse()
                | responses.CloseSessionResponse()
                | responses.DeleteSessionResponse()
                | responses.SetSessionModeResponse()
                | responses.SetSessionModelResponse()
                | responses.SetSessionConfigOptionResponse()
                | responses.UntypedResponse()
                | events.RequestWithdrawn()
                | events.CompleteElicitation()
                | events.ExtensionNotification()
            ):
                return []
            case _:
                assert_never(native)

    def _update(self, update: updates.KnownUpdate) -> list[Event]:
        self._running = True
        match update:
            case updates.AgentMessageChunk():
                prefix, text = self._manner.profile.mode_prefix, update.text
                if prefix is not None and text.startswith(prefix):
                    return [Notice(level="info", code="mode", message=text.removeprefix(prefix).strip())]
                parent = self._manner.parent(update.meta)
                self._answered = self._answered or (parent is None and bool(text))
                if text:
                    return self._pieces.text(text, update.message_id or "", parent=parent)
                return _attached(update.block)
            case updates.AgentThoughtChunk():
                parent, text = self._manner.parent(update.meta), update.text
                return self._pieces.thinking(text, parent=parent) if text else _attached(update.block)
            case updates.AcpToolCall() | updates.ToolCallUpdate():
                return [*self._pieces.whole(), *self._update_call(update), *self._progress(update)]
            case updates.AcpPlan():
                return [*self._pieces.whole(), _plan(update.entries)]
            case updates.PlanUpdate():
                return [*self._pieces.whole(), *_other_plan(update.content())]
            case updates.PlanRemoved():
                return [*self._pieces.whole(), Plan(items=[])]
            case updates.CurrentModeUpdate():
                return [Notice(level="info", code="mode", message=update.current_mode_id)]
            case updates.AcpNotice():
                words = ": ".join(part for part in (update.title, update.description) if part)
                return [Notice(level=_SEVERITIES.get(update.severity, "info"), code="agent_notice", message=words)]
            case updates.CompactionUpdate():
                return _compaction(update)
            case updates.UsageUpdate():
                if update.size:
                    self.report = msgspec.structs.replace(
                        self.report, context_used=update.used, context_size=update.size
                    )
                self._cost = self._cost if update.cost is None else update.cost.amount
                return []
            case updates.AvailableCommandsUpdate():
                listed = update.available_commands
                commands = tuple(AgentCommand(name=one.name, description=one.description) for one in listed)
                self.report = msgspec.structs.replace(self.report, commands=commands)
                return []
            case (
                updates.UserMessageChunk()
                | updates.ConfigOptionUpdate()
                | updates.SessionInfoUpdate()
                | updates.OtherUpdate()
            ):
                return []
            case _:
                assert_never(update)

    # ------------------------------------------------------------------------------------------------- tool calls

    def _update_call(
        self, update: updates.AcpToolCall | updates.ToolCallUpdate, *, in_question: bool = False
    ) -> list[Event]:
        """Remember what an update brings; report new output. What a question shows (``in_question``) is not output."""
        call = self._calls.get(update.tool_call_id)
        if call is None:
            call = self._calls[update.tool_call_id] = _CallState(update.tool_call_id, diffs={})
        if not call.title and update.title and " " not in update.title:
            call.label = update.title
        call.title = update.title or call.title
        call.native_name = self._manner.name(update.meta) or update.name or call.native_name
        call.kind = update.kind or call.kind
        call.parent = self._manner.parent(update.meta) or call.parent
        call.raw_input = update.raw_input if update.raw_input is not None else call.raw_input
        if update.locations:
            call.path = update.locations[0].path
        changed = self._changed(call)
        if piece := terminal_output_in(update.meta):
            call.text += piece
            if call.announced:
                return [*changed, ToolProgress(tool_use_id=call.id, output=piece, parent_tool_use_id=call.parent)]
        if update.content is None:
            return changed
        pieces: list[str] = []
        for content in update.contents():
            match content:
                case Content():
                    pieces += [] if in_question else [content.text or _mark_of(content.block)]
                case DiffContent():
                    call.diffs[content.path] = content
                case TerminalContent():
                    call.terminal = content.terminal_id
                case shapes.UnknownMessage():
                    pieces.append("[content of an unknown kind]")
        before, call.text = call.text, "".join(pieces) or call.text
        if not call.announced and call.is_being_written and (arguments := arguments_in(call.text)) is not None:
            call.raw_input, call.text = arguments, ""
            return changed
        if update.status == "in_progress" and call.announced and call.text != before:
            grown = call.text.removeprefix(before) if call.text.startswith(before) else call.text
            return [*changed, ToolProgress(tool_use_id=call.id, output=grown, parent_tool_use_id=call.parent)]
        return changed

    def _changed(self, call: _CallState) -> list[Event]:
        """An agent that tells what a call does when it has begun, or tells it anew, is not left with the first word."""
        if not call.announced:
            return []
        name = self._name(call)
        if call.is_known and name != "shell":  # files go by several names; one that was known is the same under another
            return []
        target = target_of(name, self._arguments(call, name)) or call.path
        if not target or target == call.target:
            return []
        call.is_known = True
        call.target = target
        return [Notice(level="info", code="call_changed", message=f"{self._native_name(call)}: {target}")]

    def _progress(self, update: updates.AcpToolCall | updates.ToolCallUpdate) -> list[Event]:
        call, over = self._calls[update.tool_call_id], update.status in ("completed", "failed")
        if not call.announced and not over and call.is_placeholder and (call.is_being_written or not call.text):
            return []
        out = self._announce(update.tool_call_id)
        if not over:
            return out
        del self._calls[update.tool_call_id]
        failed = update.status == "failed"
        terminal = self._terminals.pop(call.terminal, None)
        code = self._manner.exit_code(update.raw_output)
        code = terminal_exit_in(update.meta) if code is None else code
        text = unfenced(call.text, update.raw_output) or output_text(update.raw_output, understood=code is not None)
        if failed and code is None and (failure := failure_in(update.raw_output)) is not None:
            code, text = failure
        if terminal is not None:
            code, text = terminal.code if code is None else code, text or terminal.output
        if not failed:
            changes = [change_of(d.path, d.old_text, _text_after(d), tool_use_id=call.id) for d in call.diffs.values()]
            out += [msgspec.structs.replace(change, parent_tool_use_id=call.parent) for change in changes]
        return [
            *out,
            ToolResult(
                tool_use_id=call.id,
                name=self._name(call),
                status="error" if failed or code else "success",
                output=text,
                exit_code=code,
                parent_tool_use_id=call.parent,
            ),
        ]

    def _announce(self, tool_call_id: str) -> list[Event]:
        """``tool_use``, once. Some agents never announce a call they ask permission for."""
        call = self._calls[tool_call_id]
        if call.announced:
            return []
        call.announced = True
        self._answered = self._answered and call.parent is not None
        name = self._name(call)
        arguments = self._arguments(call, name)
        target = target_of(name, arguments) or call.path
        call.target, call.is_known = target or call.title, bool(target)
        return [
            ToolUse(
                tool_use_id=call.id,
                name=name,
                native_name=self._native_name(call),
                input=arguments,
                operation=operation_of(name),
                target=call.target,
                description=described(arguments) or call.title,
                parent_tool_use_id=call.parent,
            )
        ]

    def served_call(self, request: ServedRequest) -> str:
        """The id of the call that a file or terminal of ours is part of: the agent's, or where it has announced none
        that fits, one that we announce. Whoever comes first decides, the stream or the question about it."""
        if request.request_id not in self._served:
            fitting = (call.id for call in self._calls.values() if self._fits(call, request))
            self._served[request.request_id] = next(fitting, f"{OURS}{request.request_id}")
        return self._served[request.request_id]

    def _fits(self, call: _CallState, request: ServedRequest) -> bool:
        match request:
            case requests.CreateTerminal():
                return self._name(call) == "shell" and not call.terminal
            case requests.WriteTextFile(path=path):
                known = call.path or (next(iter(call.diffs)) if call.diffs else "")
                return self._name(call) in ("write_file", "edit_file") and known in ("", path)
            case requests.ReadTextFile(path=path):
                return self._name(call) in ("read_file", "edit_file", "write_file") and call.path in ("", path)

    def _announce_served(self, request: ServedRequest) -> list[Event]:
        call_id = self.served_call(request)
        if not self.serves or not call_id.startswith(OURS) or call_id in self._announced:
            return []
        self._announced.add(call_id)
        self._answered = False
        name, arguments = served_as(request)
        return [
            *self._pieces.whole(),
            ToolUse(
                tool_use_id=call_id,
                name=name,
                native_name=SERVED_NAMES[name],
                input=arguments,
                operation=operation_of(name),
                target=target_of(name, arguments),
            ),
        ]

    def _served_result(self, served: FileServed | TerminalServed) -> list[Event]:
        out = self._announce_served(served.request)
        call_id = self.served_call(served.request)
        terminal = served if isinstance(served, TerminalServed) else None
        if not call_id.startswith(OURS):
            if terminal is not None and terminal.terminal_id:
                self._terminals[terminal.terminal_id] = terminal
                if (call := self._calls.get(call_id)) is not None:
                    call.terminal = call.terminal or terminal.terminal_id
            return out
        code = terminal.code if terminal is not None else None
        status: ToolStatus = "denied" if served.refusal else "error" if code else "success"
        output = served.refusal or (terminal.output if terminal is not None else "")
        name, _ = served_as(served.request)
        return [*out, ToolResult(tool_use_id=call_id, name=name, status=status, output=output, exit_code=code)]

    def request(self, question: RequestPermission | requests.CreateElicitation) -> PermissionRequest:
        """A question of the agent, in our words."""
        if isinstance(question, requests.CreateElicitation):
            return self._elicitation(question)
        # The stream may not have come this far yet; a second time it changes nothing.
        self._update_call(question.tool_call, in_question=True)
        call = self._calls[question.tool_call.tool_call_id]
        name = self._name(call)
        arguments = self._arguments(call, name)
        return PermissionRequest(
            request_id=f"{question.session_id}:{question.request_id}",
            tool_use_id=call.id,
            tool_name=name,
            native_name=self._native_name(call),
            operation=operation_of(name),
            target=target_of(name, arguments) or call.path or call.title,
            input=arguments,
            description=described(arguments) or call.title,
            choices=[option.kind for option in question.options],
            parent_tool_use_id=call.parent,
        )

    def _elicitation(self, question: requests.CreateElicitation) -> PermissionRequest:
        """A question to the user. Allowed with ``updated_input={"content": …}``, it is answered."""
        form = {"message": question.message, "schema": question.requested_schema, "url": question.url}
        call = self._calls.get(question.tool_call_id or "")
        return PermissionRequest(
            request_id=f"{question.session_id}:{question.request_id}",
            tool_use_id="" if call is None else call.id,
            tool_name="question",
            native_name="elicitation",
            operation=operation_of("question"),
            target=question.message or question.url or "",
            input={name: value for name, value in form.items() if value},
            description=question.message,
            parent_tool_use_id=None if call is None else call.parent,
        )

    def _native_name(self, call: _CallState) -> str:
        named = call.native_name or self._manner.profile.tool_name(call.id)
        return named or call.label or call.title.split(" ", 1)[0] or call.kind

    def _name(self, call: _CallState) -> ToolName:
        name = self._manner.tools.get(self._native_name(call)) or self._manner.tools.get(call.title)
        if name is not None:
            return name
        return "write_file" if call.kind == "edit" and _is_new(call) else KINDS.get(call.kind, "other")

    def _arguments(self, call: _CallState, name: ToolName) -> dict[str, Any]:
        raw_input: object = call.raw_input
        if isinstance(raw_input, dict) and (raw_input or not (call.path or call.diffs)):
            arguments = cast("dict[str, Any]", raw_input)
            return with_plain_command(arguments) if name == "shell" else arguments
        match KINDS.get(call.kind, "other"):
            case "shell":
                return {"command": call.title}
            case "edit_file" | "write_file" | "read_file" if call.path or call.diffs:
                path = call.path or next(iter(call.diffs))
                diff = "".join(change_of(d.path, d.old_text, d.new_text).diff for d in call.diffs.values())
                return {"path": path, "diff": diff} if diff else {"path": path}
            case _:
                return {} if call.raw_input is None else {"input": call.raw_input}

    # ------------------------------------------------------------------------------------------------- turns

    def _init(self, opened: OpenSessionResponse, *, resumed: bool) -> Init:
        about = self._agent.agent_info if self._agent is not None else None
        models, options = opened.models, opened.config_options or ()
        chosen = (option.current_value for option in options if option.category == "model")
        return Init(
            model=self.model or (models.current_model_id if models is not None else str(next(chosen, None) or "")),
            agent_version=about.version if about is not None else "",
            native_session_id=opened.session_id,
            resumed=resumed,
            tools=list(self.tools) or _tools_in(opened.meta),
        )

    def _turn_ended(self, native: responses.PromptResponse) -> list[Event]:
        status = STATUSES.get(native.stop_reason, "error")
        silent = status == "success" and not self._answered
        out = self._end()
        usage = usage_of(native)
        if self._cost is not None:
            spent, self._cost_before = dollars(self._cost - self._cost_before), self._cost
            usage = msgspec.structs.replace(usage, cost_usd=spent)
        if usage != Usage():
            out.append(report_of(usage))
        if status == "error":
            reason = REASONS.get(native.stop_reason, f"the turn ended with {native.stop_reason!r}")
            out.append(Error(kind="unknown", message=reason, fatal=True))
        if silent:
            out.append(no_answer())
        return [*out, TurnCompleted(status=status, usage=usage)]

    def _failed(self, native: events.RequestFailed) -> list[Event]:
        if native.method not in ("session/prompt", ""):
            message = f"{native.method}: {reason_of(native)}"
            return [Notice(level="warning", code="request_failed", message=message)]
        status = native.code if 400 <= native.code < 600 else None
        message = reason_of(native)
        return [
            *self._end(),
            Error(kind=kind_of(message, status), message=message, fatal=True),
            TurnCompleted(status="error"),
        ]

    def _broken(self, method: str, message: str) -> list[Event]:
        if method != "session/prompt":
            return []
        error = Error(kind="connection_failed", message=message, fatal=True)
        return [*self._end(), error, TurnCompleted(status="error")]

    def _exited(self, native: Exited) -> list[Event]:
        if not native.code or not native.stderr.strip():
            return []
        last = native.stderr.strip().splitlines()[-1]
        return [Notice(level="warning", code="exited", message=f"the agent ended with code {native.code}: {last}")]

    def _end(self) -> list[Event]:
        unannounced = [event for call_id in list(self._calls) for event in self._announce(call_id)]
        self._running = self._answered = False
        self._calls.clear()
        self._terminals.clear()
        self._served.clear()
        return [*self._pieces.whole(), *unannounced]


def _plan(entries: list[updates.PlanEntry]) -> Plan:
    return Plan(items=[PlanItem(entry.content, _plan_status(entry.status)) for entry in entries])


def _plan_status(status: str) -> Any:
    return status if status in ("in_progress", "completed") else "pending"


def _is_new(call: _CallState) -> bool:
    return bool(call.diffs) and all(diff.old_text is None for diff in call.diffs.values())


def _text_after(diff: DiffContent) -> str | None:
    """The protocol has no word for a deleted file but what agents put beside its empty text."""
    return None if diff.meta and diff.meta.get("kind") == "delete" else diff.new_text


def _other_plan(content: object) -> list[Event]:
    match content:
        case updates.PlanItems(entries=entries):
            return [_plan(entries)]
        case updates.PlanMarkdown(content=text):
            return [Notice(level="info", code="plan", message=text)]
        case updates.PlanFile(uri=uri):
            return [Notice(level="info", code="plan", message=f"the plan is in {uri}")]
        case _:
            return [Notice(level="info", code="plan", message="a plan of an unknown kind")]


def _attached(block: updates.ContentBlock) -> list[Event]:
    """What the agent sends that is no text: there is no word for it, so it is at least named."""
    mark = _mark_of(block)
    return [Notice(level="info", code="attachment", message=f"the agent sent {mark[1:-1]}")] if mark else []


def _mark_of(block: updates.ContentBlock) -> str:
    match block:
        case updates.ImageContent(data=content, mime_type=kind, uri=uri):
            return f"[an image: {uri or kind}, {len(content) * 3 // 4} bytes]"
        case updates.AudioContent(data=content, mime_type=kind):
            return f"[a sound: {kind}, {len(content) * 3 // 4} bytes]"
        case updates.ResourceLink(uri=uri):
            return f"[a link: {uri}]"
        case updates.EmbeddedResource(resource=resource):
            return "" if resource.text is not None else f"[a file: {resource.uri}]"
        case updates.TextContent():
            return ""
        case shapes.UnknownMessage():
            return "[content of an unknown kind]"


def usage_of(native: responses.PromptResponse) -> Usage:
    if native.usage is not None:
        usage = native.usage
        cached, thought = usage.cached_read_tokens or 0, usage.thought_tokens or 0
        return Usage(
            input_tokens=usage.input_tokens + cached,
            output_tokens=usage.output_tokens,
            cached_tokens=cached,
            reasoning_tokens=thought,
            total_tokens=usage.total_tokens or usage.input_tokens + cached + usage.output_tokens + thought,
        )
    match native.meta:
        case {"quota": {"token_count": {"input_tokens": int(sent), "output_tokens": int(received)}}}:
            return Usage(input_tokens=sent, output_tokens=received, total_tokens=sent + received)
        case _:
            return Usage()


def reason_of(failed: events.RequestFailed) -> str:
    """The message of an error, and the details beside it."""
    match failed.details:
        case {"details": str(detail)}:
            more = [detail]
        case {"_errors": [*errors]}:
            more = [str(error) for error in cast("list[object]", errors)]
        case [*issues]:
            more = [_issue(issue) for issue in cast("list[object]", issues)]
        case _:
            more = []
    details = "; ".join(detail for detail in more if detail and detail not in failed.message)
    return ": ".join(part for part in (failed.message, details) if part)


def _issue(issue: Any) -> str:
    """What is wrong with one field of a request."""
    match issue:
        case {"path": [str(field), *_], "message": str(message)}:
            return f"{field}: {message}"
        case _:
            return ""


_SEVERITIES: dict[str, Literal["info", "warning", "error"]] = {"warning": "warning", "error": "error"}


def _compaction(update: updates.CompactionUpdate) -> list[Event]:
    match update.status:
        case "completed":
            return [Notice(level="info", code="compacted", message="the conversation so far was summarized")]
        case "failed":
            words = update.error or "the conversation could not be summarized"
            return [Notice(level="warning", code="compaction_failed", message=words)]
        case _:
            return []
