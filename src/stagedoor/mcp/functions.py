"""Python functions as tools: what a model must know of each (name, docstring, type hints), and what it returns."""

from __future__ import annotations

import base64
import functools
import inspect
import mimetypes
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_type_hints, overload

import msgspec

from ..errors import BadRequest

if TYPE_CHECKING:
    from ..session import Session

HOST = "host"
"""The name of the server that the functions of the calling program are tools of: ``mcp__host__look_up``."""
DeclaredRisk = Literal["low", "medium", "high"]
NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
"""What every agent and every model takes as the name of a tool, with room for the name of its server."""


class Tool(msgspec.Struct, frozen=True):
    """One function the model can call. Made by :func:`tool`; calling it calls the function."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    function: Callable[..., Any]
    arguments: type[msgspec.Struct] | None = None
    reads: bool = False
    """Its author says that it changes nothing: it may run in a dry run."""
    risk: DeclaredRisk | None = None
    """How dangerous its author says that a call is."""
    context: str = ""
    """The parameter that is given the ``ToolContext``."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    def bound(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> Callable[[], Any]:
        """The call, ready to be made. Arguments of the wrong type raise ``msgspec.ValidationError``."""
        extra: dict[str, Any] = {self.context: context} if self.context else {}
        if self.arguments is None:
            return functools.partial(self.function, **arguments, **extra)
        checked = msgspec.convert(arguments, self.arguments)
        fields = {name: getattr(checked, name) for name in self.arguments.__struct_fields__}
        return functools.partial(self.function, **fields, **extra)


class ToolContext(msgspec.Struct, kw_only=True):
    """Who calls a tool: a parameter with this type is given it, and no model sees that parameter."""

    tool: str
    call_id: str = ""
    """The call, as ``tool_use_id`` in the stream, where the agent says which one it is."""
    arguments: Mapping[str, Any] = {}
    session_id: str = ""
    agent: str = ""
    cwd: str = ""
    session: Session | None = None
    """The session itself, as long as its owner holds it."""
    cancelled: bool = False
    """Nobody waits for the result any more. An async function is cancelled; a plain one should look now and then."""


class Image(msgspec.Struct, frozen=True):
    """A picture that a tool returns, alone or in a list with texts: its bytes, or the path of its file."""

    source: bytes | str | Path
    type: str = ""
    """Such as ``image/png``; by default what the name of the file says, else PNG."""

    def block(self) -> dict[str, Any]:
        named = "" if isinstance(self.source, bytes) else str(self.source)
        content = self.source if isinstance(self.source, bytes) else Path(self.source).read_bytes()
        kind = self.type or mimetypes.guess_type(named)[0] or "image/png"
        return {"type": "image", "data": base64.b64encode(content).decode(), "mimeType": kind}


@overload
def tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    reads: bool = False,
    risk: DeclaredRisk | None = None,
) -> Tool: ...
@overload
def tool(
    function: None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    reads: bool = False,
    risk: DeclaredRisk | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    reads: bool = False,
    risk: DeclaredRisk | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a plain or async function: its name, docstring and type hints say what the model must know.

    As a decorator with or without arguments, or called with the function. ``reads``: it changes nothing. ``risk``: how
    dangerous a call is. With an explicit ``input_schema`` the arguments are passed on as they come, unchecked. Raises
    ``BadRequest`` for a function that no model could call.
    """
    if function is None:
        return functools.partial(
            tool, name=name, description=description, input_schema=input_schema, reads=reads, risk=risk
        )
    if not callable(function):
        raise BadRequest(f"tools: {function!r} is not a function")
    tool_name = name or getattr(function, "__name__", None) or ""
    if not NAME.fullmatch(tool_name):
        raise BadRequest(
            f"tools: {tool_name or repr(function)!r} cannot be the name of a tool: use tool(function, name=…) with up "
            "to 48 letters, digits, _ and -"
        )
    if "__" in tool_name:  # agents put the name of the server before it with these, and would read another server's
        raise BadRequest(
            f"tools: {tool_name!r} has two _ in a row, with which agents end the name of a server: use one"
        )
    if risk not in (None, "low", "medium", "high"):
        raise BadRequest(f"tools: {tool_name}: risk={risk!r}: choose from low, medium, high")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise BadRequest(f"tools: {tool_name} yields: a tool returns its whole result at once")
    words = description if description is not None else inspect.getdoc(function) or ""
    parameters, context = _parameters(function, tool_name)
    if input_schema is not None:
        return Tool(tool_name, words, input_schema, function, None, reads, risk, context)
    arguments = _arguments(tool_name, parameters)
    return Tool(tool_name, words, _schema(tool_name, arguments), function, arguments, reads, risk, context)


def tools_of(functions: Iterable[Tool | Callable[..., Any]]) -> tuple[Tool, ...]:
    """Each as a tool. Raises ``BadRequest`` where two have one name."""
    tools = tuple(item if isinstance(item, Tool) else tool(item) for item in functions)
    names = [item.name for item in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadRequest(f"tools: there are two of the name {twice!r}: rename one with tool(function, name=…)")
    return tools


def _parameters(function: Callable[..., Any], name: str) -> tuple[list[tuple[inspect.Parameter, Any]], str]:
    """Those the model fills in, with their types; and the one that gets the context."""
    hinted: Any = function
    if isinstance(hinted, functools.partial):
        hinted = cast("Any", hinted).func
    elif not inspect.isroutine(function):
        hinted = type(function).__call__
    try:
        hints = get_type_hints(hinted, include_extras=True)
        signature = inspect.signature(function)
    except (NameError, TypeError, ValueError) as fault:
        raise BadRequest(f"tools: the type hints of {name} cannot be read: {fault}; correct them") from None
    context = ""
    parameters: list[tuple[inspect.Parameter, Any]] = []
    for parameter in signature.parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is ToolContext or (parameter.name == "context" and hint is Any):
            context = parameter.name
        else:
            parameters.append((parameter, hint))
    return parameters, context


def _arguments(name: str, parameters: Iterable[tuple[inspect.Parameter, Any]]) -> type[msgspec.Struct]:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter, hint in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise BadRequest(f"tools: {name}: a tool takes named arguments only, not {parameter}; give an input_schema")
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, _default(parameter.default)))
    try:
        return msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as fault:
        raise BadRequest(f"tools: {name} cannot be a tool: {fault}") from None


def _default(value: Any) -> Any:
    """Lists and tables as defaults are not shared between calls."""
    if isinstance(value, list | dict | set):
        return msgspec.field(default_factory=cast("Callable[[], Any]", value.copy))  # pyright: ignore[reportUnknownMemberType]
    return value


def _schema(name: str, arguments: type[msgspec.Struct]) -> dict[str, Any]:
    try:
        (schema,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    except (TypeError, RuntimeError) as fault:
        raise BadRequest(
            f"tools: {name}: a parameter has a type that JSON does not know ({fault}); use plain types, dataclasses or "
            "msgspec structs, or give an input_schema"
        ) from None
    definitions = dict(components)
    own = definitions.pop(schema["$ref"].rpartition("/")[2])
    own.pop("title", None)
    return {**own, "$defs": definitions} if definitions else own


def content_of(outcome: Any) -> list[dict[str, Any]]:
    """What a function returned, as blocks: text is text, pictures are pictures, anything else becomes JSON.

    A list of blocks of the protocol passes through. Raises ``TypeError`` or ``OSError`` for what cannot be sent.
    """
    if isinstance(outcome, Image):
        return [outcome.block()]
    if isinstance(outcome, list | tuple) and outcome:
        items: list[Any] = list(outcome)  # pyright: ignore[reportUnknownArgumentType]
        if all(isinstance(item, dict) and isinstance(cast("dict[str, Any]", item).get("type"), str) for item in items):
            return items
        if any(isinstance(item, Image) for item in items):
            return [block for item in items for block in content_of(item)]
    text = outcome if isinstance(outcome, str) else msgspec.json.encode(outcome, enc_hook=str).decode()
    return [{"type": "text", "text": text}]
