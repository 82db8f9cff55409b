"""The Gemini API (generateContent and streamGenerateContent), as Gemini CLI uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..answers import Refusal
from ..model_request import (
    CallResult,
    ConversationTurn,
    Json,
    ModelRequest,
    NativeCall,
    PastCall,
    exit_failed,
    file_commands,
    pick,
    record,
    records,
    smallest,
    text_of,
    typed_text,
)
from ..reply_choice import AnsweredCall
from ..script import HttpError, Part, Say, ScriptedCall, StopReason, StreamError, Think, UsageOverride

_PATH = re.compile(r"/models/([^/:]+):(generateContent|streamGenerateContent)$")
_STATUS = {
    400: ("INVALID_ARGUMENT", "The request is not valid."),
    401: ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
    403: ("PERMISSION_DENIED", "The caller does not have permission."),
    404: ("NOT_FOUND", "models/scripted is not found for API version v1beta."),
    429: ("RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    500: ("INTERNAL", "An internal error has occurred."),
    503: ("UNAVAILABLE", "The model is overloaded. Please try again later."),
    529: ("UNAVAILABLE", "The model is overloaded. Please try again later."),
}
_STOPS: Mapping[StopReason, str] = {
    "end": "STOP",
    "max_tokens": "MAX_TOKENS",
    "refusal": "SAFETY",
    "content_filter": "SAFETY",
}


class GeminiApi:
    name = "gemini"

    def accepts(self, method: str, path: str) -> bool:
        return method == "POST" and _PATH.search(path) is not None

    def read(self, path: str, headers: dict[str, str], body: Json) -> ModelRequest:
        match = _PATH.search(path)
        model, verb = match.groups() if match else ("", "")
        declared = [
            declaration
            for tool in records(body.get("tools"))
            for declaration in records(tool.get("functionDeclarations"))
        ]
        # The CLI always streams its conversation; what it asks for in one piece stands beside it.
        is_side_call = verb == "generateContent" and "GeminiCLI" in headers.get("user-agent", "")
        return ModelRequest(
            api=self.name,
            path=path,
            body=body,
            model=model,
            stream=verb == "streamGenerateContent",
            system=text_of(record(body.get("systemInstruction")).get("parts")),
            turns=tuple(turn for content in records(body.get("contents")) for turn in _turns(content)),
            tools={str(declaration.get("name", "")): declaration for declaration in declared},
            side=("choice" if _schema(body) else "other") if is_side_call else "",
        )

    def native(self, call: ScriptedCall, request: ModelRequest) -> list[NativeCall]:
        return [native_call(call, request.tools)]

    def complete_parts(self, request: ModelRequest, parts: Sequence[Part]) -> Sequence[Part]:
        """A sub-agent ends by a call, not by silence: its final text becomes that call."""
        if (
            "complete_task" not in request.tools
            or not parts
            or not all(isinstance(part, Say | Think) for part in parts)
        ):
            return parts
        text = "".join(part.text for part in parts if isinstance(part, Say))
        schema = record(record(request.tools["complete_task"].get("parametersJsonSchema")).get("properties"))
        fields = record(record(schema.get("result")).get("properties"))
        result: Any = {name: text for name in fields} if fields else text
        return [*parts, ScriptedCall("complete_task", {"result": result}, native=True)]

    def follow_up(self, request: ModelRequest, last: Sequence[AnsweredCall]) -> list[tuple[ScriptedCall, NativeCall]]:
        return []

    def side_answer(self, request: ModelRequest) -> str:
        schema = _schema(request.body)
        return json.dumps(smallest(schema)) if schema else "A scripted side answer."

    def stream(self, request: ModelRequest, new_id: Callable[[], int]) -> GeminiStream:
        return GeminiStream(request.model, f"scripted{new_id():08d}")

    def refuse(self, error: HttpError) -> Refusal:
        status, message = _STATUS.get(error.status, ("UNKNOWN", "The script refuses."))
        body: Json = {"code": error.status, "message": error.message or message, "status": error.kind or status}
        if error.retry_after is not None:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            body["details"] = [{"@type": kind, "retryDelay": f"{error.retry_after:g}s"}]
        headers = () if error.retry_after is None else (("retry-after", f"{error.retry_after:g}"),)
        return Refusal(error.status, {"error": body}, headers)

    def overflow(self) -> HttpError | StreamError:
        return HttpError(400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).")


def _schema(body: Json) -> Json:
    config = record(body.get("generationConfig"))
    return record(config.get("responseJsonSchema") or config.get("responseSchema"))


def _turns(content: Json) -> Iterator[ConversationTurn]:
    parts = records(content.get("parts"))
    text = "".join(part["text"] for part in parts if isinstance(part.get("text"), str) and not part.get("thought"))
    if content.get("role") == "model":
        native = [record(part["functionCall"]) for part in parts if "functionCall" in part]
        calls = tuple(PastCall(str(call.get("id", "")), str(call.get("name")), call.get("args")) for call in native)
        yield ConversationTurn("model", text, calls)
        return
    results = tuple(_result(record(part["functionResponse"])) for part in parts if "functionResponse" in part)
    if results:
        yield ConversationTurn("tool", results=results)
    if prompt := typed_text(text):
        yield ConversationTurn("user", prompt)


def _result(answer: Json) -> CallResult:
    response = record(answer.get("response"))
    failed = "error" in response
    output = response.get("error") if failed else response.get("output", response)
    text = output if isinstance(output, str) else json.dumps(output)
    return CallResult(str(answer.get("id", "")), text, failed or exit_failed(text), str(answer.get("name", "")))


def native_call(call: ScriptedCall, tools: Mapping[str, Json]) -> NativeCall:
    fields = call.input
    if call.native:
        return pick(tools, call.tool, dict(fields))
    match call.tool:
        case "shell":
            more = {"is_background": True} if fields.get("background") else {}
            run = {"command": fields["command"], "description": "Run a command", **more}
            return pick(tools, "run_shell_command", run)
        case "delete_file":
            return pick(tools, "run_shell_command", {"command": file_commands(call), "description": "Delete a file"})
        case "read_file":
            return pick(tools, "read_file", {"file_path": fields["path"]})
        case "write_file":
            return pick(tools, "write_file", {"file_path": fields["path"], "content": fields["content"]})
        case "edit_file":
            change = {"old_string": fields["old"], "new_string": fields["new"], "instruction": "Make the scripted edit"}
            return pick(tools, "replace", {"file_path": fields["path"], **change})
        case "search_content":
            return pick(
                tools,
                ("grep_search", "search_file_content"),
                {"pattern": fields["pattern"], "dir_path": fields["path"]},
            )
        case "find_files":
            return pick(tools, "glob", {"pattern": fields["pattern"], "dir_path": fields["path"]})
        case "web_fetch":
            return pick(tools, "web_fetch", {"prompt": f"What does {fields['url']} say?"})
        case "web_search":
            return pick(tools, "google_web_search", {"query": fields["query"]})
        case "plan":
            todos = [{"description": item["text"], "status": item["status"]} for item in fields["items"]]
            return pick(tools, "write_todos", {"todos": todos})
        case "task":
            return pick(tools, "invoke_agent", {"agent_name": _agent(tools), "prompt": fields["prompt"]})
        case "mcp":
            return pick(tools, f"mcp_{fields['server']}_{fields['tool']}", fields["arguments"])
        case "question":
            options = [{"label": option, "description": option} for option in fields["options"]]
            asks = {"question": fields["text"], "header": "Question", "type": "choice", "options": options}
            return pick(tools, "ask_user", {"questions": [asks]})
        case _:
            return pick(tools, call.tool, dict(fields))


def _agent(tools: Mapping[str, Json]) -> str:
    """The sub-agent for any work, among those the tool's description names."""
    described = json.dumps(record(tools.get("invoke_agent")))
    return (
        "generalist"
        if "generalist" in described or "codebase_investigator" not in described
        else "codebase_investigator"
    )


class GeminiStream:
    """One candidate, part by part."""

    def __init__(self, model: str, response_id: str) -> None:
        self._model, self._id = model, response_id
        self._parts: list[Json] = []

    def begin(self) -> Iterator[bytes]:
        return iter(())

    def say(self, pieces: Iterable[str]) -> Iterator[bytes]:
        for piece in pieces:
            yield self._part({"text": piece})

    def think(self, text: str) -> Iterator[bytes]:
        subject = text if text.startswith("**") else f"**Thinking**\n{text}"
        yield self._part({"text": subject, "thought": True})

    def call(self, call: NativeCall, call_id: str) -> Iterator[bytes]:
        yield self._part({"functionCall": {"id": call_id, "name": call.name, "args": call.input}})

    def fail(self, kind: str, message: str) -> Iterator[bytes]:
        status = {"overloaded": "UNAVAILABLE"}.get(kind, kind)
        yield _sse({"error": {"code": 503, "message": message, "status": status}})

    def end(self, stop: StopReason, usage: UsageOverride) -> Iterator[bytes]:
        yield _sse(self._response([{"text": ""}], usage, _STOPS[stop]))

    def whole(self, stop: StopReason, usage: UsageOverride) -> Json:
        return self._response(_joined(self._parts) or [{"text": ""}], usage, _STOPS[stop])

    def _part(self, part: Json) -> bytes:
        self._parts.append(part)
        return _sse(self._response([part], UsageOverride(output=1)))

    def _response(self, parts: list[Json], usage: UsageOverride, finish: str | None = None) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        counted = {
            "promptTokenCount": usage.input,
            "candidatesTokenCount": usage.output - usage.reasoning,
            "thoughtsTokenCount": usage.reasoning,
            "cachedContentTokenCount": usage.cached,
            "totalTokenCount": usage.input + usage.output,
        }
        return {
            "candidates": [candidate],
            "usageMetadata": counted,
            "modelVersion": self._model,
            "responseId": self._id,
        }


def _joined(parts: list[Json]) -> list[Json]:
    """The parts of a whole answer: what was streamed in pieces is one text."""
    joined: list[Json] = []
    for part in parts:
        if joined and "text" in part and "text" in joined[-1] and "thought" not in part | joined[-1]:
            joined[-1] = {"text": joined[-1]["text"] + part["text"]}
        else:
            joined.append(part)
    return joined


def _sse(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\r\n\r\n"
