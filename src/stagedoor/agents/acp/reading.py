"""Reading messages that are not quite as they should be."""

from __future__ import annotations

import msgspec

from stagedoor.wire.shapes import repaired

from .responses import GIVEAWAYS


def strict(message: bytes) -> bytes:
    """Half an emoji or a stray byte deep inside the parameters must not spoil the whole message."""
    if message.isascii() and b"\\ud" not in message and b"\\uD" not in message:
        return message
    try:
        msgspec.json.decode(message)
        return message
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return repaired(message)
    except (ValueError, RecursionError):
        return message


class _Addressed(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str = ""


def session_in(params: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(bytes(params), type=_Addressed).session_id
    except msgspec.MsgspecError:
        return ""


def method_by_shape(result: bytes) -> str:
    try:
        members = msgspec.json.decode(result, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return ""
    return next((method for member, method in GIVEAWAYS.items() if member in members), "")
