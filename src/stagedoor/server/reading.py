"""Requests into typed values. Whatever is wrong is told with the field's path; nothing is guessed, nothing ignored."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect
from starlette.requests import ClientDisconnect, Request

from .problems import InvalidField, Refused

MOST_NAMES = 64
DEEPEST = 64
_WHOLE = re.compile(r"-?[0-9]{1,16}\Z", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,16})?\Z", re.ASCII)
_BOOLEANS = {"true": True, "false": False}
_COMPLAINT = re.compile(r"(.*?)(?: - at `(.*)`)?\Z", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)


def read_query(raw: bytes, shape: Any) -> Any:
    """The part after ``?`` as ``shape`` (a struct), or as nothing when ``shape`` is ``None``."""
    fields = _fields(shape)
    found: dict[str, Any] = {}
    for name, text in _pairs(raw):
        if name not in fields:
            raise InvalidField(_unknown("query name", name, fields), field=name)
        if name in found:
            raise InvalidField(f"{name} is given twice; give it once", field=name)
        found[name] = _value(name, text, fields[name])
    if shape is None:
        return None
    return as_type(found, shape, kind="query name")


async def read_body(request: Request, *, limit: int, optional: bool) -> Any:
    """The body's JSON as plain values; ``UNSET`` for an empty body that may be empty."""
    body = await whole(request, limit)
    if not body and optional:
        return msgspec.UNSET
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        given = f"it says it is {media!r}" if media else "it does not say what it is"
        raise Refused("unsupported-media-type", f"send the body as Content-Type: application/json; {given}")
    return read_json(body)


def read_json(body: bytes) -> Any:
    try:
        value = msgspec.json.decode(body)
        _check(value)
    except RecursionError as error:
        raise InvalidField(f"the body is nested deeper than {DEEPEST} levels", field="$") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidField(f"the body is not JSON: {error}", field="$") from error
    return value


def as_type(value: Any, shape: Any, *, kind: str = "field") -> Any:
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise _invalid(error, shape, kind) from error


def _invalid(error: msgspec.ValidationError, shape: Any, kind: str) -> InvalidField:
    found = _COMPLAINT.match(str(error))
    complaint, where = (found[1], found[2] or "$") if found else (str(error), "$")
    unknown = _UNKNOWN.match(complaint)
    if unknown is not None:
        known = _fields(shape) if where == "$" else ()
        return InvalidField(_unknown(kind, unknown[1], known), field=f"{where}.{unknown[1]}")
    complaint = f"{complaint[:1].lower()}{complaint[1:]}"
    place = where.removeprefix("$.")
    if complaint.startswith("invalid enum value") and (choices := _choices(_fields(shape).get(place))):
        complaint += f"; choose one of {', '.join(choices)}"
    return InvalidField(
        complaint if where == "$" else f"{place}: {complaint}", field=place if kind != "field" else where
    )


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"there is no {kind} {name!r}; did you mean {near[0]!r}?"
    return f"there is no {kind} {name!r}" + (f"; there are {', '.join(names)}" if names else "")


def _fields(shape: Any) -> dict[str, inspect.Type]:
    if not (isinstance(shape, type) and issubclass(shape, msgspec.Struct)):
        return {}
    described = cast("inspect.StructType", inspect.type_info(shape))
    return {field.encode_name: field.type for field in described.fields}


def _choices(wanted: inspect.Type | None) -> list[str]:
    kinds = wanted.types if isinstance(wanted, inspect.UnionType) else (wanted,)
    return [str(value) for kind in kinds if isinstance(kind, inspect.LiteralType) for value in kind.values]


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_NAMES)
    except ValueError as error:
        raise InvalidField(f"the query cannot be read: {error}", field="query") from error
    for name, text in pairs:
        if "\0" in name or "\0" in text:
            raise InvalidField("the query holds the character NUL; leave it out", field="query")
    return pairs


def _value(name: str, text: str, wanted: inspect.Type) -> Any:
    kinds = wanted.types if isinstance(wanted, inspect.UnionType) else (wanted,)
    if any(isinstance(kind, inspect.IntType) for kind in kinds):
        if not _WHOLE.match(text):
            raise InvalidField(f"{name}: expected a whole number, got {text[:40]!r}", field=name)
        return int(text)
    if any(isinstance(kind, inspect.FloatType) for kind in kinds):
        if not _NUMBER.match(text):
            raise InvalidField(f"{name}: expected a number, got {text[:40]!r}", field=name)
        return float(text)
    if any(isinstance(kind, inspect.BoolType) for kind in kinds):
        if text not in _BOOLEANS:
            raise InvalidField(f"{name}: expected true or false, got {text[:40]!r}", field=name)
        return _BOOLEANS[text]
    return text


async def whole(request: Request, limit: int) -> bytes:
    """The body. Raises ``Refused`` when it is too long, or its sender left in the middle of it."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise Refused("too-large", f"the body has more than {limit} bytes, which is what this server takes")
            parts.append(part)
    except ClientDisconnect:
        raise Refused("bad-request", "the connection was lost before the body was whole; send it again") from None
    return b"".join(parts)


def _check(value: Any) -> None:
    """What JSON allows and nothing behind us can hold: NUL in a text, numbers beyond 64 bits, endless nesting."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        inside: list[Any] = []
        for one in level:
            if isinstance(one, str):
                if "\0" in one:
                    raise InvalidField("a text in the body holds the character NUL; leave it out", field="$")
            elif isinstance(one, int):
                if not -(2**63) <= one < 2**63:
                    raise InvalidField("a number in the body is beyond 64 bits", field="$")
            elif isinstance(one, dict):
                inside += one
                inside += cast("dict[str, Any]", one).values()
            elif isinstance(one, list):
                inside += one
        if not inside:
            return
        level = inside
    raise RecursionError
