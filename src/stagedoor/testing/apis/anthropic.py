"""The Anthropic Messages API, as Claude Code uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ..answers import Refusal, sse
from ..model_request import (
    CallResult,
    ConversationTurn,
    Json,
    ModelRequest,
    NativeCall,
    PastCall,
    absolute,
    file_commands,
    pick,
    record,
    records,
    text_of,
    typed_text,
)
from ..reply_choice import AnsweredCall
from ..script import HttpError, Part, ScriptedCall, StopReason, StreamError, UsageOverride

_SIDE_SYSTEM = {
    "title": ("sentence-case title", "Analyze if this message indicates a new conversation topic"),
    "summary": ("tasked with summarizing conversations",),
}
_SUMMARY_PROMPT = "Your task is to create a detailed summary of"
_KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error",
}  # fmt: skip
_MESSAGES = {
    400: "messages.0: invalid",
    401: "invalid x-api-key",
    403: "Your API key does not have permission to use the specified resource.",
    404: "model: no such model",
    429: "This request would exceed your rate limit.",
    500: "Internal server error",
    529: "Overloaded",
}
_STOPS: Mapping[StopReason, str] = {
    "end": "end_turn",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "content_filter": "refusal",
}


class AnthropicApi:
    name = "anthropic"

    def accepts(self, method: str, path: str) -> bool:
        return method == "POST" and path.endswith("/v1/messages")

    def read(self, path: str, headers: dict[str, str], body: Json) -> ModelRequest:
        system = text_of(body.get("system"))
        turns = tuple(turn for message in records(body.get("messages")) for turn in _turns(message))
        return ModelRequest(
            api=self.name,
            path=path,
            body=body,
            model=str(body.get("model", "")),
            stream=bool(body.get("stream")),
            system=system,
            turns=turns,
            tools={str(tool.get("name", "")): tool for tool in records(body.get("tools"))},
            session=headers.get("x-claude-code-session-id", "") + headers.get("x-claude-code-agent-id", ""),
            side=_side(system, turns, body),
        )

    def native(self, call: ScriptedCall, request: ModelRequest) -> list[NativeCall]:
        return native_calls(call, request)

    def complete_parts(self, request: ModelRequest, parts: Sequence[Part]) -> Sequence[Part]:
        return parts

    def follow_up(self, request: ModelRequest, last: Sequence[AnsweredCall]) -> list[tuple[ScriptedCall, NativeCall]]:
        """A new task always begins as pending; move it to the state the plan says."""
        updates: list[tuple[ScriptedCall, NativeCall]] = []
        for answered in last:
            if answered.native.name == "TaskCreate":
                states = {item["text"]: item["status"] for item in answered.call.input.get("items", [])}
                status = states.get(record(answered.native.input).get("subject"), "pending")
                number = re.search(r"#(\d+)", answered.result.output)
                if status != "pending" and number:
                    moved = NativeCall("TaskUpdate", {"taskId": number.group(1), "status": status})
                    updates.append((answered.call, moved))
        return updates

    def side_answer(self, request: ModelRequest) -> str:
        return (
            json.dumps({"title": "Scripted session"})
            if request.side == "title"
            else "A summary of the scripted conversation."
        )

    def stream(self, request: ModelRequest, new_id: Callable[[], int]) -> AnthropicStream:
        return AnthropicStream(request.model, f"msg_scripted{new_id():08d}")

    def refuse(self, error: HttpError) -> Refusal:
        kind = error.kind or _KINDS.get(error.status, "api_error")
        message = error.message or _MESSAGES.get(error.status, "The script refuses.")
        headers = () if error.retry_after is None else (("retry-after", f"{error.retry_after:g}"),)
        return Refusal(error.status, {"type": "error", "error": {"type": kind, "message": message}}, headers)

    def overflow(self) -> HttpError | StreamError:
        return HttpError(400, "prompt is too long: 250000 tokens > 200000 maximum")


def _turns(message: Json) -> Iterator[ConversationTurn]:
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else records(content)
    texts = [block for block in blocks if block.get("type") == "text"]
    if message.get("role") == "assistant":
        calls = tuple(
            PastCall(str(block.get("id")), str(block.get("name")), block.get("input"))
            for block in blocks
            if block.get("type") == "tool_use"
        )
        yield ConversationTurn("model", text_of(texts), calls)
        return
    results = tuple(
        CallResult(
            str(block.get("tool_use_id")), typed_text(text_of(block.get("content"))), bool(block.get("is_error"))
        )
        for block in blocks
        if block.get("type") == "tool_result"
    )
    if results:
        yield ConversationTurn("tool", results=results)
    for block in texts:  # one message may hold several prompts: what failed before stays in the conversation
        if prompt := typed_text(text_of([block])):
            yield ConversationTurn("user", prompt)


def _side(system: str, turns: Sequence[ConversationTurn], body: Json) -> str:
    if body.get("max_tokens") == 1:
        return "probe"
    if turns and turns[-1].role == "user" and _SUMMARY_PROMPT in turns[-1].text:
        return "summary"
    return next((name for name, marks in _SIDE_SYSTEM.items() if any(mark in system for mark in marks)), "")


# -------------------------------------------------------------------------------------------------------- tools


_DEFERRED = ("Task", "Web", "AskUserQuestion", "mcp__")


def native_calls(call: ScriptedCall, request: ModelRequest) -> list[NativeCall]:
    """The call in Claude Code's words. Tools it keeps behind its tool search work unseen: they count as offered."""
    calls = _native_calls(call, request)
    if "ToolSearch" not in request.tools:
        return calls
    return [msgspec.structs.replace(made, offered=True) if made.name.startswith(_DEFERRED) else made for made in calls]


def _native_calls(call: ScriptedCall, request: ModelRequest) -> list[NativeCall]:
    fields, tools = call.input, request.tools
    if call.native:
        return [pick(tools, call.tool, dict(fields))]
    path = absolute(fields.get("path"), request.cwd)
    match call.tool:
        case "shell":
            more = {"run_in_background": True} if fields.get("background") else {}
            return [pick(tools, "Bash", {"command": fields["command"], "description": "Run a command", **more})]
        case "read_file":
            return [pick(tools, "Read", {"file_path": path})]
        case "write_file":
            return [pick(tools, "Write", {"file_path": path, "content": fields["content"]})]
        case "edit_file":
            edit = {"file_path": path, "old_string": fields["old"], "new_string": fields["new"]}
            return [pick(tools, "Edit", edit)]
        case "search_content" if "Grep" in tools:
            return [pick(tools, "Grep", {"pattern": fields["pattern"], "path": path, "output_mode": "content"})]
        case "find_files" if "Glob" in tools:
            return [pick(tools, "Glob", {"pattern": fields["pattern"], "path": path})]
        case "search_content" | "find_files" | "delete_file":
            return [pick(tools, "Bash", {"command": file_commands(call), "description": "Look at files"})]
        case "web_fetch":
            return [pick(tools, "WebFetch", {"url": fields["url"], "prompt": "What does it say?"})]
        case "web_search":
            return [pick(tools, "WebSearch", {"query": fields["query"]})]
        case "plan":
            return _plan(fields["items"], request)
        case "task":
            task = {"subagent_type": "general-purpose", "prompt": fields["prompt"], **_in_the_foreground(request)}
            return [pick(tools, ("Agent", "Task"), {"description": fields.get("description", "Sub-agent"), **task})]
        case "mcp":
            return [pick(tools, f"mcp__{fields['server']}__{fields['tool']}", fields["arguments"])]
        case "question":
            options = [{"label": option, "description": option} for option in fields["options"]]
            asks = {"question": fields["text"], "header": "Question", "options": options, "multiSelect": False}
            return [pick(tools, "AskUserQuestion", {"questions": [asks]})]
        case _:
            return [pick(tools, call.tool, dict(fields))]


def _in_the_foreground(request: ModelRequest) -> Json:
    """Some versions start sub-agents in the background by default; a scripted task is waited for."""
    fields = record(record(record(request.tools.get("Agent")).get("input_schema")).get("properties"))
    return {"run_in_background": False} if "run_in_background" in fields else {}


def _plan(items: Sequence[Mapping[str, str]], request: ModelRequest) -> list[NativeCall]:
    if "TodoWrite" in request.tools:
        todos = [{"content": item["text"], "status": item["status"], "activeForm": item["text"]} for item in items]
        return [NativeCall("TodoWrite", {"todos": todos})]
    made = _tasks_made(request)
    calls: list[NativeCall] = []
    for item in items:
        if item["text"] in made:
            status = {"taskId": made[item["text"]], "status": item["status"]}
            calls.append(pick(request.tools, "TaskUpdate", status))
        else:
            calls.append(pick(request.tools, "TaskCreate", {"subject": item["text"], "description": item["text"]}))
    return calls


def _tasks_made(request: ModelRequest) -> dict[str, str]:
    """The tasks of this conversation: their subjects and their numbers."""
    numbers = {
        result.id: found.group(1)
        for turn in request.turns
        for result in turn.results
        if (found := re.search(r"#(\d+)", result.output))
    }
    return {
        str(record(call.input).get("subject")): numbers[call.id]
        for turn in request.turns
        for call in turn.calls
        if call.name == "TaskCreate" and call.id in numbers
    }


# --------------------------------------------------------------------------------------------------------- answers


class AnthropicStream:
    """One message, block by block."""

    def __init__(self, model: str, message_id: str) -> None:
        self._message: Json = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        self._blocks: list[Json] = self._message["content"]

    def begin(self) -> Iterator[bytes]:
        usage = _usage(UsageOverride(output=1))
        yield _event("message_start", message={**self._message, "content": [], "usage": usage})
        yield _event("ping")

    def say(self, pieces: Iterable[str]) -> Iterator[bytes]:
        block = {"type": "text", "text": ""}
        yield from self._block(block, "text", ({"type": "text_delta", "text": piece} for piece in pieces))

    def think(self, text: str) -> Iterator[bytes]:
        signature = "c2NyaXB0ZWQ="
        deltas = [
            {"type": "thinking_delta", "thinking": text[: len(text) // 2]},
            {"type": "thinking_delta", "thinking": text[len(text) // 2 :]},
            {"type": "signature_delta", "signature": signature},
        ]
        yield from self._block({"type": "thinking", "thinking": "", "signature": ""}, "thinking", deltas)

    def call(self, call: NativeCall, call_id: str) -> Iterator[bytes]:
        whole = json.dumps(call.input)
        half = len(whole) // 2
        block: Json = {"type": "tool_use", "id": call_id, "name": call.name, "input": {}}
        parts = [{"type": "input_json_delta", "partial_json": part} for part in (whole[:half], whole[half:])]
        yield from self._block(block, "", parts)
        self._blocks[-1]["input"] = call.input

    def _block(self, block: Json, field: str, deltas: Iterable[Json]) -> Iterator[bytes]:
        index = len(self._blocks)
        yield _event("content_block_start", index=index, content_block=dict(block))
        self._blocks.append(block)
        gathered: list[str] = []
        for delta in deltas:
            if field in delta:
                gathered.append(delta[field])
            if "signature" in delta:
                block["signature"] = delta["signature"]
            yield _event("content_block_delta", index=index, delta=delta)
        if field:
            block[field] = "".join(gathered)
        yield _event("content_block_stop", index=index)

    def fail(self, kind: str, message: str) -> Iterator[bytes]:
        named = kind if kind.endswith("_error") else f"{kind}_error"
        yield _event("error", error={"type": named, "message": message})

    def end(self, stop: StopReason, usage: UsageOverride) -> Iterator[bytes]:
        delta = {"stop_reason": self._stop(stop), "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage=_usage(usage))
        yield _event("message_stop")

    def whole(self, stop: StopReason, usage: UsageOverride) -> Json:
        return {**self._message, "stop_reason": self._stop(stop), "usage": _usage(usage)}

    def _stop(self, stop: StopReason) -> str:
        calls = any(block["type"] == "tool_use" for block in self._blocks)
        return "tool_use" if calls and stop == "end" else _STOPS[stop]


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, kind)


def _usage(usage: UsageOverride) -> Json:
    return {
        "input_tokens": usage.input - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "service_tier": "standard",
    }
