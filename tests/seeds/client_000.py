"""Two clients of document 000, written from that document alone.

``Board`` speaks to its server (§2.2, §3): five endpoints, seven types of events, and it has never heard of dialects.
``AgentClient`` is the library of §9.2 on the unified protocol (§7, §8): it sends a session request and reads unified
events. Both are told an address and a token. ``adapt`` is ``ProtocolAdapter.adaptEvents`` (§7.5, §9.6).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any

import httpx
import jsonschema
from websockets.asyncio.client import connect

from stagedoor import catalog
from stagedoor.dialects import DIALECTS, encode
from stagedoor.replay import translate

Json = dict[str, Any]
Reaction = Callable[[Json], Awaitable[None]]

STATES = ("running", "done", "failed", "cancelled")
"""§3.1."""
_TEXT, _OBJECT, _NUMBER = {"type": "string"}, {"type": "object"}, {"type": "integer"}
_TIME = {"type": "string", "format": "date-time"}
BOARD = {
    "type": "object",
    "required": ["id", "sessionId", "type", "payload", "timestamp"],
    "properties": {
        "id": _TEXT,
        "sessionId": _TEXT,
        "type": {"enum": ["plan", "log", "diff", "action", "toolResult", "error", "cancelled"]},
        "payload": _OBJECT,
        "timestamp": _TIME,
    },
}
"""§8.3; the ids are texts, as in the examples of §3.3."""
PAYLOADS: dict[str, dict[str, type]] = {
    "plan": {"message": str}, "log": {"line": str}, "diff": {"file": str, "diff": str},
    "action": {"tool": str, "args": dict}, "toolResult": {"tool": str, "success": bool, "output": str},
    "error": {"message": str}, "cancelled": {},
}  # fmt: skip
"""§3.4."""


def _when(kind: str, required: list[str], **properties: Any) -> Json:
    return {
        "if": {"properties": {"type": {"const": kind}}},
        "then": {"properties": properties, "required": required},
    }


_CONFIG = {
    "type": "object",
    "properties": {
        "agentType": _TEXT, "projectId": _TEXT, "workingDirectory": _TEXT, "model": _TEXT,
        "approvalMode": {"enum": ["ask", "askDangerous", "autoEdit", "autoAll"]},
        "sandboxMode": {"enum": ["none", "readOnly", "workspaceWrite", "fullAccess"]},
        "allowedTools": {"type": "array", "items": _TEXT}, "blockedTools": {"type": "array", "items": _TEXT},
        "maxTurns": _NUMBER,
    },
}  # fmt: skip
_USAGE = {
    "type": "object",
    "required": ["inputTokens", "outputTokens", "totalTokens"],
    "properties": dict.fromkeys(
        ("inputTokens", "outputTokens", "cachedTokens", "reasoningTokens", "totalTokens"), _NUMBER
    ),
}
UNIFIED = {
    "type": "object",
    "required": ["id", "sessionId", "timestamp", "type"],
    "properties": {
        "id": _TEXT, "sessionId": _TEXT, "timestamp": _TIME,
        "type": {"enum": [
            "sessionStarted", "sessionEnded", "turnStarted", "turnCompleted", "turnFailed", "textChunk", "toolStarted",
            "toolProgress", "toolCompleted", "toolFailed", "fileChanged", "error",
        ]},
    },
    "allOf": [
        _when("sessionStarted", ["agentType"], agentType=_TEXT, config=_CONFIG),
        _when("textChunk", ["content"], content=_TEXT, isComplete={"type": "boolean"}),
        _when("toolStarted", ["toolId", "toolName"], toolId=_TEXT, toolName=_TEXT, arguments=_OBJECT),
        _when("toolProgress", ["toolId"], toolId=_TEXT, output=_TEXT,
              progress={"type": "number", "minimum": 0, "maximum": 1}),
        _when("toolCompleted", ["toolId", "success"], toolId=_TEXT, success={"type": "boolean"}, error=_TEXT),
        _when("fileChanged", ["filePath", "changeType"], filePath=_TEXT, diff=_TEXT, before=_TEXT, after=_TEXT,
              changeType={"enum": ["created", "modified", "deleted"]}),
        _when("turnCompleted", ["turnNumber", "usage"], turnNumber=_NUMBER, usage=_USAGE, durationMs=_NUMBER),
        _when("sessionEnded", ["reason"], error=_TEXT,
              reason={"enum": ["completed", "failed", "cancelled", "timeout"]}),
    ],
}  # fmt: skip
"""§8.1; ``agentType`` is not limited to the three of the document."""
_BOARD, _UNIFIED = jsonschema.Draft7Validator(BOARD), jsonschema.Draft7Validator(UNIFIED)


class Refused(Exception):
    """The server answered with a status that is not 2xx."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(answer.text)
        self.status = answer.status_code


class _Server:
    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = dict(headers)

    async def call(self, method: str, path: str, **more: Any) -> Json:
        async with httpx.AsyncClient(base_url=self._url, headers=self._headers, timeout=240) as http:
            answer = await http.request(method, path, **more)
        if answer.is_error:
            raise Refused(answer)
        result: Json = answer.json()
        return result

    async def messages(self, session_id: str) -> AsyncIterator[Json]:
        """``WS /ws/sessions/<id>``: until the server closes. ``close_code`` says how."""
        where = "ws" + self._url.removeprefix("http") + f"/ws/sessions/{session_id}"
        async with connect(where, additional_headers=self._headers, proxy=None) as socket:
            async for message in socket:
                yield json.loads(message)
            self.close_code = socket.close_code


class Board(_Server):
    """§2.2 and §3."""

    async def create(self, agent: str, project: str, prompt: str) -> str:
        body = {"agentId": agent, "projectId": project, "prompt": prompt}
        made = await self.call("POST", "/api/sessions", json=body)
        assert made["state"] == "running"
        session_id: str = made["id"]
        return session_id

    async def state(self, session_id: str) -> str:
        state: str = (await self.call("GET", f"/api/sessions/{session_id}"))["state"]
        assert state in STATES
        return state

    async def cancel(self, session_id: str) -> None:
        await self.call("POST", f"/api/sessions/{session_id}/cancel")

    async def history(self, session_id: str, limit: int) -> list[Json]:
        """``GET …/events?offset=N&limit=M``, page by page."""
        events: list[Json] = []
        while True:
            params = {"offset": len(events), "limit": limit}
            page = (await self.call("GET", f"/api/sessions/{session_id}/events", params=params))["events"]
            if not page:
                return events
            events += page

    async def watch(self, session_id: str, react: Reaction | None = None) -> list[Json]:
        """§3.5: everything from the start, then what comes, until the session ends."""
        events: list[Json] = []
        async for event in self.messages(session_id):
            _BOARD.validate(event)
            assert event["sessionId"] == session_id
            for name, kind in PAYLOADS[event["type"]].items():
                assert isinstance(event["payload"][name], kind), event
            events.append(event)
            if react is not None:
                await react(event)
        assert self.close_code == 1000
        assert len({event["id"] for event in events}) == len(events)
        return events


class AgentClient(_Server):
    """§9.2: ``AgentClient(agentType, config)`` with ``createSession`` and ``resumeSession``."""

    def __init__(self, url: str, headers: Mapping[str, str], agent_type: str) -> None:
        super().__init__(url, headers)
        self.agent_type = agent_type

    async def create_session(self, prompt: str, **config: Any) -> str:
        """§8.2. ``config`` has the names of ``SessionConfig``."""
        request = {"agentType": self.agent_type, "prompt": prompt, "config": config}
        session_id: str = (await self.call("POST", "/api/sessions", json=request))["id"]
        return session_id

    async def resume_session(self, session_id: str, prompt: str, **config: Any) -> str:
        request: Json = {"agentType": self.agent_type, "prompt": prompt, "sessionId": session_id}
        if config:
            request["config"] = config
        resumed: str = (await self.call("POST", "/api/sessions", json=request))["id"]
        return resumed

    async def events(self, session_id: str, react: Reaction | None = None) -> list[Json]:
        """``session.events`` to its end."""
        events: list[Json] = []
        async for event in self.messages(session_id):
            events.append(event)
            if react is not None:
                await react(event)
        check_stream(events)
        return events

    async def run(self, prompt: str, **config: Any) -> list[Json]:
        return await self.events(await self.create_session(prompt, **config))


def check_stream(events: list[Json]) -> None:
    """§8.1; started first, ended last, and every tool that has started is completed or failed (§6.2)."""
    for event in events:
        _UNIFIED.validate(event)
    types = [event["type"] for event in events]
    assert (types[0], types[-1]) == ("sessionStarted", "sessionEnded")
    assert (types.count("sessionStarted"), types.count("sessionEnded")) == (1, 1)
    assert len({event["id"] for event in events}) == len(events)
    assert len({event["sessionId"] for event in events}) == 1
    started = [event["toolId"] for event in of(events, "toolStarted")]
    assert sorted(started) == sorted(event["toolId"] for event in of(events, "toolCompleted", "toolFailed"))


def of(events: Iterable[Json], *types: str) -> list[Json]:
    return [event for event in events if event["type"] in types]


def adapt(agent: str, driver: str, lines: Iterable[str]) -> list[Json]:
    """``adapter.adaptEvents(Stream.fromIterable(lines))``."""
    projection = DIALECTS["lifecycle"]()
    events = translate(agent, catalog.agent(agent).drivers[driver], [line.encode() for line in lines])
    adapted = [json.loads(message) for event in events for message in encode(projection, event)]
    check_stream(adapted)
    return adapted
