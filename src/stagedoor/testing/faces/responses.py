"""The OpenAI Responses API, as Codex uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..asked import Asked, Json, MadeCall, NativeCall, Result, Turn, exit_failed, record, records, text_of, typed
from ..playback import Answered
from ..script import Call, HttpError, Part, StopReason, StreamError, UsageOverride
from ..stage import Refusal, sse
from .codex_tools import native_calls, sub_agent_calls

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
    kind, code, message = OPENAI_ERRORS.get(error.status, ("server_error", None, "The script says no."))
    if error.kind:
        kind = code = error.kind
    headers = () if error.retry_after is None else (("retry-after", f"{error.retry_after:g}"),)
    body = {"error": {"message": error.message or message, "type": kind, "param": None, "code": code}}
    return Refusal(error.status, body, headers)


class ResponsesFace:
    name = "responses"

    def reads(self, method: str, path: str) -> bool:
        return method == "POST" and path.endswith("/responses")

    def read(self, path: str, headers: dict[str, str], body: Json) -> Asked:
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else records(given)
        turns = tuple(_turns(items))
        developer = [text_of(item.get("content")) for item in items if item.get("role") in ("developer", "system")]
        session = headers.get("thread-id") or headers.get("session_id") or headers.get("session-id") or ""
        return Asked(
            face=self.name,
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

    def native(self, call: Call, asked: Asked) -> list[NativeCall]:
        return native_calls(call, asked.tools)

    def settle(self, asked: Asked, parts: Sequence[Part]) -> Sequence[Part]:
        return parts

    def follow_up(self, asked: Asked, last: Sequence[Answered]) -> list[tuple[Call, NativeCall]]:
        return sub_agent_calls(asked.tools, last)

    def side_answer(self, asked: Asked) -> str:
        return "Scripted session" if asked.side == "title" else "A summary of the scripted conversation."

    def wire(self, asked: Asked, new_id: Callable[[], int]) -> ResponsesWire:
        return ResponsesWire(asked.model, new_id)

    def refuse(self, error: HttpError) -> Refusal:
        return refuse_as_openai(error)

    def overflow(self) -> HttpError | StreamError:
        return StreamError("context_length_exceeded", "Your input exceeds the context window of this model.")


def _turns(items: Sequence[Json]) -> Iterator[Turn]:
    """The items grouped into turns: all that the model said between two answers belongs together."""
    said: list[str] = []
    calls: list[MadeCall] = []
    results: list[Result] = []

    def close(role: str) -> Iterator[Turn]:
        if role != "model" and (said or calls):
            yield Turn("model", "\n".join(said), tuple(calls))
            said.clear()
            calls.clear()
        if role != "tool" and results:
            yield Turn("tool", results=tuple(results))
            results.clear()

    for item in items:
        kind = str(item.get("type", "message"))
        if kind == "message" and item.get("role") == "user":
            yield from close("user")
            if text := typed(_without_agents_md(text_of(item.get("content")))):
                yield Turn("user", text)
        elif kind == "message" and item.get("role") == "assistant":
            yield from close("model")
            said.append(text_of(item.get("content")))
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            yield from close("model")
            given = item.get("arguments", item.get("input"))
            calls.append(MadeCall(str(item.get("call_id")), str(item.get("name")), given))
        elif kind == "agent_message":  # agents of one team write to each other
            yield from close("user")
            letter = text_of(item.get("content")) + "".join(
                str(part["encrypted_content"]) for part in records(item.get("content")) if "encrypted_content" in part
            )
            if "Message Type: NEW_TASK" in letter:
                yield Turn("user", letter.partition("Payload:")[2].strip())
            else:
                yield Turn("tool", results=(Result("", letter, name="agent_message"),))
        elif kind.endswith("_output"):
            yield from close("tool")
            results.append(_result(item))
    yield from close("end")


def _without_agents_md(text: str) -> str:
    return re.sub(r"^# AGENTS\.md instructions for .*?\n\n(?=<INSTRUCTIONS>)", "", text)


def _result(item: Json) -> Result:
    output: Any = item.get("output")
    if isinstance(output, dict):
        output = record(output).get("content", "")
    text = text_of(output) if isinstance(output, list) else str(output)
    failed = exit_failed(text) or re.match(r"(?:\w+ )?(?:failed|rejected|unsupported call|error)\b", text) is not None
    return Result(str(item.get("call_id")), text, failed)


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


def _side(turns: Sequence[Turn]) -> str:
    newest = turns[-1].text if turns and turns[-1].role == "user" else ""
    return next((name for name, marks in _SIDE.items() if any(newest.startswith(mark) for mark in marks)), "")


class ResponsesWire:
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
