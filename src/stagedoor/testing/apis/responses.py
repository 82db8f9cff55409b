"""The OpenAI Responses API, as Codex uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..answers import Refusal, sse
from ..model_request import (
    CallResult,
    ConversationTurn,
    Json,
    ModelRequest,
    NativeCall,
    PastCall,
    exit_failed,
    file_commands,
    record,
    records,
    text_of,
    typed_text,
)
from ..reply_choice import AnsweredCall
from ..script import HttpError, Part, ScriptedCall, StopReason, StreamError, UsageOverride

_SIDE = {
    "summary": ("You are performing a CONTEXT CHECKPOINT COMPACTION",),
    "title": ("Generate a short title", "Generate a concise title"),
}
OPENAI_ERRORS: Mapping[int, tuple[str, str | None, str]] = {
    400: ("invalid_request_error", "invalid_value", "Invalid value for 'input'."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("permission_error", "forbidden", "You are not allowed to use this model."),
    404: ("invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."),
    413: ("invalid_request_error", "request_too_large", "Request too large."),
    429: ("rate_limit_error", "rate_limit_exceeded", "Rate limit reached. Please try again in 1s."),
    500: ("server_error", None, "The server had an error while processing your request."),
    503: ("server_error", None, "The server is overloaded."),
    529: ("server_error", None, "The server is overloaded."),
}


def refuse_as_openai(error: HttpError) -> Refusal:
    kind, code, message = OPENAI_ERRORS.get(error.status, ("server_error", None, "The script refuses."))
    if error.kind:
        kind = code = error.kind
    headers = () if error.retry_after is None else (("retry-after", f"{error.retry_after:g}"),)
    body = {"error": {"message": error.message or message, "type": kind, "param": None, "code": code}}
    return Refusal(error.status, body, headers)


class ResponsesApi:
    name = "responses"

    def accepts(self, method: str, path: str) -> bool:
        return method == "POST" and path.endswith("/responses")

    def read(self, path: str, headers: dict[str, str], body: Json) -> ModelRequest:
        content = body.get("input")
        items = [{"role": "user", "content": content}] if isinstance(content, str) else records(content)
        turns = tuple(_turns(items))
        developer = [text_of(item.get("content")) for item in items if item.get("role") in ("developer", "system")]
        session = headers.get("thread-id") or headers.get("session_id") or headers.get("session-id") or ""
        return ModelRequest(
            api=self.name,
            path=path,
            body=body,
            model=str(body.get("model", "")),
            stream=bool(body.get("stream")),
            system="\n".join([str(body.get("instructions") or ""), *developer]),
            turns=turns,
            tools=_tools(body, items),
            session=session or str(body.get("prompt_cache_key") or ""),
            side=_side(turns),
        )

    def native(self, call: ScriptedCall, request: ModelRequest) -> list[NativeCall]:
        return native_calls(call, request.tools)

    def complete_parts(self, request: ModelRequest, parts: Sequence[Part]) -> Sequence[Part]:
        return parts

    def follow_up(self, request: ModelRequest, last: Sequence[AnsweredCall]) -> list[tuple[ScriptedCall, NativeCall]]:
        return sub_agent_calls(request.tools, last)

    def side_answer(self, request: ModelRequest) -> str:
        return "Scripted session" if request.side == "title" else "A summary of the scripted conversation."

    def stream(self, request: ModelRequest, new_id: Callable[[], int]) -> ResponsesStream:
        return ResponsesStream(request.model, new_id)

    def refuse(self, error: HttpError) -> Refusal:
        return refuse_as_openai(error)

    def overflow(self) -> HttpError | StreamError:
        return StreamError("context_length_exceeded", "Your input exceeds the context window of this model.")


def _turns(items: Sequence[Json]) -> Iterator[ConversationTurn]:
    """The items grouped into turns: all that the model wrote between two answers belongs together."""
    texts: list[str] = []
    calls: list[PastCall] = []
    results: list[CallResult] = []

    def close(role: str) -> Iterator[ConversationTurn]:
        if role != "model" and (texts or calls):
            yield ConversationTurn("model", "\n".join(texts), tuple(calls))
            texts.clear()
            calls.clear()
        if role != "tool" and results:
            yield ConversationTurn("tool", results=tuple(results))
            results.clear()

    for item in items:
        kind = str(item.get("type", "message"))
        if kind == "message" and item.get("role") == "user":
            yield from close("user")
            if text := typed_text(_without_agents_md(text_of(item.get("content")))):
                yield ConversationTurn("user", text)
        elif kind == "message" and item.get("role") == "assistant":
            yield from close("model")
            texts.append(text_of(item.get("content")))
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            yield from close("model")
            arguments = item.get("arguments", item.get("input"))
            calls.append(PastCall(str(item.get("call_id")), str(item.get("name")), arguments))
        elif kind == "agent_message":  # agents of one team write to each other
            yield from close("user")
            letter = text_of(item.get("content")) + "".join(
                str(part["encrypted_content"]) for part in records(item.get("content")) if "encrypted_content" in part
            )
            if "Message Type: NEW_TASK" in letter:
                yield ConversationTurn("user", letter.partition("Payload:")[2].strip())
            else:
                yield ConversationTurn("tool", results=(CallResult("", letter, name="agent_message"),))
        elif kind.endswith("_output"):
            yield from close("tool")
            results.append(_result(item))
    yield from close("end")


def _without_agents_md(text: str) -> str:
    return re.sub(r"^# AGENTS\.md instructions for .*?\n\n(?=<INSTRUCTIONS>)", "", text)


def _result(item: Json) -> CallResult:
    output: Any = item.get("output")
    if isinstance(output, dict):
        output = record(output).get("content", "")
    text = text_of(output) if isinstance(output, list) else str(output)
    failed = exit_failed(text) or re.match(r"(?:\w+ )?(?:failed|rejected|unsupported call|error)\b", text) is not None
    return CallResult(str(item.get("call_id")), text, failed)


def _tools(body: Json, items: Sequence[Json]) -> dict[str, Json]:
    listed = records(body.get("tools"))
    for item in items:  # models of the "lite" kind get their tools inside the conversation
        if item.get("type") == "additional_tools":
            listed += records(item.get("tools"))
    tools: dict[str, Json] = {}
    for tool in listed:
        if tool.get("type") == "namespace":
            for inner in records(tool.get("tools")):
                tools[str(inner.get("name"))] = {**inner, "namespace": tool.get("name")}
        else:
            tools[str(tool.get("name") or tool.get("type"))] = tool
    return tools


def _side(turns: Sequence[ConversationTurn]) -> str:
    newest = turns[-1].text if turns and turns[-1].role == "user" else ""
    return next((name for name, marks in _SIDE.items() if any(newest.startswith(mark) for mark in marks)), "")


# ---------------------------------------------------------------------------------------------------------- tools
# They live in three worlds: plain functions, a free-form patch tool, and *code mode*, where the model is given one
# JavaScript tool, ``exec``, and calls everything else from inside it.

Tools = Mapping[str, Json]


def native_calls(call: ScriptedCall, tools: Tools) -> list[NativeCall]:
    fields = call.input
    if call.native:
        return [_function(tools, call.tool, dict(fields))]
    match call.tool:
        case "shell":
            return [_shell(tools, str(fields["command"]), fields)]
        case "read_file" | "search_content" | "find_files":
            return [_shell(tools, file_commands(call), {})]
        case "write_file" | "edit_file" | "delete_file":
            return [_patch(tools, _diff(call))]
        case "web_fetch":
            return [_hosted(tools, {"type": "open_page", "url": fields["url"]})]
        case "web_search":
            return [_hosted(tools, {"type": "search", "query": fields["query"], "queries": [fields["query"]]})]
        case "plan":
            steps = [{"step": item["text"], "status": item["status"]} for item in fields["items"]]
            return [_function(tools, "update_plan", {"plan": steps})]
        case "task":
            return [_spawn(tools, str(fields["prompt"]))]
        case "mcp":
            return [_mcp(tools, str(fields["server"]), str(fields["tool"]), fields["arguments"])]
        case "question":
            options = [{"label": option, "description": option} for option in fields["options"]]
            asks = {"id": "question", "header": "Question", "question": fields["text"], "options": options}
            return [_function(tools, "request_user_input", {"questions": [asks]})]
        case _:
            return [_function(tools, call.tool, dict(fields))]


_DEFERRED = {"spawn_agent": "multi_agent_v1", "wait_agent": "multi_agent_v1"}
"""Tools that some models have to search for before they see them, with their namespaces: they work unseen, too."""


def _function(tools: Tools, name: str, arguments: Any) -> NativeCall:
    """A function tool: called straight, or from inside a code cell."""
    tool = tools.get(name)
    if tool is not None:
        if tool.get("type") == "custom":
            source = arguments if isinstance(arguments, str) else str(next(iter(record(arguments).values()), ""))
            return NativeCall(name, source, kind="custom")
        return NativeCall(name, arguments, namespace=str(tool.get("namespace") or ""))
    if "exec" in tools:
        return _cell(f"tools[{json.dumps(name)}]({json.dumps(arguments)})")
    if "tool_search" in tools and name in _DEFERRED:
        return NativeCall(name, arguments, namespace=_DEFERRED[name])
    return NativeCall(name, arguments, offered=False)


def _cell(expression: str) -> NativeCall:
    return NativeCall("exec", f"const result = await {expression}; text(result);", kind="custom")


def _shell(tools: Tools, command: str, fields: Mapping[str, Any]) -> NativeCall:
    more: Json = {}
    if reason := fields.get("escalate"):
        more = {"sandbox_permissions": "require_escalated", "justification": reason}
    if "exec_command" in tools:
        return NativeCall("exec_command", {"cmd": command, **more})
    if "exec" in tools:
        return _cell(f"tools.exec_command({json.dumps({'cmd': command, **more})})")
    if "shell_command" in tools:
        return NativeCall("shell_command", {"command": command, **more})
    return NativeCall("shell", {"command": ["bash", "-lc", command], **more}, offered="shell" in tools)


def _patch(tools: Tools, diff: str) -> NativeCall:
    tool = tools.get("apply_patch")
    if tool is not None:
        custom = tool.get("type") == "custom"
        return NativeCall("apply_patch", diff if custom else {"input": diff}, kind="custom" if custom else "function")
    if "exec" in tools:
        return _cell(f"tools.apply_patch({json.dumps(diff)})")
    return _shell(tools, f"apply_patch <<'PATCH'\n{diff}\nPATCH", {})


def _diff(call: ScriptedCall) -> str:
    """The patch that makes this change. Codex changes whole lines: so must ``old`` and ``new``."""
    path = call.input["path"]
    match call.tool:
        case "write_file":
            change = [f"*** Add File: {path}", *_marked("+", call.input["content"])]
        case "edit_file":
            old, new = _marked("-", call.input["old"]), _marked("+", call.input["new"])
            change = [f"*** Update File: {path}", "@@", *old, *new]
        case _:
            change = [f"*** Delete File: {path}"]
    return "\n".join(["*** Begin Patch", *change, "*** End Patch"])


def _marked(mark: str, text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [mark + line for line in lines]


def _hosted(tools: Tools, action: Json) -> NativeCall:
    return NativeCall("web_search", action, offered="web_search" in tools, kind="hosted")


def _mcp(tools: Tools, server: str, tool: str, arguments: Any) -> NativeCall:
    whole, folder = f"mcp__{server}__{tool}", f"mcp__{server}"
    for name, offered in tools.items():
        namespace = str(offered.get("namespace") or "")
        if name == whole or (name == tool and namespace.rstrip("_") == folder):
            return NativeCall(name, arguments, namespace=namespace)
    if "exec" in tools and "exec_command" not in tools:
        return _cell(f"tools[{json.dumps(whole)}]({json.dumps(arguments)})")
    return NativeCall(tool, arguments, offered="tool_search" in tools, namespace=folder)


# ---------------------------------------------------------------------------------------------------- sub-agents


def _spawn(tools: Tools, prompt: str) -> NativeCall:
    arguments: Json = {"message": prompt}
    fields = _fields(tools, "spawn_agent")
    if "task_name" in fields:
        arguments["task_name"] = "scripted_task"
    if "fork_turns" in fields:
        arguments["fork_turns"] = "none"
    return _function(tools, "spawn_agent", arguments)


def sub_agent_calls(tools: Tools, last: Sequence[AnsweredCall]) -> list[tuple[ScriptedCall, NativeCall]]:
    """Codex starts a sub-agent and continues; a scripted task ends when the sub-agent ends. So: wait for it."""
    waits: list[tuple[ScriptedCall, NativeCall]] = []
    for answered in last:
        output = answered.result.output
        waiting = answered.follow_up and '"timed_out":true' not in output.replace(" ", "")
        if answered.call.tool != "task" or answered.call.native or waiting or answered.result.error:
            continue
        fields = _fields(tools, "wait_agent") or {"targets": {}, "timeout_ms": {}}
        arguments: Json = {"timeout_ms": 60_000} if "timeout_ms" in fields else {}
        ids = re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", output) or _targets(answered.native)
        for field in ("targets", "ids", "agent_ids"):
            if field in fields:
                arguments[field] = ids[:1]
        waits.append((answered.call, _function(tools, "wait_agent", arguments)))
    return waits


def _targets(native: NativeCall) -> list[str]:
    fields = record(native.input)
    return [str(target) for field in ("targets", "ids", "agent_ids") for target in fields.get(field, [])]


def _fields(tools: Tools, name: str) -> Json:
    return record(record(record(tools.get(name)).get("parameters")).get("properties"))


# -------------------------------------------------------------------------------------------------------- answers


class ResponsesStream:
    """One response, item by item."""

    def __init__(self, model: str, new_id: Callable[[], int]) -> None:
        self._new_id = new_id
        self._sequence = 0
        self._output: list[Json] = []
        self._response: Json = {
            "id": f"resp_scripted{new_id():08d}",
            "object": "response",
            "created_at": 1_700_000_000,
            "model": model,
            "output": self._output,
        }

    def begin(self) -> Iterator[bytes]:
        yield self._event("response.created", response={**self._response, "output": [], "status": "in_progress"})

    def say(self, pieces: Iterable[str]) -> Iterator[bytes]:
        item: Json = {"type": "message", "role": "assistant", "id": f"msg_scripted{self._new_id():08d}"}
        where = {"item_id": item["id"], "output_index": len(self._output), "content_index": 0}
        yield self._added({**item, "content": [], "status": "in_progress"})
        part: Json = {"type": "output_text", "text": "", "annotations": []}
        yield self._event("response.content_part.added", part=dict(part), **where)
        gathered: list[str] = []
        for piece in pieces:
            gathered.append(piece)
            yield self._event("response.output_text.delta", delta=piece, **where)
        part["text"] = "".join(gathered)
        yield self._event("response.output_text.done", text=part["text"], **where)
        yield self._event("response.content_part.done", part=part, **where)
        yield self._done({**item, "content": [part], "status": "completed"})

    def think(self, text: str) -> Iterator[bytes]:
        item: Json = {"type": "reasoning", "id": f"rs_scripted{self._new_id():08d}", "summary": []}
        where = {"item_id": item["id"], "output_index": len(self._output), "summary_index": 0}
        yield self._added(dict(item))
        yield self._event("response.reasoning_summary_part.added", part={"type": "summary_text", "text": ""}, **where)
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
            yield self._event("response.reasoning_summary_text.delta", delta=piece, **where)
        part = {"type": "summary_text", "text": text}
        yield self._event("response.reasoning_summary_text.done", text=text, **where)
        yield self._event("response.reasoning_summary_part.done", part=part, **where)
        yield self._done({**item, "summary": [part], "encrypted_content": "c2NyaXB0ZWQ="})

    def call(self, call: NativeCall, call_id: str) -> Iterator[bytes]:
        if call.kind == "hosted":
            yield from self._hosted(call, call_id)
            return
        custom = call.kind == "custom"
        kind, field, event = (
            ("custom_tool_call", "input", "response.custom_tool_call_input")
            if custom
            else ("function_call", "arguments", "response.function_call_arguments")
        )
        value = str(call.input) if custom else json.dumps(call.input)
        item: Json = {"type": kind, "id": f"fc_scripted{self._new_id():08d}", "call_id": call_id, "name": call.name}
        if call.namespace:
            item["namespace"] = call.namespace
        where = {"item_id": item["id"], "output_index": len(self._output)}
        yield self._added({**item, field: "", "status": "in_progress"})
        yield self._event(f"{event}.delta", delta=value, **where)
        yield self._event(f"{event}.done", **{field: value}, **where)
        yield self._done({**item, field: value, "status": "completed"})

    def _hosted(self, call: NativeCall, call_id: str) -> Iterator[bytes]:
        item: Json = {"type": f"{call.name}_call", "id": f"ws_{call_id}", "action": call.input}
        where = {"item_id": item["id"], "output_index": len(self._output)}
        yield self._added({**item, "status": "in_progress"})
        yield self._event(f"response.{call.name}_call.in_progress", **where)
        yield self._event(f"response.{call.name}_call.completed", **where)
        yield self._done({**item, "status": "completed"})

    def fail(self, kind: str, message: str) -> Iterator[bytes]:
        code = {"overloaded": "server_is_overloaded"}.get(kind, kind)
        failed = {**self._response, "status": "failed", "error": {"code": code, "message": message}}
        yield self._event("response.failed", response=failed)

    def end(self, stop: StopReason, usage: UsageOverride) -> Iterator[bytes]:
        response = self.whole(stop, usage)
        yield self._event(f"response.{response['status']}", response=response)

    def whole(self, stop: StopReason, usage: UsageOverride) -> Json:
        reason = {"max_tokens": "max_output_tokens", "content_filter": "content_filter"}.get(stop)
        ending: Json = {"status": "completed"}
        if reason:
            ending = {"status": "incomplete", "incomplete_details": {"reason": reason}}
        tokens = {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        }
        return {**self._response, **ending, "usage": tokens}

    def _added(self, item: Json) -> bytes:
        return self._event("response.output_item.added", output_index=len(self._output), item=item)

    def _done(self, item: Json) -> bytes:
        self._output.append(item)
        return self._event("response.output_item.done", output_index=len(self._output) - 1, item=item)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._sequence += 1
        return sse({"type": kind, "sequence_number": self._sequence, **fields}, kind)
