"""``docs/jsonrpc.md``, generated from the table of methods: it always says what the code does."""

from __future__ import annotations

import inspect as python
from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import inspect

from stagedoor.dialects.notify import METHODS as NOTIFY
from stagedoor.server.jsonrpc.client import CALLS
from stagedoor.server.jsonrpc.dispatch import MAX_BATCH
from stagedoor.server.jsonrpc.methods import METHODS, RpcMethod
from stagedoor.server.problems import KINDS, REFUSALS

INTRODUCTION = f"""\
# JSON-RPC

JSON-RPC 2.0 over `WS /ws`, over `POST /rpc` (no notifications there), and on stdio with `stagedoor rpc`, one message
per line. This page is generated from the code
(`STAGEDOOR_BLESS=1 pytest tests/server/test_jsonrpc_reference.py` writes it).

```
$ stagedoor rpc
→ {{"jsonrpc": "2.0", "id": 1, "method": "agent/run", "params": {{"prompt": "Fix the login bug"}}}}
← {{"jsonrpc": "2.0", "id": 1, "result": {{"status": "started", "sessionId": "5054b600-…", …}}}}
← {{"jsonrpc": "2.0", "method": "agent_message", "params": {{"session_id": "5054b600-…", "seq": 4, "payload": {{…}}}}}}
```

- **Access:** a token in `Authorization: Bearer TOKEN`, or the WebSocket subprotocols `stagedoor`, `bearer.TOKEN`. Each
  method needs a scope: `watch`, `answer`, `run`, `admin`; each includes those before it. On stdio you are admin.
- **Params** are sent by name. `session_id` works as well as `sessionId`. An unknown name is refused.
- **Answers** may come in another order than the calls. `agent/select` and `agent/configure` apply to every call sent
  after them. The calls of a batch run in their order; it holds at most {MAX_BATCH} calls. {CALLS} calls of one client
  run at once; more wait.
- **The selected agent**, its configuration and the session that ran last belong to the connection; a new connection
  of the same device, and `POST`, begin with those of its last one. They are defaults: any number of sessions of any
  agents run at once.
- **Notifications** come for every session that runs, from the moment of the connection on. `/ws?listen=subscribed` or
  `session/listen {{"to": "subscribed"}}` ask for less: then only for the sessions a client follows (`agent/run` and
  `session/resume` follow theirs, `session/subscribe` any other from any event on), and `session/unsubscribe` leaves one
  out. Each carries `session_id` and `seq`. A client that lost its connection continues
  with `session/subscribe {{sessionId, after}}`, without a gap or a repeat: `after` is the last `seq` it has received,
  or one less when the last notification had `more: true` (others of the same event would have followed).
- **Slow clients** get their messages slowly: nothing is dropped, and nobody else waits. A client that reads nothing
  for a minute is disconnected, and can connect again.
"""

SERVER_NOTIFICATIONS: dict[str, tuple[str, str]] = {
    "session_event": (
        "session_id, seq, dialect, event",
        "An event in the chosen dialect, if that is not `notify`.",
    ),
    "subscription_ended": (
        "session_id, seq, reason `ended·deleted·fault`, state, message",
        "All events of the session were sent, or no more can be sent.",
    ),
    "session_changed": (
        "session_id, seq, session (a UnifiedSession) or deleted",
        "To clients that follow everything: a session started, changed, was renamed, archived or deleted.",
    ),
    "permission_changed": (
        "session_id, seq, open, permission (a Question)",
        "To clients that follow everything: a question was asked or answered.",
    ),
    "file_changed": (
        "session_id, files[{path, change}], cut",
        'With `watch: ["files"]`: files of the workspace have changed.',
    ),
    "git_changed": (
        "session_id, status (a GitStatus)",
        'With `watch: ["git"]`: the git status of the workspace has changed.',
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


def _method(method: RpcMethod) -> Iterator[str]:
    yield f"### {method.name}\n"
    yield f"{method.about} Scope `{method.scope}`.{_docstring(method.params)}\n"
    if method.params.__struct_fields__:
        yield from _fields(method.params, "param")
    else:
        yield "No params.\n"
    result = method.result
    yield f"Answers {_link(result)}.\n"


def _notifications() -> Iterator[str]:
    yield "## Notifications\n"
    yield "The notifications of the dialect [`notify`](dialects.md), for every session a client follows:"
    yield ", ".join(f"`{name}`" for name in NOTIFY.values()) + "."
    yield "Those that start with `claude_` come in addition, for older clients and only for that agent."
    yield "The params of all: `event`, `timestamp`, `agent_type`, `session_id`, `seq`, `payload`.\n"
    yield "And the notifications of the server itself:\n"
    yield "| notification | params | when |\n|---|---|---|"
    for name, (params, about) in SERVER_NOTIFICATIONS.items():
        yield f"| `{name}` | {params} | {about} |"
    yield ""


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield "`error.data` is the problem as REST would answer it: `type, title, status, detail` and, where one part of"
    yield "the request is wrong, its `field`.\n"
    yield "| code | meaning |\n|---|---|"
    meanings = {
        -32700: "not JSON",
        -32600: "not a JSON-RPC 2.0 call",
        -32601: "unknown method",
        -32602: "params are not valid",
    }
    meanings[-32603] = "internal error; see the server's log"
    for kind in [*KINDS.values(), REFUSALS["too-large"]]:
        if kind.code not in meanings:
            meanings[kind.code] = f"{kind.slug}: {kind.title[:1].lower()}{kind.title[1:]}"
    for code, about in sorted(meanings.items(), reverse=True):
        yield f"| {code} | {about} |"
    yield ""


def _shapes() -> Iterator[str]:
    yield "## Shapes\n"
    yield "`SessionView`, `Question` and others without a link are the same at every door: see `/openapi.json`.\n"
    named: dict[str, type[msgspec.Struct]] = {}
    for method in METHODS.values():
        _collect(method.result, named)
        for field in _described(method.params).fields:
            _collect_from(field.type, named)
    for name, shape in sorted(named.items()):
        yield f"### Shape {name}\n"
        if text := _docstring(shape).strip():
            yield f"{text}\n"
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
            if _is_shape_of_door(kind.cls):
                _collect(kind.cls, named)
        case inspect.UnionType():
            for member in kind.types:
                _collect_from(member, named)
        case inspect.ListType() | inspect.VarTupleType():
            _collect_from(kind.item_type, named)
        case inspect.DictType():
            _collect_from(kind.value_type, named)
        case _:
            pass


def _is_shape_of_door(shape: type[msgspec.Struct]) -> bool:
    return shape.__module__.startswith(f"{RpcMethod.__module__.rpartition('.')[0]}.") or any(
        shape is method.result for method in METHODS.values()
    )


def _link(shape: type[msgspec.Struct]) -> str:
    return f"[`{shape.__name__}`](#shape-{shape.__name__.lower()})"


def _fields(shape: type[msgspec.Struct], heading: str) -> Iterator[str]:
    described = _described(shape)
    if described.tag_field is not None:
        yield f"`{described.tag_field}` is `{described.tag}`.\n"
    yield f"| {heading} | type | default |\n|---|---|---|"
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
            return " or ".join(_type(member) for member in kind.types)
        case inspect.ListType() | inspect.VarTupleType():
            return f"array of {_type(kind.item_type)}"
        case inspect.DictType():
            return "object" if isinstance(kind.value_type, inspect.AnyType) else f"object of {_type(kind.value_type)}"
        case inspect.StructType():
            return _link(kind.cls) if _is_shape_of_door(kind.cls) else f"`{kind.cls.__name__}`"
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


def _docstring(shape: type[msgspec.Struct]) -> str:
    """The docstring as Markdown."""
    text = python.cleandoc(shape.__doc__ or "") if shape.__doc__ and shape.__dict__.get("__doc__") else ""
    return " " + " ".join(text.replace("``", "`").split()) if text else ""
