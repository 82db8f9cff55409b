"""Python functions as tools of the model: a small MCP server inside this process, pure but for those functions.

Claude Code carries its JSON-RPC over the control channel (``mcp_message``), so there is no process and no socket.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, get_type_hints

import msgspec

from ...wire import jsonrpc
from ...wire.shapes import UnknownMessage

PROTOCOL_VERSION = "2025-06-18"

Run: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]


class Tool(msgspec.Struct, frozen=True):
    """One function the model can call. Made by :func:`tool`."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    function: Callable[..., Any]
    arguments: type[msgspec.Struct] | None = None

    def bound(self, arguments: Mapping[str, Any]) -> Callable[[], Any]:
        """The call, ready to be made. Arguments of the wrong type raise ``msgspec.ValidationError``."""
        if self.arguments is None:
            return functools.partial(self.function, **arguments)
        checked = msgspec.convert(arguments, self.arguments)
        return functools.partial(
            self.function, **{name: getattr(checked, name) for name in self.arguments.__struct_fields__}
        )


def tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
) -> Tool:
    """Make a tool of a plain or async function: its name, docstring and type hints say what the model must know.

    With an explicit ``input_schema`` the arguments are passed on as they come, unchecked.
    """
    tool_name: str = name or getattr(function, "__name__", None) or "tool"
    words = description if description is not None else inspect.getdoc(function) or ""
    if input_schema is not None:
        return Tool(tool_name, words, input_schema, function)
    hints = get_type_hints(function)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{tool_name}: a tool takes named arguments only, not {parameter}; give an input_schema")
        hint = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, parameter.default))
    arguments = msgspec.defstruct(f"{tool_name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
    return Tool(tool_name, words, _schema(arguments), function, arguments)


def _schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    definitions = dict(components)
    own = definitions.pop(schema["$ref"].rpartition("/")[2])
    own.pop("title", None)
    return {**own, "$defs": definitions} if definitions else own


class ToolServer:
    """The server: ``mcp_servers={"desk": ToolServer([tool(look_up)])}``; the model sees ``mcp__desk__look_up``."""

    def __init__(
        self, tools: Sequence[Tool | Callable[..., Any]], *, name: str = "stagedoor", version: str = "1"
    ) -> None:
        all_tools = [item if isinstance(item, Tool) else tool(item) for item in tools]
        self.tools: Mapping[str, Tool] = {item.name: item for item in all_tools}
        self.name = name
        self.version = version

    async def respond(self, message: bytes, run: Run) -> dict[str, Any] | None:
        """The JSON-RPC reply, or ``None`` when the message wants none. Never raises on content.

        ``run`` makes the calls: ``run_callback`` keeps a blocking function away from the event loop.
        """
        match jsonrpc.parse(message):
            case jsonrpc.Request(request_id, method, params):
                return await self._reply(request_id, method, bytes(params), run)
            case jsonrpc.Notification() | jsonrpc.Response():
                return None
            case UnknownMessage(why=why):
                return _fault(None, jsonrpc.PARSE_ERROR, why)

    async def _reply(self, request_id: jsonrpc.Id, method: str, params: bytes, run: Run) -> dict[str, Any]:
        match method:
            case "initialize":
                version = _member(params, "protocolVersion")
                return _result(
                    request_id,
                    {
                        "protocolVersion": version if isinstance(version, str) else PROTOCOL_VERSION,
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": self.name, "version": self.version},
                    },
                )
            case "ping":
                return _result(request_id, {})
            case "tools/list":
                return _result(request_id, {"tools": [_listed(item) for item in self.tools.values()]})
            case "tools/call":
                return await self._call(request_id, params, run)
            case _:
                return _fault(request_id, jsonrpc.METHOD_NOT_FOUND, f"unknown method {method!r}")

    async def _call(self, request_id: jsonrpc.Id, params: bytes, run: Run) -> dict[str, Any]:
        name, arguments = _member(params, "name"), _member(params, "arguments")
        chosen = self.tools.get(name) if isinstance(name, str) else None
        if chosen is None:
            return _fault(request_id, jsonrpc.INVALID_PARAMS, f"unknown tool {name!r}")
        try:
            outcome = await run(chosen.bound(arguments or {}))
        except Exception as error:  # a tool that fails is an answer for the model, not the end of the session
            return _result(request_id, {"content": _content(f"{type(error).__name__}: {error}"), "isError": True})
        return _result(request_id, {"content": _content(outcome)})


def _listed(item: Tool) -> dict[str, Any]:
    return {"name": item.name, "description": item.description, "inputSchema": dict(item.input_schema)}


def _content(outcome: Any) -> list[Any]:
    """A list of MCP content blocks passes through; text is text; anything else becomes JSON."""
    if isinstance(outcome, list) and outcome and all(isinstance(b, dict) and "type" in b for b in outcome):  # pyright: ignore[reportUnknownVariableType]
        return outcome  # pyright: ignore[reportUnknownVariableType]
    text = outcome if isinstance(outcome, str) else msgspec.json.encode(outcome, enc_hook=str).decode()
    return [{"type": "text", "text": text}]


def _member(params: bytes, name: str) -> Any:
    whole = msgspec.json.decode(params)
    return whole.get(name) if isinstance(whole, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _result(request_id: jsonrpc.Id, result: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": dict(result)}


def _fault(request_id: jsonrpc.Id, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}
