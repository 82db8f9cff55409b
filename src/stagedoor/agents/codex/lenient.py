"""Decode one member of a message with the same forgiveness the whole message gets."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ...wire.shapes import repaired

Shape = TypeVar("Shape")


def decoded(decoder: msgspec.json.Decoder[Shape], raw: bytes | msgspec.Raw) -> Shape | str:
    """The value, or a sentence saying why there is none."""
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
