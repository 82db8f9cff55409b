"""A git configuration file read as data: nothing in it is in force, and nothing it includes is opened."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

_SECTION = re.compile(rb'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]')
_KEY = re.compile(rb"\s*([A-Za-z][A-Za-z0-9-]*)[ \t]*(=?)[ \t]*")
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"b": b"\b", b'"': b'"', b"\\": b"\\"}
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0", ""})

Settings = Mapping[str, Sequence[str]]
"""All values of each setting, in order. Section and key are in small letters; what is between them is as written."""


class BadSettings(ValueError):
    """Not a configuration file of git's."""


def parse_settings(content: bytes) -> dict[str, list[str]]:
    """Every setting of one file."""
    found: dict[str, list[str]] = {}
    for name, value in _entries(content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")):
        found.setdefault(name, []).append(value)
    return found


def last(settings: Settings, name: str, default: str = "") -> str:
    values = settings.get(name)
    return values[-1] if values else default


def is_true(settings: Settings, name: str) -> bool:
    return truth(last(settings, name, "false")) is True


def truth(value: str) -> bool | None:
    """What git reads ``value`` as; ``None`` when it is neither."""
    word = value.lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _entries(content: bytes) -> Iterator[tuple[str, str]]:
    at, section = 0, ""
    while at < len(content):
        here = content[at : at + 1]
        if here.isspace():
            at += 1
        elif here in (b"#", b";"):
            at = _line_end(content, at)
        elif here == b"[":
            header = _SECTION.match(content, at)
            if header is None:
                raise BadSettings(f"no section begins at byte {at}")
            name, _, inner = header[1].decode().partition(".")
            section = name.lower() + (f".{inner.lower()}" if inner else "")
            if header[2] is not None:
                section += "." + re.sub(rb"\\(.)", rb"\1", header[2]).decode("utf-8", "surrogateescape")
            at = header.end()
        else:
            key = _KEY.match(content, at)
            if key is None:
                raise BadSettings(f"no setting begins at byte {at}")
            value, at = _value(content, key.end()) if key[2] else (b"true", _line_end(content, key.end()))
            name = key[1].decode().lower()
            yield f"{section}.{name}" if section else name, value.decode("utf-8", "surrogateescape")


def _line_end(content: bytes, at: int) -> int:
    end = content.find(b"\n", at)
    return len(content) if end < 0 else end


def _value(content: bytes, at: int) -> tuple[bytes, int]:
    value, spaces, quoted = b"", b"", False
    while at < len(content):
        here = content[at : at + 1]
        if here == b"\n":
            if quoted:
                raise BadSettings(f"a quotation is not closed at byte {at}")
            break
        if here in (b"#", b";") and not quoted:
            at = _line_end(content, at)
            break
        at += 1
        if here.isspace() and not quoted:
            spaces += here if value else b""
            continue
        if here == b'"':
            quoted = not quoted
            continue
        if here == b"\\":
            escaped = content[at : at + 1]
            at += 1
            if escaped == b"\n":
                continue
            if escaped not in _ESCAPES:
                raise BadSettings(f"an unknown escape at byte {at}")
            here = _ESCAPES[escaped]
        value, spaces = value + spaces + here, b""
    return value, at
