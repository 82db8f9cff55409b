"""A message whose values are not of the expected types, made to fit: a wrong value costs its field, never the message.

Other versions print ``5.0`` where we expect ``5``, ``"5"``, ``null`` or a new kind of object. Used on the failure path
only: the strict decoder comes first, and its decision stands where it has one.
"""

from __future__ import annotations

import contextlib
import json
import math
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

if TYPE_CHECKING:
    from msgspec import inspect

Json = Any
MOST = 2**63 - 1
"""The greatest whole number that a log, a browser's BigInt and most other programs can hold."""


class _UnfitError(Exception):
    """A value that its field cannot take."""


def fitted(message: bytes | msgspec.Raw, shape: Any, *, exact: bool = False) -> bytes:
    """The same message as strict JSON that ``shape`` can take. Raises ``ValueError`` when there is no such thing.

    Numbers and words are read for one another where they mean the same, ``null`` counts as missing, and what cannot be
    read at all is left out. ``exact`` leaves nothing out: for messages that somebody will decide about.
    """
    text = bytes(message).decode("utf-8-sig", "replace")
    try:
        value = _fit(json.loads(text, strict=False), _type_of(shape), exact=exact)
    except _UnfitError:
        raise ValueError("the message has no such shape") from None
    return as_bytes(value)


def as_bytes(value: Json) -> bytes:
    """JSON of values that Python's own reader accepts and UTF-8 or a strict reader does not."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


@cache
def _type_of(shape: Any) -> inspect.Type:
    from msgspec import inspect  # the whole of it is needed on bad days only

    return inspect.type_info(shape)


def whole_number(value: object) -> int | None:
    """``value`` where it is one, also as ``5.0``: members without a shape of their own are not made to fit."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and _is_countable(value) else None


def finite(value: Json) -> Json:
    """``NaN`` and numbers beyond all bounds are no JSON: nothing stands in their place."""
    if isinstance(value, int | float):
        return value if _is_countable(value) else None
    if isinstance(value, dict):
        return {key: finite(one) for key, one in cast("dict[str, Json]", value).items()}
    if isinstance(value, list):
        return [finite(one) for one in cast("list[object]", value)]
    return value


def _fit(value: Json, kind: inspect.Type, *, exact: bool) -> Json:
    match type(kind).__name__:
        case "AnyType" | "RawType" | "CustomType":
            return finite(value)
        case "IntType":
            return _integer(value, exact=exact)
        case "FloatType":
            return _number(value)
        case "StrType":
            return _words(value)
        case "BoolType":
            return _truth(value)
        case "NoneType":
            if value is None:
                return None
        case "LiteralType":
            if value in cast("inspect.LiteralType", kind).values:
                return value
        case "UnionType":
            return _one_of(value, cast("inspect.UnionType", kind), exact=exact)
        case "ListType" | "VarTupleType" | "SetType" | "FrozenSetType":
            return _elements(value, cast("inspect.ListType", kind), exact=exact)
        case "DictType":
            return _members(value, cast("inspect.DictType", kind), exact=exact)
        case "StructType":
            return _fields(value, cast("inspect.StructType", kind), exact=exact)
        case _:
            return finite(value)
    raise _UnfitError


def _number(value: Json) -> float | int:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise _UnfitError from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_countable(value):
        raise _UnfitError
    return value


def _is_countable(number: float) -> bool:
    """Whether every program that we hand it on to can hold it."""
    return -MOST <= number <= MOST if isinstance(number, int) else math.isfinite(number)


def _integer(value: Json, *, exact: bool) -> int:
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = int(value)
    number = _number(value)
    if not _is_countable(int(number)) or (exact and number != int(number)):
        raise _UnfitError
    return int(number)


def _words(value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        number = _number(value)
        return str(int(number) if number == int(number) else number)
    raise _UnfitError


def _truth(value: Json) -> bool:
    if isinstance(value, bool):
        return value
    if value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _UnfitError


_NATIVE: dict[str, type | tuple[type, ...]] = {
    "IntType": int,
    "FloatType": (int, float),
    "StrType": str,
    "BoolType": bool,
    "NoneType": type(None),
    "ListType": list,
    "VarTupleType": list,
    "DictType": dict,
    "StructType": dict,
    "AnyType": object,
    "RawType": object,
}


def _one_of(value: Json, union: inspect.UnionType, *, exact: bool) -> Json:
    """The members that such a value belongs to, then those that can be made of it, then nothing at all."""

    def foreign(kind: inspect.Type) -> bool:
        native = _NATIVE.get(type(kind).__name__, object)
        return not isinstance(value, native) or (isinstance(value, bool) and native is not bool)

    nullable = any(type(kind).__name__ == "NoneType" for kind in union.types)
    for kind in sorted(union.types, key=foreign):
        if (type(kind).__name__ == "NoneType" and value is not None) or _is_tagged_otherwise(value, kind):
            continue
        try:
            return _fit(value, kind, exact=exact)
        except _UnfitError:
            continue
    if nullable and not exact:
        return None
    raise _UnfitError


def _is_tagged_otherwise(value: Json, kind: inspect.Type) -> bool:
    """Among others, a struct is known by its tag alone; where nothing else can stand, it may go without."""
    struct = cast("inspect.StructType", kind)
    if type(kind).__name__ != "StructType" or struct.tag_field is None or not isinstance(value, dict):
        return False
    return cast("dict[str, Json]", value).get(struct.tag_field) != struct.tag


def _elements(value: Json, kind: inspect.ListType, *, exact: bool) -> list[Json]:
    if not isinstance(value, list):
        raise _UnfitError
    out: list[Json] = []
    for one in cast("list[object]", value):
        try:
            out.append(_fit(one, kind.item_type, exact=exact))
        except _UnfitError:
            if exact:
                raise
    return out


def _members(value: Json, kind: inspect.DictType, *, exact: bool) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise _UnfitError
    out: dict[str, Json] = {}
    for key, one in cast("dict[str, Json]", value).items():
        try:
            out[key] = _fit(one, kind.value_type, exact=exact)
        except _UnfitError:
            if exact:
                raise
    return out


def _fields(value: Json, kind: inspect.StructType, *, exact: bool) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise _UnfitError
    members = cast("dict[str, Json]", value)
    out: dict[str, Json] = {}
    if kind.tag_field is not None:
        if members.get(kind.tag_field, kind.tag) != kind.tag:
            raise _UnfitError
        out[kind.tag_field] = kind.tag
    for field in kind.fields:
        name = field.encode_name
        if name not in members:
            if field.required:
                raise _UnfitError
            continue
        try:
            out[name] = _fit(members[name], field.type, exact=exact)
        except _UnfitError:
            if exact and members[name] is not None:
                raise
            if field.required:
                out[name] = _empty(field.type, exact=exact)
    return out


def _empty(kind: inspect.Type, *, exact: bool) -> Json:
    """What stands in a field that must be there, and holds nothing that can be read."""
    empty: dict[str, Json] = {
        "StrType": "",
        "IntType": 0,
        "FloatType": 0,
        "BoolType": False,
        "ListType": [],
        "DictType": {},
    }
    if exact or type(kind).__name__ not in empty:
        raise _UnfitError
    return empty[type(kind).__name__]
