"""The reference page, made from the table: ``docs/jsonrpc.md`` cannot say what the code does not."""

from __future__ import annotations

import inspect as python
from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import inspect

from stagedoor.dialects.notify_payloads import METHODS as NOTIFY

from ..problems import KINDS, REFUSALS
from .dispatch import BATCH
from .methods import METHODS, Method
from .peer import CALLS

INTRODUCTION = f"""\
# JSON-RPC

JSON-RPC 2.0 over `WS /ws`, over `POST /rpc` (no notifications there), and on stdio with `stagedoor rpc`, one message
per line. This page is made from the code (`STAGEDOOR_BLESS=1 pytest tests/server/test_jsonrpc_reference.py` writes it).

```
$ stagedoor rpc
→ {{"jsonrpc": "2.0", "id": 1, "method": "agent/run", "params": {{"prompt": "Fix the login bug"}}}}
← {{"jsonrpc": "2.0", "id": 1, "result": {{"status": "started", "sessionId": "5054b600-…", …}}}}
← {{"jsonrpc": "2.0", "method": "agent_message", "params": {{"session_id": "5054b600-…", "seq": 4, "payload": {{…}}}}}}
```

- **Who may:** a token in `Authorization: Bearer TOKEN`, or the WebSocket subprotocols `stagedoor`, `bearer.TOKEN`. Each
  method takes a scope: `watch`, `answer`, `run`, `admin`; each includes those before it. On stdio you are admin.
- **Params** are given by name. `session_id` is understood as well as `sessionId`. A name that is not known is refused.
- **Answers** may come in another order than the calls. `agent/select` and `agent/configure` count for every call sent
  after them. A batch is carried out in its order; it holds at most {BATCH} calls. {CALLS} calls of one client run at
  once; more wait.
- **The selected agent**, its configuration and the session that was run last belong to the connection; over `POST` to
  the device. They are defaults: any number of sessions of any agents run at once.
- **Notifications** come for the sessions a client follows: `agent/run` and `session/resume` follow theirs, and
  `session/subscribe` any other. Each carries `session_id` and `seq`. A client that lost its connection goes on with
  `session/subscribe {{sessionId, after}}`, with no gap and no repeat: `after` is the last `seq` it has heard, or one
  less when the last notification said `more: true` (others of the same event were to follow).
- **Slow clients** are told slowly: nothing is dropped, and nobody else waits. A client that takes nothing for a minute
  is cut off, and can come back.
"""

OURS: dict[str, tuple[str, str]] = {
    "session_event": (
        "session_id, seq, dialect, event",
        "An event in the dialect that was asked for, other than `notify`.",
    ),
    "subscription_ended": (
        "session_id, seq, reason `ended·deleted·fault`, state, message",
        "All of the session was told, or it can be told no more.",
    ),
    "session_changed": (
        "session_id, seq, session (a UnifiedSession) or deleted",
        "To those who follow everything: a session began, moved on, was renamed, archived or removed.",
    ),
    "permission_changed": (
        "session_id, seq, open, permission (a Question)",
        "To those who follow everything: a question came up, or was answered.",
    ),
    "file_changed": (
        "session_id, files[{path, change}], cut",
        'With `watch: ["files"]`: files of the workspace were touched.',
    ),
    "git_changed": (
        "session_id, status (a GitStatus)",
        'With `watch: ["git"]`: what git says of the workspace has changed.',
    ),
}


def page() -> str:
    return "\n".join([INTRODUCTION, *_methods(), *_notifications(), *_errors(), *_shapes()])


def _methods() -> Iterator[str]:
    yield "## Methods\n"
    yield "| method | scope | what it does |\n|---|---|---|"
    for method in METHODS.values():
        yield f"| [`{method.name}`](#{method.name.replace('/', '')}) | {method.scope} | {method.about} |"
    yield ""
    for method in METHODS.values():
        yield from _method(method)


def _method(method: Method) -> Iterator[str]:
    yield f"### {method.name}\n"
    yield f"{method.about} Scope `{method.scope}`.{_said(method.params)}\n"
    if method.params.__struct_fields__:
        yield from _fields(method.params, "param")
    else:
        yield "No params.\n"
    result = method.result
    yield f"Answers {_link(result)}.\n"


def _notifications() -> Iterator[str]:
    yield "## Notifications\n"
    yield "Those of the dialect [`notify`](dialects.md), for every session a client follows:"
    yield ", ".join(f"`{name}`" for name in NOTIFY.values()) + "."
    yield "Those that begin with `claude_` come beside the others, for older clients and only for that agent."
    yield "The params of all: `event`, `timestamp`, `agent_type`, `session_id`, `seq`, `payload`.\n"
    yield "And those of the server itself:\n"
    yield "| notification | params | when |\n|---|---|---|"
    for name, (params, about) in OURS.items():
        yield f"| `{name}` | {params} | {about} |"
    yield ""


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield "`error.data` is the problem as REST would answer it: `type, title, status, detail` and, where one part of"
    yield "the request is wrong, its `field`.\n"
    yield "| code | meaning |\n|---|---|"
    found = {
        -32700: "not JSON",
        -32600: "not a JSON-RPC 2.0 call",
        -32601: "no such method",
        -32602: "params are wrong",
    }
    found[-32603] = "a mistake of Stagedoor's own; its log says which"
    for kind in [*KINDS.values(), REFUSALS["too-large"]]:
        if kind.code not in found:
            found[kind.code] = f"{kind.slug}: {kind.title[:1].lower()}{kind.title[1:]}"
    for code, about in sorted(found.items(), reverse=True):
        yield f"| {code} | {about} |"
    yield ""


def _shapes() -> Iterator[str]:
    yield "## Shapes\n"
    yield "`SessionView`, `Question` and others without a link are the rows that every door shows: `/openapi.json`.\n"
    named: dict[str, type[msgspec.Struct]] = {}
    for method in METHODS.values():
        _collect(method.result, named)
        for field in _described(method.params).fields:
            _collect_from(field.type, named)
    for name, shape in sorted(named.items()):
        yield f"### Shape {name}\n"
        if said := _said(shape).strip():
            yield f"{said}\n"
        yield from _fields(shape, "field")


def _described(shape: type[msgspec.Struct]) -> inspect.StructType:
    return cast("inspect.StructType", inspect.type_info(shape))


def _collect(shape: type[msgspec.Struct], named: dict[str, type[msgspec.Struct]]) -> None:
    if shape.__name__ in named:
        return
    named[shape.__name__] = shape
    for field in _described(shape).fields:
        _collect_from(field.type, named)


def _collect_from(kind: Any, named: dict[str, type[msgspec.Struct]]) -> None:
    match kind:
        case inspect.StructType():
            if _is_ours(kind.cls):
                _collect(kind.cls, named)
        case inspect.UnionType():
            for one in kind.types:
                _collect_from(one, named)
        case inspect.ListType() | inspect.VarTupleType():
            _collect_from(kind.item_type, named)
        case inspect.DictType():
            _collect_from(kind.value_type, named)
        case _:
            pass


def _is_ours(shape: type[msgspec.Struct]) -> bool:
    return shape.__module__.startswith(f"{__package__}.") or any(shape is one.result for one in METHODS.values())


def _link(shape: type[msgspec.Struct]) -> str:
    return f"[`{shape.__name__}`](#shape-{shape.__name__.lower()})"


def _fields(shape: type[msgspec.Struct], what: str) -> Iterator[str]:
    described = _described(shape)
    if described.tag_field is not None:
        yield f"`{described.tag_field}` is `{described.tag}`.\n"
    yield f"| {what} | type | default |\n|---|---|---|"
    for field in described.fields:
        yield f"| `{field.encode_name}` | {_type(field.type)} | {_default(field)} |"
    yield ""


def _type(kind: Any) -> str:
    match kind:
        case inspect.StrType() | inspect.RawType() | inspect.AnyType() | inspect.NoneType():
            return {"StrType": "string", "NoneType": "null"}.get(type(kind).__name__, "any")
        case inspect.IntType() | inspect.FloatType():
            name = "integer" if isinstance(kind, inspect.IntType) else "number"
            low = f" ≥ {kind.ge}" if kind.ge is not None else f" > {kind.gt}" if kind.gt is not None else ""
            high = f" ≤ {kind.le}" if kind.le is not None and kind.le < 2**53 else ""
            return name + low + high
        case inspect.BoolType():
            return "boolean"
        case inspect.LiteralType():
            return " · ".join(f"`{value}`" for value in kind.values)
        case inspect.UnionType():
            return " or ".join(_type(one) for one in kind.types)
        case inspect.ListType() | inspect.VarTupleType():
            return f"array of {_type(kind.item_type)}"
        case inspect.DictType():
            return "object" if isinstance(kind.value_type, inspect.AnyType) else f"object of {_type(kind.value_type)}"
        case inspect.StructType():
            return _link(kind.cls) if _is_ours(kind.cls) else f"`{kind.cls.__name__}`"
        case _:
            return "any"


def _default(field: Any) -> str:
    if field.required:
        return "required"
    if field.default is field.default_factory is msgspec.NODEFAULT:
        return "unchanged"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, msgspec.Struct) or value is None:
        return ""
    return f"`{msgspec.json.encode(value).decode()}`"


def _said(shape: type[msgspec.Struct]) -> str:
    """The docstring as Markdown."""
    text = python.cleandoc(shape.__doc__ or "") if shape.__doc__ and shape.__dict__.get("__doc__") else ""
    return " " + " ".join(text.replace("``", "`").split()) if text else ""
