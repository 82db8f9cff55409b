"""The Agent Client Protocol's words, translated. What an agent does differently comes in as a :class:`Manner`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, assert_never, cast

import msgspec

from ...agents.acp import events, requests, responses, updates
from ...agents.acp.config import AcpProfile, ServedRequest
from ...agents.acp.events import FileServed, TerminalServed
from ...agents.acp.requests import RequestPermission
from ...agents.acp.responses import OpenSessionResponse
from ...agents.acp.updates import Content, DiffContent, TerminalContent, TextContent
from ...transports.launch import Exited, Stalled
from ...unified.diffs import change_of
from ...unified.events import (
    Error,
    Event,
    Init,
    Notice,
    PermissionRequest,
    Plan,
    Retry,
    ShownImage,
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
from ...unified.images import that_fit
from ...unified.pieces import Pieces
from ...unified.settings import AgentCommand, AgentReport
from ...unified.tools import described, operation_of, target_of
from ...wire import shapes
from ...wire.jsonrpc import Id
from .call_details import (
    arguments_in,
    failure_in,
    output_text,
    raw_images,
    served_as,
    terminal_exit_in,
    terminal_output_in,
    unfenced,
    with_plain_command,
    words_beside,
)
from .turn_parts import (
    SEVERITIES,
    attachment,
    compaction,
    images_of,
    mark_of,
    other_plan,
    plan_of,
    reason_of,
    usage_of,
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


OPENING = ("initialize", "session/new", "session/load", "session/resume", "session/fork")
"""Without an answer to these there is no session."""
AUTH_REQUIRED = -32000
CUT_SHORT = ("…", "...")
"""How a title ends of which there was more."""
OURS = "served-"
"""Begins the ids of calls that the agent has not announced, only asked us to do its part of."""
SERVED_NAMES: dict[ToolName, str] = {
    "read_file": "fs/read_text_file", "write_file": "fs/write_text_file", "shell": "terminal/create",
}  # fmt: skip


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent speaks the protocol.

    ``tools`` maps its own tool names (or titles) to ours; ``profile`` may find the name in a call's id.
    ``exit_code`` reads a command's exit code from a call's raw output, ``parent`` the sub-agent's call from what an
    update carries beside its own (``_meta``, where it has that), ``name`` the tool's name from the same.
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
    images: list[ShownImage] = []
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
        self._answered = False  # whether there was any text since the last call
        self._terminals: dict[str, TerminalServed] = {}
        self.report = AgentReport()
        self.model = ""
        """The one that was asked for: it is set right after the agent has opened its session with another."""
        self.tools: tuple[str, ...] = ()
        """What the model is offered, where the agent has told us in words of its own."""
        self.serves = False
        """What we serve in this session is told; a recording does not say what became of it."""
        self.turns = 0
        """How many have ended."""
        self._served: dict[Id, str] = {}
        self._announced: set[str] = set()
        self._ended: dict[str, int] = {}  # a call of this turn that is over → the hash of its output

    def translate(self, native: events.Event) -> list[Event]:
        match native:
            case updates.SessionUpdate():
                if native.late:
                    return self._after_the_end(native.update)
                return [] if native.replayed else self.update(native.update)
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

    def _after_the_end(self, update: updates.KnownUpdate) -> list[Event]:
        """What is said of a turn that is over opens no other: nobody would ever end that one."""
        prefix = self._manner.profile.mode_prefix
        match update:
            case updates.AgentMessageChunk() if prefix is not None and update.text.startswith(prefix):
                return self.update(update)
            case updates.AgentMessageChunk() | updates.AgentThoughtChunk():
                words = update.text or mark_of(update.block)
            case updates.AcpToolCall() | updates.ToolCallUpdate():
                output = "".join(one.text for one in update.contents() if isinstance(one, Content))
                words = " ".join(part for part in (update.title or update.tool_call_id, update.status, output) if part)
            case _:
                plans = [plan for plan in self.update(update) if isinstance(plan, Plan)]
                words = "; ".join(f"{item.text} ({item.status})" for plan in plans for item in plan.items)
        return [Notice(level="info", code="late", message=words)] if words else []

    def update(self, update: updates.KnownUpdate) -> list[Event]:
        """What the running turn reports."""
        return BY_UPDATE[type(update)](self, update)

    def _message(self, update: updates.AgentMessageChunk) -> list[Event]:
        prefix, text = self._manner.profile.mode_prefix, update.text
        if prefix is not None and text.startswith(prefix):
            return [Notice(level="info", code="mode", message=text.removeprefix(prefix).strip())]
        parent = None if update.meta is None else self._manner.parent(update.meta)
        if text:
            self._answered = self._answered or parent is None
            return self._pieces.text(text, update.message_id or "", parent=parent)
        shown = attachment(update.block, parent)
        self._answered = self._answered or (parent is None and bool(shown))
        return shown

    def _thought(self, update: updates.AgentThoughtChunk) -> list[Event]:
        parent, text = None if update.meta is None else self._manner.parent(update.meta), update.text
        return self._pieces.thinking(text, parent=parent) if text else attachment(update.block, parent)

    def _call(self, update: updates.AcpToolCall | updates.ToolCallUpdate) -> list[Event]:
        if update.tool_call_id in self._ended:
            if type(update) is updates.ToolCallUpdate:
                return self._more_of(update)
            del self._ended[update.tool_call_id]  # some begin with the same ids again
        return [*self._pieces.whole(), *self._update_call(update), *self._progress(update)]

    def _plan(self, update: updates.AcpPlan) -> list[Event]:
        return [*self._pieces.whole(), plan_of(update.entries)]

    def _other_plan(self, update: updates.PlanUpdate) -> list[Event]:
        return [*self._pieces.whole(), *other_plan(update.content())]

    def _plan_removed(self, update: updates.PlanRemoved) -> list[Event]:
        return [*self._pieces.whole(), Plan(items=[])]

    def _mode(self, update: updates.CurrentModeUpdate) -> list[Event]:
        return [Notice(level="info", code="mode", message=update.current_mode_id)]

    def _notice(self, update: updates.AcpNotice) -> list[Event]:
        words = ": ".join(part for part in (update.title, update.description) if part)
        return [Notice(level=SEVERITIES.get(update.severity, "info"), code="agent_notice", message=words)]

    def _compaction(self, update: updates.CompactionUpdate) -> list[Event]:
        return compaction(update)

    def _usage(self, update: updates.UsageUpdate) -> list[Event]:
        if update.size:
            self.report = msgspec.structs.replace(self.report, context_used=update.used, context_size=update.size)
        self._cost = self._cost if update.cost is None else update.cost.amount
        return []

    def _commands(self, update: updates.AvailableCommandsUpdate) -> list[Event]:
        listed = update.available_commands
        commands = tuple(AgentCommand(name=one.name, description=one.description) for one in listed)
        self.report = msgspec.structs.replace(self.report, commands=commands)
        return []

    def _nothing(self, update: updates.KnownUpdate) -> list[Event]:
        return []

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
        known = call.title, call.native_name, call.kind, call.raw_input, call.path
        meta = update.meta
        call.title = update.title or call.title
        call.native_name = update.name or call.native_name
        call.kind = update.kind or call.kind
        if meta is not None:
            call.native_name = self._manner.name(meta) or call.native_name
            call.parent = self._manner.parent(meta) or call.parent
        call.raw_input = update.raw_input if update.raw_input is not None else call.raw_input
        if update.locations:
            call.path = update.locations[0].path
        repeated = call.is_known and known == (call.title, call.native_name, call.kind, call.raw_input, call.path)
        changed = [] if repeated or not call.announced else self._changed(call)
        if meta and (piece := terminal_output_in(meta)):
            call.text += piece
            if call.announced:
                return [*changed, ToolProgress(tool_use_id=call.id, output=piece, parent_tool_use_id=call.parent)]
        if update.content is None:
            return changed
        pieces: list[str] = []
        images: list[ShownImage] = []
        for content in update.contents():
            match content:
                case Content():
                    if not in_question:
                        block = content.block
                        words = updates.words_in(block)
                        mark = "" if words else mark_of(block)
                        pieces.append(f"\n{mark}" if mark and "".join(pieces) else words or mark)
                        images += [] if type(block) is TextContent else images_of(block)
                case DiffContent():
                    call.diffs[content.path] = content
                case TerminalContent():
                    call.terminal = content.terminal_id
                case shapes.UnknownMessage():
                    pieces.append("[content of an unknown kind]")
        before, call.text, call.images = call.text, "".join(pieces) or call.text, images or call.images
        if not call.announced and call.is_being_written and (arguments := arguments_in(call.text)) is not None:
            call.raw_input, call.text = arguments, ""
            return changed
        if update.status == "in_progress" and call.announced and call.text != before:
            grown = call.text.removeprefix(before) if call.text.startswith(before) else call.text
            return [*changed, ToolProgress(tool_use_id=call.id, output=grown, parent_tool_use_id=call.parent)]
        return changed

    def _more_of(self, update: updates.ToolCallUpdate) -> list[Event]:
        """A call that was over is told of again: that is no other call. What is new in it is said."""
        output = "".join(one.text for one in update.contents() if isinstance(one, Content))
        if not output or hash(output) == self._ended[update.tool_call_id]:
            return []
        self._ended[update.tool_call_id] = hash(output)
        return [Notice(level="info", code="late", message=f"{update.title or update.tool_call_id} {output}")]

    def _changed(self, call: _CallState) -> list[Event]:
        """An agent that tells what a call does when it has begun, or tells it anew, is not left with the first word."""
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
        if call.announced and not over:
            return []
        if not over and call.is_placeholder and (call.is_being_written or not call.text):
            return []
        out = self._announce(update.tool_call_id)
        if not over:
            return out
        del self._calls[update.tool_call_id]
        self._ended[update.tool_call_id] = hash(call.text)
        failed = update.status == "failed"
        terminal = self._terminals.pop(call.terminal, None)
        code = self._manner.exit_code(update.raw_output)
        code = terminal_exit_in(update.meta) if code is None and update.meta is not None else code
        text = unfenced(call.text, update.raw_output) or output_text(update.raw_output, understood=code is not None)
        images = call.images or raw_images(update.raw_output)
        text = text if call.images or not images else words_beside(text, update.raw_output, images)
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
                images=that_fit(images),
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
        if not self.serves:
            return out  # a result of what was not told
        refused: ToolStatus = "error" if served.failed else "denied"
        status: ToolStatus = refused if served.refusal else "error" if code else "success"
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
        shown = ""
        if not call.raw_input:
            texts = [one.text for one in question.tool_call.contents() if isinstance(one, Content)]
            shown = "\n".join(text for text in texts if text)
        if shown and name == "shell":
            arguments = {}  # the command may stand in the one place or in the other: no rule is to take one for it
        return PermissionRequest(
            request_id=f"{question.session_id}:{question.request_id}",
            tool_use_id=call.id,
            tool_name=name,
            native_name=self._native_name(call),
            operation=operation_of(name),
            target=target_of(name, arguments) or call.path or call.title,
            input=arguments,
            description="\n".join(part for part in (described(arguments) or call.title, shown) if part),
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
            case "shell":  # half a command is none
                return {} if call.title.rstrip().endswith(CUT_SHORT) else {"command": call.title}
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
        if native.method in OPENING:
            message = reason_of(native)
            kind = "authentication_failed" if native.code == AUTH_REQUIRED else kind_of(message, None)
            return [Error(kind=kind, message=f"{native.method}: {message}")]
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
        self.turns += 1
        self._answered = False
        self._calls.clear()
        self._terminals.clear()
        self._served.clear()
        self._ended.clear()
        return [*self._pieces.whole(), *unannounced]


BY_UPDATE: dict[type, Callable[[AcpDictionary, Any], list[Event]]] = {
    updates.AgentMessageChunk: AcpDictionary._message,
    updates.AgentThoughtChunk: AcpDictionary._thought,
    updates.AcpToolCall: AcpDictionary._call,
    updates.ToolCallUpdate: AcpDictionary._call,
    updates.AcpPlan: AcpDictionary._plan,
    updates.PlanUpdate: AcpDictionary._other_plan,
    updates.PlanRemoved: AcpDictionary._plan_removed,
    updates.CurrentModeUpdate: AcpDictionary._mode,
    updates.AcpNotice: AcpDictionary._notice,
    updates.CompactionUpdate: AcpDictionary._compaction,
    updates.UsageUpdate: AcpDictionary._usage,
    updates.AvailableCommandsUpdate: AcpDictionary._commands,
    updates.UserMessageChunk: AcpDictionary._nothing,
    updates.ConfigOptionUpdate: AcpDictionary._nothing,
    updates.SessionInfoUpdate: AcpDictionary._nothing,
    updates.OtherUpdate: AcpDictionary._nothing,
}
"""A table, as in the grammar: a ``match`` asks a struct for one class after the other."""


def _is_new(call: _CallState) -> bool:
    return bool(call.diffs) and all(diff.old_text is None for diff in call.diffs.values())


def _text_after(diff: DiffContent) -> str | None:
    """The protocol has no word for a deleted file but what agents put beside its empty text."""
    return None if diff.meta and diff.meta.get("kind") == "delete" else diff.new_text
