"""``qwen --acp``: the protocol's dictionary, with this CLI's manners.

It announces a call before its arguments are known, tells usage in empty pieces of text, and wraps a command's output.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec.structs import replace

from ...agents.acp.config import AcpProfile
from ...agents.acp.events import Event as AcpEvent
from ...agents.acp.events import ExtensionNotification, RequestFailed
from ...agents.acp.requests import RequestPermission
from ...agents.acp.responses import AcpUsage, PromptResponse
from ...agents.acp.updates import (
    AcpToolCall,
    AgentMessageChunk,
    DiffContent,
    SessionUpdate,
    TextContent,
    ToolCallUpdate,
)
from ...transports.launch import Exited
from ...unified.events import Event, Notice, PermissionRequest
from ...wire.fitting import whole_number
from ...wire.shapes import UnknownMessage
from ..acp.dictionary import AcpDictionary, Manner
from ..acp.held_calls import Call, HeldCalls
from .tools import TOOLS


def _exit_code(raw_output: Any) -> int | None:
    match raw_output:
        case {"type": "shell_result", "outcome": "cancelled"}:
            return None  # it says 0 of a command that was killed
        case {"type": "shell_result", "signal": int()}:
            return None  # the same where its terminal hung up on the command (seen on a busy machine)
        case {"type": "shell_result", "exitCode": code}:
            return whole_number(code)
        case _:
            return None


def _parent(meta: object) -> str | None:
    match meta:
        case {"parentToolCallId": str(call_id)}:
            return call_id
        case _:
            return None


def _name(meta: object) -> str:
    match meta:
        case {"toolName": str(name)}:
            return name
        case _:
            return ""


_STATUS = re.compile(r"[45]\d\d\b")
BACKGROUND = ("background_task_completed", "background_notification")
"""Where its own words that a command in the background has ended come from, within an answer and after it."""
ENDED_BY_SIGNAL = (130, 143)
PROFILE = AcpProfile(begins_turns=True, tool_list="qwen/status/workspace/tools")
MANNER = Manner(tools=TOOLS, profile=PROFILE, exit_code=_exit_code, parent=_parent, name=_name)


class QwenDictionary:
    def __init__(self) -> None:
        self.protocol = AcpDictionary(MANNER)
        self._early = HeldCalls()
        self._usage = AcpUsage()
        self._prompts_answered = 0

    def translate(self, native: AcpEvent) -> list[Event]:
        match native:
            case SessionUpdate(replayed=True) | SessionUpdate(late=True):
                return self.protocol.translate(native)
            case SessionUpdate(update=AgentMessageChunk(meta={"source": str(source)}) as chunk) if source in BACKGROUND:
                return [Notice(level="info", code="background_task", message=chunk.text)]
            case SessionUpdate(update=AgentMessageChunk() as chunk):
                self._count(chunk.meta)
                return self.protocol.translate(native)
            case SessionUpdate(update=AcpToolCall() as call) if not call.raw_input and call.status == "pending":
                self._early.hold(call)
                return []
            case SessionUpdate(update=AcpToolCall() | ToolCallUpdate() as call):
                return self.protocol.translate(replace(native, update=_plain(self._early.release(call))))
            case RequestPermission():
                return self.protocol.translate(replace(native, tool_call=_plain(self._early.release(native.tool_call))))
            case ExtensionNotification(method="_qwencode/end_turn"):
                return self._own_turn_ended(native)
            case PromptResponse():
                self._prompts_answered = native.turn_id
                usage, self._usage = self._usage, AcpUsage()
                self._early.clear()
                return self.protocol.translate(replace(native, usage=usage if usage != AcpUsage() else native.usage))
            case Exited() if native.code < 0 or native.code in ENDED_BY_SIGNAL:
                return []  # the signal was ours, and the last lines of its standard error are chatter
            case RequestFailed(method=PROFILE.tool_list):
                return []  # a version that does not tell its tools
            case RequestFailed(message="Internal error", details={"details": str(reason)}):
                status = _STATUS.match(reason)  # every failure is an internal error to it; what it was stands beside
                code = int(status[0]) if status else native.code
                return self.protocol.translate(replace(native, message=reason, code=code, details=None))
            case UnknownMessage() if _is_own_extension(native):
                return []
            case _:
                return self.protocol.translate(native)

    def _own_turn_ended(self, native: ExtensionNotification) -> list[Event]:
        """When a command in the background ends, the CLI lets the model answer to that, and tells the end of this turn
        in words of its own. A prompt that was sent meanwhile is answered as any other: then the turn goes on."""
        try:
            end = msgspec.json.decode(native.params, type=_OwnTurnEnd)
        except msgspec.MsgspecError:
            return []
        if end.source != "background_notification" or native.turn_id != self._prompts_answered:
            return []
        events = self.translate(PromptResponse(end.reason or "end_turn", session_id=end.session_id))
        self._prompts_answered = native.turn_id
        return events

    def request(self, question: RequestPermission) -> PermissionRequest:
        return self.protocol.request(replace(question, tool_call=_plain(self._early.merged(question.tool_call))))

    def is_known(self, question: RequestPermission) -> bool:
        return True  # its questions hold all there is

    def _count(self, meta: Any) -> None:
        """Each call of the model tells its own tokens; those read from a cache are among the input."""
        if not isinstance(meta, dict) or "usage" not in meta:
            return
        try:
            usage = msgspec.convert(meta["usage"], AcpUsage, strict=False)
        except msgspec.ValidationError:
            return
        so_far, cached = self._usage, usage.cached_read_tokens or 0
        self._usage = AcpUsage(
            input_tokens=so_far.input_tokens + max(0, usage.input_tokens - cached),
            output_tokens=so_far.output_tokens + usage.output_tokens,
            total_tokens=so_far.total_tokens + usage.total_tokens,
            thought_tokens=(so_far.thought_tokens or 0) + (usage.thought_tokens or 0),
            cached_read_tokens=(so_far.cached_read_tokens or 0) + cached,
        )


def _is_own_extension(message: UnknownMessage) -> bool:
    """It asks whether there is more to say in mid-turn, and takes the refusal of the request for a no."""
    try:
        method = msgspec.json.decode(message.raw, type=_Method).method
    except msgspec.MsgspecError:
        return False
    return method.startswith(("craft/", "qwen/"))


class _OwnTurnEnd(msgspec.Struct, rename="camel"):
    session_id: str = ""
    reason: str = ""
    source: str = ""


class _Method(msgspec.Struct):
    method: str = ""


def _plain(call: Call) -> Call:
    """``call`` as other agents send it: a command's output alone, and of a new file no text before."""
    if call.content is None:
        return call
    match call.raw_output:
        case {"type": "shell_result", "output": str(output)}:
            if not output and isinstance(signal := call.raw_output.get("signal"), int):
                output = f"Command terminated by signal: {signal}"
            block = {"type": "content", "content": msgspec.to_builtins(TextContent(output))}
            return replace(call, content=[msgspec.Raw(msgspec.json.encode(block))])
        case _:
            pass
    contents: list[msgspec.Raw] = []
    for raw, content in zip(call.content, call.contents(), strict=True):
        match content:
            case DiffContent(old_text=""):
                contents.append(msgspec.Raw(msgspec.json.encode(replace(content, old_text=None))))
            case _:
                contents.append(raw)
    raw_output: object = call.raw_output
    edited = isinstance(raw_output, dict) and "fileDiff" in raw_output  # the diff again, as one more text
    return replace(call, content=contents, raw_output=None if edited else raw_output)
