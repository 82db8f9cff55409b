"""Requests into typed values. Errors name the field; nothing is guessed, nothing ignored."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect
from starlette.requests import ClientDisconnect, Request

from .problems import InvalidField, RefusedRequest

MAX_NAMES = 64
MAX_DEPTH = 64
_WHOLE = re.compile(r"-?[0-9]{1,16}\Z", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,16})?\Z", re.ASCII)
_BOOLEANS = {"true": True, "false": False}
_COMPLAINT = re.compile(r"(.*?)(?: - at `(.*)`)?\Z", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)


def read_query(raw: bytes, shape: Any) -> Any:
    """The part after ``?`` as ``shape`` (a struct), or as nothing when ``shape`` is ``None``."""
    fields = _fields(shape)
    values: dict[str, Any] = {}
    for name, text in _pairs(raw):
        if name not in fields:
            raise InvalidField(_unknown("query name", name, fields), field=name)
        if name in values:
            raise InvalidField(f"{name} was sent twice; send it once", field=name)
        values[name] = _value(name, text, fields[name])
    if shape is None:
        return None
    return as_type(values, shape, kind="query name")


async def read_body(request: Request, *, limit: int, optional: bool) -> Any:
    """The body's JSON as plain values; ``UNSET`` for an empty body that may be empty."""
    body = await read_bytes(request, limit)
    if not body and optional:
        return msgspec.UNSET
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        current = f"not {media!r}" if media else "the request has none"
        raise RefusedRequest("unsupported-media-type", f"send the body with Content-Type: application/json; {current}")
    return read_json(body)


def read_json(body: bytes) -> Any:
    try:
        value = msgspec.json.decode(body)
        _check(value)
    except RecursionError as error:
        raise InvalidField(f"the body is nested deeper than {MAX_DEPTH} levels", field="$") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidField(f"the body is not JSON: {error}", field="$") from error
    return value


def _whole_numbers(value: Any) -> Any:
    """To JSON, and to the schema we publish, ``5.0`` is the whole number 5."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, list):
        return [_whole_numbers(one) for one in cast("list[object]", value)]
    if isinstance(value, dict):
        return {name: _whole_numbers(one) for name, one in cast("dict[str, Any]", value).items()}
    return value


def as_type(value: Any, shape: Any, *, kind: str = "field") -> Any:
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        with contextlib.suppress(msgspec.ValidationError):
            return msgspec.convert(_whole_numbers(value), shape)
        raise _invalid(error, shape, kind) from error


def _invalid(error: msgspec.ValidationError, shape: Any, kind: str) -> InvalidField:
    match = _COMPLAINT.match(str(error))
    complaint, path = (match[1], match[2] or "$") if match else (str(error), "$")
    unknown = _UNKNOWN.match(complaint)
    if unknown is not None:
        names = _fields(shape) if path == "$" else ()
        return InvalidField(_unknown(kind, unknown[1], names), field=f"{path}.{unknown[1]}")
    complaint = f"{complaint[:1].lower()}{complaint[1:]}"
    name = path.removeprefix("$.")
    if complaint.startswith("invalid enum value") and (choices := _choices(_fields(shape).get(name))):
        complaint += f"; choose one of {', '.join(choices)}"
    return InvalidField(complaint if path == "$" else f"{name}: {complaint}", field=name if kind != "field" else path)


def _unknown(kind: str, name: str, names: Iterable[str]) -> str:
    names = list(names)
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"unknown {kind} {name!r}: did you mean {near[0]!r}?"
    return f"unknown {kind} {name!r}" + (f"; use one of {', '.join(names)}" if names else "")


def _fields(shape: Any) -> dict[str, inspect.Type]:
    if not (isinstance(shape, type) and issubclass(shape, msgspec.Struct)):
        return {}
    described = cast("inspect.StructType", inspect.type_info(shape))
    return {field.encode_name: field.type for field in described.fields}


def _choices(field_type: inspect.Type | None) -> list[str]:
    kinds = field_type.types if isinstance(field_type, inspect.UnionType) else (field_type,)
    return [str(value) for kind in kinds if isinstance(kind, inspect.LiteralType) for value in kind.values]


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_NAMES)
    except ValueError as error:
        raise InvalidField(f"cannot read the query: {error}", field="query") from error
    for name, text in pairs:
        if "\0" in name or "\0" in text:
            raise InvalidField("the query contains the character NUL; leave it out", field="query")
    return pairs


def _value(name: str, text: str, field_type: inspect.Type) -> Any:
    kinds = field_type.types if isinstance(field_type, inspect.UnionType) else (field_type,)
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


async def read_bytes(request: Request, limit: int) -> bytes:
    """The body. Raises ``RefusedRequest`` when it is too long, or its sender left in the middle of it."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise RefusedRequest("too-large", f"the body is larger than {limit:,} bytes, the limit of this server")
            parts.append(part)
    except ClientDisconnect:
        raise RefusedRequest(
            "bad-request", "the connection was lost before the body was complete; send it again"
        ) from None
    return b"".join(parts)


def _check(value: Any) -> None:
    """What JSON allows and nothing behind us can store: NUL in a text, numbers beyond 64 bits, endless nesting."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inside: list[Any] = []
        for item in level:
            if isinstance(item, str):
                if "\0" in item:
                    raise InvalidField("the body contains the character NUL; leave it out", field="$")
            elif isinstance(item, int):
                if not -(2**63) <= item < 2**63:
                    raise InvalidField("the body contains a number of more than 64 bits", field="$")
            elif isinstance(item, dict):
                inside += item
                inside += cast("dict[str, Any]", item).values()
            elif isinstance(item, list):
                inside += item
        if not inside:
            return
        level = inside
    raise RecursionError
