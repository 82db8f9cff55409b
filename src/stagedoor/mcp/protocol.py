"""The server's side of the Model Context Protocol, pure: one JSON-RPC message in, its reply out, in both eras.

Up to 2025-11-25 a client begins with ``initialize``. From 2026-07-28 on there are no sessions: every request says its
version in ``_meta``, ``server/discover`` tells what there is, and results say that they are complete. Nothing here
needs to know which client it was, so one server answers both at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from ..wire import jsonrpc
from ..wire.shapes import UnknownMessage
from .functions import Tool, content_of, tools_of

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
UNSUPPORTED_VERSION = -32022
NO_RESOURCE = -32002


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool that the server has."""

    tool: Tool
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any] = {}
    """What else the client says of it."""


class ToolRefused(Exception):
    """The call is not made; the model is told why, and that it is an error."""


class McpResource(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a client can read."""

    uri: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str = "application/json"


class Resources(msgspec.Struct, frozen=True):
    """What a server offers to read. ``read`` returns text, or ``None`` where there is no such thing."""

    listed: Callable[[], Awaitable[Sequence[McpResource]]]
    read: Callable[[str], Awaitable[str | None]]
    templates: Sequence[Mapping[str, str]] = ()


Run: TypeAlias = Callable[[ToolCall], Awaitable[Any]]


class ToolServer:
    """The server: ``mcp_servers={"desk": ToolServer([look_up])}``; the model sees ``mcp__desk__look_up``."""

    def __init__(
        self,
        tools: Sequence[Tool | Callable[..., Any]],
        *,
        name: str = "stagedoor",
        version: str = "1",
        instructions: str = "",
        resources: Resources | None = None,
    ) -> None:
        self.tools: Mapping[str, Tool] = {item.name: item for item in tools_of(tools)}
        self.name = name
        self.version = version
        self._instructions = instructions
        self._resources = resources

    async def respond(self, message: bytes, run: Run) -> dict[str, Any] | None:
        """The JSON-RPC reply, or ``None`` when the message expects none. Never raises on content.

        ``run`` makes the calls; what it raises is told to the model as the tool's error.
        """
        match jsonrpc.parse(message):
            case jsonrpc.Request(request_id, method, params):
                return await self._reply(request_id, method, _members(bytes(params)), run)
            case jsonrpc.Notification() | jsonrpc.Response():
                return None
            case UnknownMessage(why=why):
                return _fault(None, jsonrpc.PARSE_ERROR, why)

    async def _reply(
        self, request_id: jsonrpc.Id, method: str, params: Mapping[str, Any], run: Run
    ) -> dict[str, Any] | None:
        version = meta_of(params).get(VERSION_KEY)
        if version is not None and version not in MODERN_VERSIONS:
            supported = {"supported": [*MODERN_VERSIONS, *HANDSHAKE_VERSIONS], "requested": str(version)}
            return _fault(request_id, UNSUPPORTED_VERSION, f"protocol version {version} is not supported", supported)
        if version is None:
            return await self._answer(request_id, method, params, run)
        reply = await self._answer(request_id, method, params, run)
        if "result" in reply:
            lists = method.endswith(("/list", "/read", "/discover"))
            caching: dict[str, Any] = {"ttlMs": 0, "cacheScope": "private"} if lists else {}
            result: dict[str, Any] = {"resultType": "complete", **caching, **dict[str, Any](reply["result"])}
            result["_meta"] = {SERVER_KEY: self._identity(), **result.get("_meta", {})}
            reply["result"] = result
        return reply

    async def _answer(self, request_id: jsonrpc.Id, method: str, params: Mapping[str, Any], run: Run) -> dict[str, Any]:
        match method:
            case "initialize":
                version = params.get("protocolVersion")
                chosen = version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
                return _result(request_id, {"protocolVersion": chosen, **self._offer(), "serverInfo": self._identity()})
            case "server/discover":
                versions = [*MODERN_VERSIONS, *HANDSHAKE_VERSIONS]
                return _result(request_id, {"supportedVersions": versions, **self._offer()})
            case "ping":
                return _result(request_id, {})
            case "tools/list":
                return _result(request_id, {"tools": [_listed(item) for item in self.tools.values()]})
            case "tools/call":
                return await self._call(request_id, params, run)
            case "resources/list" | "resources/read" | "resources/templates/list" if self._resources is not None:
                return await self._read(request_id, method, params, self._resources)
            case _:
                return _fault(request_id, jsonrpc.METHOD_NOT_FOUND, f"unknown method {method!r}")

    def _identity(self) -> dict[str, str]:
        return {"name": self.name, "version": self.version}

    def _offer(self) -> dict[str, Any]:
        capabilities: dict[str, Any] = {"tools": {}, **({"resources": {}} if self._resources is not None else {})}
        instructions = {"instructions": self._instructions} if self._instructions else {}
        return {"capabilities": capabilities, **instructions}

    async def _call(self, request_id: jsonrpc.Id, params: Mapping[str, Any], run: Run) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments")
        chosen = self.tools.get(name) if isinstance(name, str) else None
        if chosen is None:
            have = ", ".join(self.tools) or "none"
            return _fault(request_id, jsonrpc.INVALID_PARAMS, f"unknown tool {name!r}; there are: {have}")
        if not isinstance(arguments, dict | None):
            return _fault(request_id, jsonrpc.INVALID_PARAMS, "arguments: give an object")
        try:
            outcome = await run(ToolCall(chosen, cast("dict[str, Any]", arguments or {}), meta_of(params)))
            return _result(request_id, {"content": content_of(outcome)})
        except ToolRefused as refusal:
            return _failure(request_id, str(refusal))
        except msgspec.ValidationError as fault:
            return _failure(request_id, f"wrong arguments for {name}: {fault}")
        except Exception as error:  # a tool that fails is an answer for the model, not the end of the session
            return _failure(request_id, f"{type(error).__name__}: {error}")

    async def _read(
        self, request_id: jsonrpc.Id, method: str, params: Mapping[str, Any], resources: Resources
    ) -> dict[str, Any]:
        match method:
            case "resources/list":
                return _result(request_id, {"resources": [_described(item) for item in await resources.listed()]})
            case "resources/templates/list":
                return _result(request_id, {"resourceTemplates": [dict(item) for item in resources.templates]})
            case _:
                uri = str(params.get("uri", ""))
                text = await resources.read(uri)
                if text is None:
                    return _fault(request_id, NO_RESOURCE, f"there is no resource {uri!r}", {"uri": uri})
                return _result(request_id, {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]})


def http_status(message: Mapping[str, Any], reply: Mapping[str, Any]) -> int:
    """The status of a reply over HTTP: older clients read the error in it, newer ones want both to say the same."""
    params = message.get("params")
    code = reply.get("error", {}).get("code")
    is_modern = isinstance(params, dict) and VERSION_KEY in meta_of(cast("dict[str, Any]", params))
    return 200 if code is None or not is_modern else 404 if code == jsonrpc.METHOD_NOT_FOUND else 400


def _listed(item: Tool) -> dict[str, Any]:
    hints = {"annotations": {"readOnlyHint": True}} if item.reads else {}
    return {"name": item.name, "description": item.description, "inputSchema": dict(item.input_schema), **hints}


def _described(item: McpResource) -> dict[str, str]:
    members = {
        "uri": item.uri, "name": item.name, "title": item.title, "description": item.description,
        "mimeType": item.mime_type,
    }  # fmt: skip
    return {name: value for name, value in members.items() if value}


def meta_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    return cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}


def _members(params: bytes) -> Mapping[str, Any]:
    try:
        whole = msgspec.json.decode(params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return cast("dict[str, Any]", whole) if isinstance(whole, dict) else {}


def _result(request_id: jsonrpc.Id, result: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": dict(result)}


def _failure(request_id: jsonrpc.Id, words: str) -> dict[str, Any]:
    return _result(request_id, {"content": [{"type": "text", "text": words}], "isError": True})


def _fault(request_id: jsonrpc.Id, code: int, message: str, data: Any = None) -> dict[str, Any]:
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return {"jsonrpc": "2.0", "id": request_id, "error": error}
