"""Decode one JSON message into the struct that its discriminating fields name.

Every agent has a visible table *discriminator → struct*. What the table does not know, or what is not JSON at all,
becomes an :class:`UnknownMessage` value that holds the raw bytes: one surprising line must not end a session, and
nothing an agent prints is ever lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from .fitting import as_bytes, finite, fitted
from .stamps import Stamped

Shape = TypeVar("Shape")


class UnknownMessage(Stamped, frozen=True):
    """A message we could not type: a new kind, a changed shape, a line over the bound, or not JSON at all."""

    raw: bytes
    why: str


class Shapes(Generic[Shape]):
    """A table from discriminator to struct, with the decoders compiled once.

    ``fields`` names one or two discriminating fields. A key of the table is the value of the first field
    (``"assistant"``), or both joined by a slash (``"system/init"``); the longer key wins. ``exact`` (all, or
    these keys): messages that somebody will decide about, of which no member may be left out because we cannot read it.
    """

    def __init__(
        self,
        table: Mapping[str, type[Shape]],
        fields: tuple[str, ...] = ("type",),
        *,
        exact: bool | frozenset[str] = False,
    ) -> None:
        self._fields = fields
        self._exact = frozenset(table) if exact is True else exact or frozenset()
        header = msgspec.defstruct(
            "Header", [(f"key{n}", Any, None) for n in range(len(fields))], rename=lambda name: fields[int(name[3:])]
        )
        self._header: msgspec.json.Decoder[Any] = msgspec.json.Decoder(header)
        self._decoders: dict[str, msgspec.json.Decoder[Shape]] = {
            key: msgspec.json.Decoder(shape) for key, shape in table.items()
        }
        # The common case in one pass: CLIs print the discriminating fields first, so their values can be cut out of the
        # bytes without decoding the message twice. A key that could be the beginning of a longer one does not qualify.
        self._prefix = b'{"' + fields[0].encode() + b'":"'
        self._between = b'","' + fields[1].encode() + b'":"' if len(fields) > 1 else b"/"
        split = {key.split("/", 1)[0] for key in table if "/" in key}
        self._sniffed = {
            key.encode().replace(b"/", self._between): decoder
            for key, decoder in self._decoders.items()
            if key not in split
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The keys of the table."""
        return tuple(self._decoders)

    def decode(self, message: bytes) -> Shape | UnknownMessage:
        """Never raises on content."""
        if message.startswith(self._prefix):
            start = len(self._prefix)
            end = message.find(b'"', start, start + 64)
            decoder = self._sniffed.get(message[start:end])
            if decoder is None and message.startswith(self._between, end):
                second = end + len(self._between)
                decoder = self._sniffed.get(message[start : message.find(b'"', second, second + 64)])
            if decoder is not None:
                try:
                    return decoder.decode(message)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    pass
        return self._by_header(message)

    def _by_header(self, message: bytes) -> Shape | UnknownMessage:
        whole = message
        try:
            header = self._header.decode(whole)
        except msgspec.ValidationError as error:
            return UnknownMessage(message, str(error))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            try:
                whole = repaired(message)
                header = self._header.decode(whole)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                return UnknownMessage(message, str(error) or type(error).__name__)
        values = [getattr(header, f"key{n}") for n in range(len(self._fields))]
        first = values[0]
        if not isinstance(first, str):
            return UnknownMessage(message, f"no {self._fields[0]!r} in the message")
        key = "/".join(value for value in values if isinstance(value, str))
        decoder = self._decoders.get(key) or self._decoders.get(first)
        if decoder is None:
            return UnknownMessage(message, f"unknown {'/'.join(self._fields)} {key!r}")
        value = _decoded(decoder, whole, exact=key in self._exact or first in self._exact)
        return UnknownMessage(message, value) if isinstance(value, str) else value


def repaired(message: bytes) -> bytes:
    """The same message as strict UTF-8 JSON. Raises ``ValueError`` when it is no JSON at all.

    Node prints half of a split emoji as a lone ``"\\ud83d"``, tools print invalid UTF-8 and raw control characters,
    Python prints ``NaN``, Windows a byte order mark; strict decoders refuse the whole line for it. Used on the failure
    path only.
    """
    return as_bytes(finite(json.loads(message.decode("utf-8-sig", "replace"), strict=False)))


def _decoded(decoder: msgspec.json.Decoder[Shape], raw: bytes | msgspec.Raw, *, exact: bool) -> Shape | str:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error) or type(error).__name__
    try:
        return decoder.decode(fitted(raw, decoder.type, exact=exact))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return reason


def decode_or_reason(decoder: msgspec.json.Decoder[Shape], raw: bytes | msgspec.Raw) -> Shape | str:
    """One member of a message, with the same forgiveness the whole message gets; a ``str`` says why there is none."""
    return _decoded(decoder, raw, exact=False)


def decode_question(decoder: msgspec.json.Decoder[Shape], raw: bytes | msgspec.Raw) -> Shape | str:
    """The same for what somebody will decide about: no member is left out because we cannot read it."""
    return _decoded(decoder, raw, exact=True)


def decode_strictly(decoder: msgspec.json.Decoder[Shape], raw: bytes | msgspec.Raw) -> Shape | str:
    """The same for what was decided: an answer that does not stand there as agreed is none."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        return str(error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return decoder.decode(repaired(bytes(raw)))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return str(error) or type(error).__name__
