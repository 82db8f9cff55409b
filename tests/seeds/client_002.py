"""The phone of document 002, written from that document alone: its methods, its notifications, its payloads.

It knows one address and a token. It never subscribes to anything: the hub of the document sends to every client what
its agents do (§1.1, §3.3, §9.2).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

Json = dict[str, Any]
BOUND = 120.0
UNIFIED = (
    "agent_message", "agent_tool_call", "agent_tool_result", "agent_complete", "agent_error", "agent_thinking",
    "agent_permission",
)  # fmt: skip
"""§3.3."""


class RpcError(Exception):
    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.code = error["code"]


class Phone:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Json]] = {}
        self._news = asyncio.Condition()
        self.events: list[Json] = []
        """Every notification, in the order of arrival: ``{"method", "params"}``."""

    # -- §3.2 and §9.1

    async def discover(self) -> Json:
        return await self.call("agent/discover", {})

    async def select(self, agent: str) -> Json:
        return await self.call("agent/select", {"type": agent})

    async def configure(self, **options: Any) -> Json:
        return await self.call("agent/configure", options)

    async def run(self, prompt: str, *, mode: str = "new", session_id: str = "", **options: Any) -> Json:
        """§1.2 ``StartWithSession(prompt, mode, sessionID)``; §3.2 "Enhanced Agent Run"."""
        params: Json = {"prompt": prompt, "mode": mode}
        if session_id:
            params["sessionId"] = session_id
        if options:
            params["options"] = options
        return await self.call("agent/run", params)

    async def respond(self, tool_use_id: str, response: str, *, is_error: bool = False) -> Json:
        """§1.2 ``SendResponse(toolUseID, response, isError)``."""
        return await self.call("agent/respond", {"toolUseID": tool_use_id, "response": response, "isError": is_error})

    async def stop(self, **params: Any) -> Json:
        return await self.call("agent/stop", params)

    async def status(self) -> Json:
        return await self.call("agent/status", {})

    async def sessions(self, **params: Any) -> list[Json]:
        result: list[Json] = (await self.call("session/list", params))["sessions"]
        return result

    async def call(self, method: str, params: Json) -> Json:
        call_id = next(self._ids)
        self._pending[call_id] = answer = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}))
        message = await answer
        if "error" in message:
            raise RpcError(message["error"])
        result: Json = message["result"]
        return result

    # -- §3.3, §9.2, appendix B

    async def hear(
        self,
        name: str,
        fits: Callable[[Json], bool] = lambda payload: True,
        *,
        session_id: str = "",
        or_else: str = "",
    ) -> Json:
        """The payload of the first notification of that name (or the other) that fits, be it old or still to come."""
        async with self._news:
            while True:
                for payload in self.payloads(name, session_id) + self.payloads(or_else, session_id):
                    if fits(payload):
                        return payload
                await self._news.wait()

    def payloads(self, name: str, session_id: str = "") -> list[Json]:
        return [
            event["params"]["payload"]
            for event in self.events
            if event["method"] == name and session_id in ("", event["params"]["session_id"])
        ]

    def names(self, session_id: str = "") -> list[str]:
        return [event["method"] for event in self.events if session_id in ("", event["params"].get("session_id"))]

    async def listen(self) -> None:
        async for text in self._socket:
            message = json.loads(text)
            if "method" in message:
                async with self._news:
                    self.events.append(message)
                    self._news.notify_all()
            else:
                self._pending.pop(message["id"]).set_result(message)


@contextlib.asynccontextmanager
async def phone(address: str, headers: Mapping[str, str]) -> AsyncIterator[Phone]:
    async with connect(f"{address}/ws", additional_headers=headers, proxy=None) as socket:
        client = Phone(socket)
        listening = asyncio.ensure_future(client.listen())
        try:
            async with asyncio.timeout(BOUND):
                yield client
        finally:
            listening.cancel()
            await asyncio.wait([listening])


def check_event(event: Json) -> None:
    """§3.3 ``interface AgentEvent`` and its payloads; §9.2."""
    params = event["params"]
    if not event["method"].startswith(("agent_", "claude_")):
        return  # not of the document
    payload = params["payload"]
    assert params["event"] == event["method"]
    for name in ("timestamp", "agent_type", "session_id"):
        assert isinstance(params[name], str), (name, event)
    match event["method"]:
        case "agent_message":
            assert payload["role"] in ("assistant", "user")
            assert isinstance(payload["content"], list)
            assert all("type" in block for block in payload["content"])
            assert isinstance(payload.get("stop_reason", ""), str)
        case "agent_tool_call":
            assert isinstance(payload["requires_permission"], bool)
            assert {"tool_id", "tool_name", "tool_name_native", "arguments", "risk_level"} <= payload.keys()
            assert payload["risk_level"] in ("low", "medium", "high")
        case "agent_permission":
            assert {"tool_id", "tool_name", "operation", "target", "description"} <= payload.keys()
            assert payload["operation"] in ("file_read", "file_write", "shell_execute", "web_fetch", "other")
            assert payload["risk_level"] in ("low", "medium", "high")
            assert isinstance(payload["auto_approve_hint"], bool)
        case _:
            pass
