"""The Agent Client Protocol's words, translated. What an agent does differently comes in as a :class:`Manner`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, assert_never, cast

import msgspec

from ...agents.acp import events, requests, responses, updates
from ...agents.acp.config import AcpProfile
from ...agents.acp.requests import RequestPermission
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
    Status,
    ToolName,
    ToolProgress,
    ToolResult,
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
from ...unified.tools import described, operation_of, target_of
from ...wire import shapes

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
                return [self._init(native.session_id, native.models, resumed=False)]
            case responses.LoadSessionResponse() | responses.ResumeSessionResponse():
                return [self._init(native.session_id, native.models, resumed=True)]
            case responses.PromptResponse():
                return self._turn_ended(native)
            case events.RequestFailed():
                return self._failed(native)
            case events.Unanswered():
                return self._broken(native.method, "the agent ended before it finished its turn")
            case events.RequestDeclined():
                return [Notice(level="warning", code="request_declined", message=native.why)]
            case Stalled():
                return [stalled(native.seconds)]
            case Exited():
                return self._exited(native)
            case shapes.UnknownMessage():
                return [Unrecognized(raw=native.raw.decode("utf-8", "replace"), why=native.why)]
            case (
                requests.ReadTextFile()
                | requests.WriteTextFile()
                | requests.CreateTerminal()
                | requests.TerminalOutput()
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
                prefix = self._manner.profile.mode_prefix
                if prefix is not None and update.text.startswith(prefix):
                    return [Notice(level="info", code="mode", message=update.text.removeprefix(prefix).strip())]
                parent = self._manner.parent(update.meta)
                self._answered = self._answered or (parent is None and bool(update.text))
                return self._pieces.text(update.text, update.message_id or "", parent=parent) if update.text else []
            case updates.AgentThoughtChunk():
                parent = self._manner.parent(update.meta)
                return self._pieces.thinking(update.text, parent=parent) if update.text else []
            case updates.AcpToolCall() | updates.ToolCallUpdate():
                return [*self._pieces.whole(), *self._update_call(update), *self._progress(update)]
            case updates.AcpPlan():
                return [*self._pieces.whole(), _plan(update.entries)]
            case updates.PlanUpdate():
                content = update.content()
                return [_plan(content.entries)] if isinstance(content, updates.PlanItems) else []
            case updates.CurrentModeUpdate():
                return [Notice(level="info", code="mode", message=update.current_mode_id)]
            case updates.AcpNotice():
                words = ": ".join(part for part in (update.title, update.description) if part)
                return [Notice(level=_SEVERITIES.get(update.severity, "info"), code="agent_notice", message=words)]
            case updates.CompactionUpdate():
                return _compaction(update)
            case updates.UsageUpdate():
                self._cost = self._cost if update.cost is None else update.cost.amount
                return []
            case (
                updates.UserMessageChunk()
                | updates.PlanRemoved()
                | updates.AvailableCommandsUpdate()
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
        call = self._calls.setdefault(update.tool_call_id, _CallState(update.tool_call_id, diffs={}))
        call.title = update.title or call.title
        call.native_name = self._manner.name(update.meta) or call.native_name
        call.kind = update.kind or call.kind
        call.parent = self._manner.parent(update.meta) or call.parent
        call.raw_input = update.raw_input if update.raw_input is not None else call.raw_input
        if update.locations:
            call.path = update.locations[0].path
        if update.content is None:
            return []
        pieces: list[str] = []
        for content in update.contents():
            match content:
                case Content():
                    pieces += [] if in_question else [content.text]
                case DiffContent():
                    call.diffs[content.path] = content
                case TerminalContent() | shapes.UnknownMessage():
                    pass
        before, call.text = call.text, "".join(pieces) or call.text
        if update.status == "in_progress" and call.announced and call.text != before:
            grown = call.text.removeprefix(before) if call.text.startswith(before) else call.text
            return [ToolProgress(tool_use_id=call.id, output=grown, parent_tool_use_id=call.parent)]
        return []

    def _progress(self, update: updates.AcpToolCall | updates.ToolCallUpdate) -> list[Event]:
        out = self._announce(update.tool_call_id)
        if update.status not in ("completed", "failed"):
            return out
        call = self._calls.pop(update.tool_call_id)
        failed = update.status == "failed"
        code = self._manner.exit_code(update.raw_output)
        text = call.text or ("" if code is not None else output_text(update.raw_output))
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
        name, arguments = self._name(call), self._arguments(call)
        return [
            ToolUse(
                tool_use_id=call.id,
                name=name,
                native_name=self._native_name(call),
                input=arguments,
                operation=operation_of(name),
                target=target_of(name, arguments) or call.path or call.title,
                description=described(arguments) or call.title,
                parent_tool_use_id=call.parent,
            )
        ]

    def request(self, question: RequestPermission | requests.CreateElicitation) -> PermissionRequest:
        """A question of the agent, in our words."""
        if isinstance(question, requests.CreateElicitation):
            return self._elicitation(question)
        # The stream may not have come this far yet; a second time it changes nothing.
        self._update_call(question.tool_call, in_question=True)
        call = self._calls[question.tool_call.tool_call_id]
        name, arguments = self._name(call), self._arguments(call)
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
        return named or call.title.split(" ", 1)[0] or call.kind

    def _name(self, call: _CallState) -> ToolName:
        name = self._manner.tools.get(self._native_name(call)) or self._manner.tools.get(call.title)
        if name is not None:
            return name
        return "write_file" if call.kind == "edit" and _is_new(call) else KINDS.get(call.kind, "other")

    def _arguments(self, call: _CallState) -> dict[str, Any]:
        raw_input: object = call.raw_input
        if isinstance(raw_input, dict):
            return cast("dict[str, Any]", raw_input)
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

    def _init(self, session_id: str, models: Any, *, resumed: bool) -> Init:
        about = self._agent.agent_info if self._agent is not None else None
        return Init(
            model=models.current_model_id if models is not None else "",
            agent_version=about.version if about is not None else "",
            native_session_id=session_id,
            resumed=resumed,
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
        self._running = self._answered = False
        self._calls.clear()
        return self._pieces.whole()


def _plan(entries: list[updates.PlanEntry]) -> Plan:
    return Plan(items=[PlanItem(entry.content, _plan_status(entry.status)) for entry in entries])


def _plan_status(status: str) -> Any:
    return status if status in ("in_progress", "completed") else "pending"


def _is_new(call: _CallState) -> bool:
    return bool(call.diffs) and all(diff.old_text is None for diff in call.diffs.values())


def _text_after(diff: DiffContent) -> str | None:
    """The protocol has no word for a deleted file but what agents put beside its empty text."""
    return None if diff.meta and diff.meta.get("kind") == "delete" else diff.new_text


def output_text(raw_output: Any) -> str:
    match raw_output:
        case None:
            return ""
        case str():
            return raw_output
        case {"output": str(text)} | {"error": str(text)}:
            return text
        case _:
            return msgspec.json.encode(raw_output).decode()


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
