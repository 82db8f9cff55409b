"""The unified events as TypeScript, for the page: ``make bless`` writes ``web/core/events.d.ts``, a test holds it true.

python -m tools.event_types
"""

from __future__ import annotations

import typing
from pathlib import Path

import msgspec
from msgspec import inspect

from stagedoor.unified.events import Event, Header

FILE = Path(__file__).parents[1] / "src" / "stagedoor" / "web" / "core" / "events.d.ts"
TOP = """\
// The events of `stagedoor.unified.events`, written by `python -m tools.event_types`. Not served: for the type checker.

declare namespace Unified {
"""
STAMPED = ("agent", "sessionId", "seq", "timestamp")
"""What the session writes into every event; a dictionary leaves it at its default."""
WIDTH = 120
_PLAIN: dict[type, str] = {
    inspect.AnyType: "any",
    inspect.BoolType: "boolean",
    inspect.FloatType: "number",
    inspect.IntType: "number",
    inspect.NoneType: "null",
    inspect.StrType: "string",
}


def event_types() -> str:
    """The whole file."""
    events = typing.get_args(Event)
    structs: dict[str, inspect.StructType] = {}
    for struct in (Header, *events):
        _collect(inspect.type_info(struct), structs)
    parts = [_interface(struct) for struct in structs.values()]
    union = "".join(f"\n    | {event.__name__}" for event in events)
    return TOP + "\n".join(parts) + f"\n  type Event ={union};\n}}\n"


def _collect(kind: inspect.Type, structs: dict[str, inspect.StructType]) -> None:
    """Every struct in ``kind``, inner ones first."""
    match kind:
        case inspect.StructType():
            for field in kind.fields:
                _collect(field.type, structs)
            structs.setdefault(kind.cls.__name__, kind)
        case inspect.ListType() | inspect.VarTupleType():
            _collect(kind.item_type, structs)
        case inspect.UnionType():
            for member in kind.types:
                _collect(member, structs)
        case _:
            pass


def _interface(struct: inspect.StructType) -> str:
    if struct.cls is Header:
        return "\n".join(["  interface Header {", *map(_field, struct.fields), "  }\n"])
    shared = Header.__struct_fields__ if issubclass(struct.cls, Header) else ()
    lines = [f"  interface {struct.cls.__name__} {'extends Header ' if shared else ''}{{"]
    if struct.tag_field is not None:
        lines.append(f'    {struct.tag_field}: "{struct.tag}";')
    omits = bool(struct.cls.__struct_config__.omit_defaults)
    lines += [_field(field, omits=omits) for field in struct.fields if field.name not in shared]
    return "\n".join([*lines, "  }\n"])


def _field(field: inspect.Field, *, omits: bool = True) -> str:
    default = field.default is not msgspec.NODEFAULT or _empty(field)
    name = field.encode_name + ("?" if omits and default and field.encode_name not in STAMPED else "")
    kind = _typescript(field.type)
    line = f"    {name}: {kind};"
    return line if len(line) <= WIDTH else f"    {name}:\n      | " + kind.replace(" | ", "\n      | ") + ";"


def _empty(field: inspect.Field) -> bool:
    """Whether the default is an empty list or table, which is left out; other factories are always written."""
    return field.default_factory in (list, dict)


def _typescript(kind: inspect.Type) -> str:
    match kind:
        case inspect.StructType():
            return kind.cls.__name__
        case inspect.LiteralType():
            return " | ".join(f'"{value}"' for value in kind.values)
        case inspect.ListType() | inspect.VarTupleType():
            return f"{_typescript(kind.item_type)}[]"
        case inspect.DictType():
            return f"Record<string, {_typescript(kind.value_type)}>"
        case inspect.UnionType():
            return " | ".join(_typescript(member) for member in kind.types)
        case _:
            return _PLAIN[type(kind)]


if __name__ == "__main__":
    FILE.write_text(event_types())
