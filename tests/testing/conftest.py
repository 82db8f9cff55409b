"""Small clients of the four model APIs: they hold a conversation the way an agent does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from stagedoor.testing import find_cli

TIMEOUT = 240.0


@dataclass
class Reply:
    """What came back, the same for all APIs."""

    status: int = 200
    pieces: list[str] = field(default_factory=list)
    thinking: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    stop: str | None = None
    usage: tuple[int, int, int] | None = None  # input with the cached ones, output, cached
    error: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Client:
    """One conversation. ``ask`` sends a prompt, ``give`` the results of the calls before."""

    path = ""
    session_header = ""

    def __init__(self, url: str, *, tools: tuple[str, ...] = (), stream: bool = True, session: str = "") -> None:
        self.url, self.tools, self.stream, self.session = url, tools, stream, session
        self.history: list[Any] = []
        self.ids: list[str] = []
        self.system = "You are an agent.\nPrimary working directory: /repo\n"

    def copy(self, **changes: Any) -> Client:
        made = type(self)(self.url, tools=self.tools, stream=self.stream, session=changes.get("session", self.session))
        made.history, made.ids = list(self.history), list(self.ids)
        return made

    def ask(self, prompt: str) -> Reply:
        self.history.append(self.user(prompt))
        return self.again()

    def give(self, *outputs: str) -> Reply:
        self.history += self.results(list(zip(self.ids, outputs, strict=True)))
        return self.again()

    def again(self, timeout: float = TIMEOUT) -> Reply:
        """Send the conversation as it stands: the first time or as a retry."""
        headers = {self.session_header: self.session} if self.session else {}
        with (
            httpx.Client(timeout=httpx.Timeout(TIMEOUT, read=timeout), trust_env=False, verify=False) as http,
            http.stream("POST", self.url + self.path, json=self.body(), headers=headers) as answer,
        ):
            reply = Reply(answer.status_code, headers=dict(answer.headers))
            if answer.status_code != 200:
                answer.read()
                reply.error = answer.text
            elif self.stream:
                self.read_stream(reply, events(answer))
            else:
                answer.read()
                self.read_whole(reply, answer.json())
        if reply.status == 200 and not reply.error:
            self.remember(reply)
        return reply

    def user(self, prompt: str) -> Any:
        return {"role": "user", "content": prompt}

    def body(self) -> Any: ...
    def results(self, results: list[tuple[str, str]]) -> list[Any]: ...
    def read_stream(self, reply: Reply, stream: Iterator[Any]) -> None: ...
    def read_whole(self, reply: Reply, answer: Any) -> None: ...
    def remember(self, reply: Reply) -> None: ...


def events(answer: httpx.Response) -> Iterator[Any]:
    for line in answer.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


class AnthropicClient(Client):
    path = "/v1/messages"
    session_header = "x-claude-code-session-id"

    def body(self) -> Any:
        tools = [{"name": name, "input_schema": {}} for name in self.tools]
        return {"model": "m", "system": self.system, "messages": self.history, "tools": tools, "stream": self.stream}

    def results(self, results: list[tuple[str, str]]) -> list[Any]:
        blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": text} for call_id, text in results]
        return [{"role": "user", "content": blocks}]

    def read_stream(self, reply: Reply, stream: Iterator[Any]) -> None:
        self.blocks: list[Any] = []
        for event in stream:
            match event["type"]:
                case "content_block_start":
                    self.blocks.append({**event["content_block"], "json": ""})
                case "content_block_delta":
                    delta = event["delta"]
                    if delta["type"] == "text_delta":
                        reply.pieces.append(delta["text"])
                        self.blocks[-1]["text"] += delta["text"]
                    elif delta["type"] == "thinking_delta":
                        reply.thinking += delta["thinking"]
                    elif delta["type"] == "input_json_delta":
                        self.blocks[-1]["json"] += delta["partial_json"]
                case "message_delta":
                    reply.stop = event["delta"]["stop_reason"]
                    reply.usage = self.count(event["usage"])
                case "error":
                    reply.error = event["error"]["type"]
                case _:
                    pass
        for block in self.blocks:
            if block["type"] == "tool_use":
                block["input"] = json.loads(block.pop("json"))
                reply.calls.append((block["name"], block["input"]))

    def read_whole(self, reply: Reply, answer: Any) -> None:
        self.blocks = answer["content"]
        for block in self.blocks:
            if block["type"] == "text":
                reply.pieces.append(block["text"])
            elif block["type"] == "thinking":
                reply.thinking += block["thinking"]
            else:
                reply.calls.append((block["name"], block["input"]))
        reply.stop, reply.usage = answer["stop_reason"], self.count(answer["usage"])

    def count(self, usage: Any) -> tuple[int, int, int]:
        cached = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + cached, usage["output_tokens"], cached

    def remember(self, reply: Reply) -> None:
        self.ids = [block["id"] for block in self.blocks if block["type"] == "tool_use"]
        self.history.append({"role": "assistant", "content": self.blocks})


class ResponsesClient(Client):
    path = "/v1/responses"
    session_header = "thread-id"

    def body(self) -> Any:
        custom = {"apply_patch", "exec"}
        tools = [{"type": "custom" if name in custom else "function", "name": name} for name in self.tools]
        return {"model": "m", "instructions": self.system, "input": self.history, "tools": tools, "stream": self.stream}

    def results(self, results: list[tuple[str, str]]) -> list[Any]:
        return [{"type": "function_call_output", "call_id": call_id, "output": text} for call_id, text in results]

    def read_stream(self, reply: Reply, stream: Iterator[Any]) -> None:
        for event in stream:
            match event["type"]:
                case "response.output_text.delta":
                    reply.pieces.append(event["delta"])
                case "response.completed" | "response.incomplete":
                    pieces, reply.pieces = reply.pieces, []
                    self.read_whole(reply, event["response"])
                    assert reply.text == "".join(pieces)
                    reply.pieces = pieces
                case "response.failed":
                    reply.error = event["response"]["error"]["code"]
                case _:
                    pass

    def read_whole(self, reply: Reply, answer: Any) -> None:
        self.items = answer["output"]
        for item in self.items:
            match item["type"]:
                case "message":
                    reply.pieces.append(item["content"][0]["text"])
                case "reasoning":
                    reply.thinking += item["summary"][0]["text"]
                case "function_call":
                    reply.calls.append((item["name"], json.loads(item["arguments"])))
                case "custom_tool_call":
                    reply.calls.append((item["name"], item["input"]))
                case _:
                    reply.calls.append((item["type"], item["action"]))
        reply.stop = answer.get("incomplete_details", {}).get("reason") or answer["status"]
        usage = answer["usage"]
        reply.usage = (usage["input_tokens"], usage["output_tokens"], usage["input_tokens_details"]["cached_tokens"])

    def remember(self, reply: Reply) -> None:
        self.ids = [item["call_id"] for item in self.items if "call_id" in item]
        self.history += self.items


class ChatClient(Client):
    path = "/v1/chat/completions"
    session_header = "x-session-affinity"

    def body(self) -> Any:
        tools = [{"type": "function", "function": {"name": name}} for name in self.tools]
        messages = [{"role": "system", "content": self.system}, *self.history]
        return {"model": "m", "messages": messages, "tools": tools, "stream": self.stream}

    def results(self, results: list[tuple[str, str]]) -> list[Any]:
        return [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in results]

    def read_stream(self, reply: Reply, stream: Iterator[Any]) -> None:
        self.calls: list[Any] = []
        for chunk in stream:
            if "error" in chunk:
                reply.error = chunk["error"]["code"]
                return
            choice = chunk["choices"][0]
            delta = choice["delta"]
            if delta.get("content"):
                reply.pieces.append(delta["content"])
            reply.thinking += delta.get("reasoning_content", "")
            for call in delta.get("tool_calls", []):
                if "id" in call:
                    self.calls.append(call)
                else:
                    self.calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            if choice["finish_reason"]:
                reply.stop, reply.usage = choice["finish_reason"], self.count(chunk["usage"])
        reply.calls = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in self.calls]

    def read_whole(self, reply: Reply, answer: Any) -> None:
        choice = answer["choices"][0]
        message = choice["message"]
        self.calls = message.get("tool_calls", [])
        reply.pieces.append(message["content"])
        reply.thinking = message.get("reasoning_content", "")
        reply.calls = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in self.calls]
        reply.stop, reply.usage = choice["finish_reason"], self.count(answer["usage"])

    def count(self, usage: Any) -> tuple[int, int, int]:
        return usage["prompt_tokens"], usage["completion_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    def remember(self, reply: Reply) -> None:
        self.ids = [call["id"] for call in self.calls]
        self.history.append({"role": "assistant", "content": reply.text, "tool_calls": self.calls})


class GeminiClient(Client):
    session_header = "x-no-session"

    @property
    def path(self) -> str:  # type: ignore[override]
        return "/v1beta/models/m:" + ("streamGenerateContent?alt=sse" if self.stream else "generateContent")

    def body(self) -> Any:
        declared = [{"name": name, "parametersJsonSchema": {}} for name in self.tools]
        system = {"parts": [{"text": self.system}]}
        return {"contents": self.history, "tools": [{"functionDeclarations": declared}], "systemInstruction": system}

    def user(self, prompt: str) -> Any:
        return {"role": "user", "parts": [{"text": prompt}]}

    def results(self, results: list[tuple[str, str]]) -> list[Any]:
        answers = [{"id": call_id, "name": "t", "response": {"output": text}} for call_id, text in results]
        return [{"role": "user", "parts": [{"functionResponse": answer} for answer in answers]}]

    def read_stream(self, reply: Reply, stream: Iterator[Any]) -> None:
        self.parts: list[Any] = []
        for chunk in stream:
            if "error" in chunk:
                reply.error = chunk["error"]["status"]
                return
            self._chunk(reply, chunk)

    def read_whole(self, reply: Reply, answer: Any) -> None:
        self.parts = []
        self._chunk(reply, answer)

    def _chunk(self, reply: Reply, chunk: Any) -> None:
        candidate = chunk["candidates"][0]
        for part in candidate["content"]["parts"]:
            self.parts.append(part)
            if "functionCall" in part:
                reply.calls.append((part["functionCall"]["name"], part["functionCall"]["args"]))
            elif part.get("thought"):
                reply.thinking += part["text"]
            elif part["text"]:
                reply.pieces.append(part["text"])
        reply.stop = candidate.get("finishReason")
        usage = chunk["usageMetadata"]
        output = usage["candidatesTokenCount"] + usage["thoughtsTokenCount"]
        reply.usage = (usage["promptTokenCount"], output, usage["cachedContentTokenCount"])

    def remember(self, reply: Reply) -> None:
        self.ids = [part["functionCall"]["id"] for part in self.parts if "functionCall" in part]
        self.history.append({"role": "model", "parts": self.parts})


CLIENTS: dict[str, type[Client]] = {
    "anthropic": AnthropicClient,
    "responses": ResponsesClient,
    "chat": ChatClient,
    "gemini": GeminiClient,
}


@pytest.fixture(params=list(CLIENTS))
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(api: str) -> Callable[..., Client]:
    """Begins a conversation over the API of this round."""
    return CLIENTS[api]


@pytest.fixture
def clients() -> dict[str, type[Client]]:
    return CLIENTS


@pytest.fixture
def cli() -> Callable[[str], Path]:
    """Finds a real CLI, or ends the test with one clear line."""

    def find(agent: str) -> Path:
        program = find_cli(agent)
        if program is None:
            missing = f"{agent} is not installed: run `make clis`"
            pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
        return program

    return find
