"""Both sides of a recording of Claude Code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from ...agents.claude.blocks import ToolResultBlock
from ...agents.claude.commands import (
    AnswerCanUseTool,
    AnswerHook,
    ClaudeInterrupt,
    ClaudePrompt,
    Command,
    PermissionResultAllow,
    PermissionResultDeny,
    RefuseControlRequest,
)
from ...agents.claude.events import ControlCancelRequest, HookCallback, PermissionUpdate, User
from ...unified.decisions import Allow, Decision, Deny
from ...unified.events import Remember
from ...unified.recording import PromptSent, QuestionAnswered, QuestionWithdrawn, RecordedAction, TurnInterrupted
from .dictionary import ClaudeDictionary

IN_FILES = ("localSettings", "projectSettings", "userSettings")


class ClaudeRecordingReader:
    def __init__(self, dictionary: ClaudeDictionary) -> None:
        self._dictionary = dictionary
        self._hooks: dict[str, str] = {}  # a hook that waits → the call it may forbid

    def from_agent(self, native: Any) -> Iterable[RecordedAction]:
        match native:
            case HookCallback():
                before = native.input.get("hook_event_name") == "PreToolUse"
                call = str(native.input.get("tool_use_id") or native.tool_use_id or "")
                self._hooks[native.request_id] = call if before else ""
            case User() if self._hooks:
                results = {block.tool_use_id for block in native.message.blocks() if isinstance(block, ToolResultBlock)}
                for call in results.intersection(self._hooks.values()):
                    self._dictionary.refuse(call)  # the hook was not answered in time: should the call have failed, why
            case ControlCancelRequest():
                return [QuestionWithdrawn(native.request_id)]
            case _:
                pass
        return ()

    def from_client(self, command: Command) -> Iterable[RecordedAction]:
        match command:
            case ClaudePrompt(content=content):
                self._dictionary.prompted = True
                return [PromptSent(text_of(content))]
            case ClaudeInterrupt():
                return [TurnInterrupted()]
            case AnswerCanUseTool(request_id, decision):
                return [QuestionAnswered(request_id, _decision(decision))]
            case AnswerHook(request_id, output):
                call = self._hooks.pop(request_id, "")
                if call and _denies(output):
                    self._dictionary.refuse(call)
                return ()
            case RefuseControlRequest(
                request_id, error
            ):  # a failed hook decides nothing; a failed question allows nothing
                is_hook = self._hooks.pop(request_id, None) is not None
                return () if is_hook else [QuestionAnswered(request_id, Deny(error))]
            case _:
                return ()


def text_of(content: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text", "")) for block in content if block.get("type") == "text")


def _decision(decision: PermissionResultAllow | PermissionResultDeny) -> Decision:
    match decision:
        case PermissionResultAllow(updated_input, updated_permissions):
            changed = None if updated_input is None else {**updated_input}
            return Allow(updated_input=changed, remember=_remembered(updated_permissions))
        case PermissionResultDeny(message, interrupt):
            return Deny(message, interrupt)


def _remembered(updates: Sequence[PermissionUpdate | msgspec.Raw]) -> Remember:
    """How long the rules that came with an answer hold. Claude Code passes over those it cannot read."""
    places: set[str] = set()
    for entry in updates:
        update = _update(entry)
        if update is not None and (update.type == "setMode" or update.behavior == "allow"):
            places.add(update.destination)
    if places.intersection(IN_FILES):
        return "always"
    return "session" if "session" in places else "once"


def _update(entry: PermissionUpdate | msgspec.Raw) -> PermissionUpdate | None:
    if isinstance(entry, PermissionUpdate):
        return entry
    try:
        return msgspec.json.decode(entry, type=PermissionUpdate)
    except msgspec.DecodeError:
        return None


def _denies(output: Mapping[str, Any]) -> bool:
    specific: object = output.get("hookSpecificOutput")
    decision = cast("dict[str, object]", specific) if isinstance(specific, dict) else {}
    return decision.get("permissionDecision") == "deny" or output.get("decision") == "block"


_LINES = frozenset(
    {"stream_event", "control_request", "control_response", "control_cancel_request", "rate_limit_event"}
)


def recognize_stream(line: bytes, message: Mapping[str, Any]) -> int:
    match message:
        case {"type": "assistant" | "user", "message": {"content": _}} | {"type": "system", "subtype": str()}:
            return 3
        case {"type": "result", "is_error": _} | {"type": "result", "subtype": str()}:
            return 3
        case {"type": str(kind)} if kind in _LINES:
            return 3
        case {"type": "user" | "keep_alive" | "tool_progress" | "auth_status"}:
            return 1
        case _:
            return 0
