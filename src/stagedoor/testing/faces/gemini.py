"""The Gemini API (generateContent and streamGenerateContent), as Gemini CLI uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..asked import (
    Asked,
    Json,
    MadeCall,
    NativeCall,
    Result,
    Turn,
    exit_failed,
    record,
    records,
    smallest,
    text_of,
    typed,
)
from ..playback import Answered
from ..script import Call, HttpError, Part, Say, StopReason, StreamError, Think, UsageOverride
from ..stage import Refusal
from .toolbox import file_commands, pick

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


class GeminiFace:
    name = "gemini"

    def reads(self, method: str, path: str) -> bool:
        return method == "POST" and _PATH.search(path) is not None

    def read(self, path: str, headers: dict[str, str], body: Json) -> Asked:
        found = _PATH.search(path)
        model, verb = found.groups() if found else ("", "")
        declared = [
            declaration
            for tool in records(body.get("tools"))
            for declaration in records(tool.get("functionDeclarations"))
        ]
        # The CLI itself only ever streams its conversation; what it asks for in one piece are errands of its own.
        errand = verb == "generateContent" and "GeminiCLI" in headers.get("user-agent", "")
        return Asked(
            face=self.name,
            path=path,
            body=body,
            model=model,
            stream=verb == "streamGenerateContent",
            system=text_of(record(body.get("systemInstruction")).get("parts")),
            turns=tuple(turn for content in records(body.get("contents")) for turn in _turns(content)),
            tools={str(declaration.get("name", "")): declaration for declaration in declared},
            side=("choice" if _schema(body) else "errand") if errand else "",
        )

    def native(self, call: Call, asked: Asked) -> list[NativeCall]:
        return [native_call(call, asked.tools)]

    def settle(self, asked: Asked, parts: Sequence[Part]) -> Sequence[Part]:
        """A sub-agent ends by a call, not by falling silent: its last words become that call."""
        if "complete_task" not in asked.tools or not parts or not all(isinstance(part, Say | Think) for part in parts):
            return parts
        said = "".join(part.text for part in parts if isinstance(part, Say))
        schema = record(record(asked.tools["complete_task"].get("parametersJsonSchema")).get("properties"))
        fields = record(record(schema.get("result")).get("properties"))
        result: Any = {name: said for name in fields} if fields else said
        return [*parts, Call("complete_task", {"result": result}, native=True)]

    def follow_up(self, asked: Asked, last: Sequence[Answered]) -> list[tuple[Call, NativeCall]]:
        return []

    def side_answer(self, asked: Asked) -> str:
        schema = _schema(asked.body)
        return json.dumps(smallest(schema)) if schema else "A scripted side answer."

    def wire(self, asked: Asked, new_id: Callable[[], int]) -> GeminiWire:
        return GeminiWire(asked.model, f"scripted{new_id():08d}")

    def refuse(self, error: HttpError) -> Refusal:
        status, message = _STATUS.get(error.status, ("UNKNOWN", "The script says no."))
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


def _turns(content: Json) -> Iterator[Turn]:
    parts = records(content.get("parts"))
    text = "".join(part["text"] for part in parts if isinstance(part.get("text"), str) and not part.get("thought"))
    if content.get("role") == "model":
        made = [record(part["functionCall"]) for part in parts if "functionCall" in part]
        calls = tuple(MadeCall(str(call.get("id", "")), str(call.get("name")), call.get("args")) for call in made)
        yield Turn("model", text, calls)
        return
    results = tuple(_result(record(part["functionResponse"])) for part in parts if "functionResponse" in part)
    if results:
        yield Turn("tool", results=results)
    if said := typed(text):
        yield Turn("user", said)


def _result(answer: Json) -> Result:
    response = record(answer.get("response"))
    failed = "error" in response
    output = response.get("error") if failed else response.get("output", response)
    text = output if isinstance(output, str) else json.dumps(output)
    return Result(str(answer.get("id", "")), text, failed or exit_failed(text), str(answer.get("name", "")))


def native_call(call: Call, tools: Mapping[str, Json]) -> NativeCall:
    given = call.input
    if call.native:
        return pick(tools, call.tool, dict(given))
    match call.tool:
        case "shell":
            more = {"is_background": True} if given.get("background") else {}
            run = {"command": given["command"], "description": "Run a command", **more}
            return pick(tools, "run_shell_command", run)
        case "delete_file":
            return pick(tools, "run_shell_command", {"command": file_commands(call), "description": "Delete a file"})
        case "read_file":
            return pick(tools, "read_file", {"file_path": given["path"]})
        case "write_file":
            return pick(tools, "write_file", {"file_path": given["path"], "content": given["content"]})
        case "edit_file":
            change = {"old_string": given["old"], "new_string": given["new"], "instruction": "Make the scripted edit"}
            return pick(tools, "replace", {"file_path": given["path"], **change})
        case "search_content":
            return pick(
                tools, ("grep_search", "search_file_content"), {"pattern": given["pattern"], "dir_path": given["path"]}
            )
        case "find_files":
            return pick(tools, "glob", {"pattern": given["pattern"], "dir_path": given["path"]})
        case "web_fetch":
            return pick(tools, "web_fetch", {"prompt": f"What does {given['url']} say?"})
        case "web_search":
            return pick(tools, "google_web_search", {"query": given["query"]})
        case "plan":
            todos = [{"description": item["text"], "status": item["status"]} for item in given["items"]]
            return pick(tools, "write_todos", {"todos": todos})
        case "task":
            return pick(tools, "invoke_agent", {"agent_name": _agent(tools), "prompt": given["prompt"]})
        case "mcp":
            return pick(tools, f"mcp_{given['server']}_{given['tool']}", given["arguments"])
        case "question":
            options = [{"label": option, "description": option} for option in given["options"]]
            asks = {"question": given["text"], "header": "Question", "type": "choice", "options": options}
            return pick(tools, "ask_user", {"questions": [asks]})
        case _:
            return pick(tools, call.tool, dict(given))


def _agent(tools: Mapping[str, Json]) -> str:
    """The sub-agent for any work, among those the tool's description names."""
    described = json.dumps(record(tools.get("invoke_agent")))
    return (
        "generalist"
        if "generalist" in described or "codebase_investigator" not in described
        else "codebase_investigator"
    )


class GeminiWire:
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
