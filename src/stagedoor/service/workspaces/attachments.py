"""Files that people send with a prompt: pictures are stored for the agent, text becomes part of the prompt."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stagedoor.errors import BadRequest, SessionNotFound
from stagedoor.machine.beneath import open_beneath, regular_file

from ..views import AttachedFile

MOST = 10
_SIGNATURES: dict[str, re.Pattern[bytes]] = {
    "png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "jpg": re.compile(rb"\xff\xd8\xff"),
    "gif": re.compile(rb"GIF8[79]a"),
    "webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
_UNSAFE = re.compile(r"[^\w.-]+")
_MEDIA_TYPES = {"png": "image/png", "jpg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}


class AttachedPicture(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A picture that was sent with a message. ``content`` is base64."""

    name: str
    media_type: str
    content: str


def attachment_id(path: str) -> str:
    """What clients call a picture of a session: its message and its name."""
    return "/".join(Path(path).parts[-2:])


def read_picture(folder: Path, name: str) -> AttachedPicture:
    """The one called ``name`` (``attachment_id``) of the session whose pictures are in ``folder``."""
    try:
        opened = regular_file(open_beneath(folder, folder / name, os.O_RDONLY | os.O_NONBLOCK))
        if opened is None:
            raise ValueError(f"{name!r} is not a file")
        with opened:
            content = opened.read()
    except (OSError, ValueError) as fault:
        raise SessionNotFound(f"there is no attachment {name!r} here; it may have been removed") from fault
    ending = _ending(content)
    media_type = _MEDIA_TYPES.get(ending)
    if media_type is None:
        raise SessionNotFound(f"attachment {name!r} is not a picture")
    text = base64.b64encode(content).decode()
    return AttachedPicture(name=name.rpartition("/")[2], media_type=media_type, content=text)


def attach(prompt: str, attachments: Sequence[AttachedFile], folder: Path) -> tuple[str, tuple[str, ...]]:
    """The prompt with every text file in it, and the pictures' paths below ``folder``. What a file is, its bytes say.

    Nothing is written unless everything can be sent.
    """
    if len(attachments) > MOST:
        raise BadRequest(f"{len(attachments)} files are attached; at most {MOST} can be")
    texts: list[str] = []
    pictures: list[tuple[str, bytes]] = []
    for attachment in attachments:
        content = _decoded(attachment)
        ending = _ending(content)
        if ending:
            stem = _UNSAFE.sub("-", Path(attachment.name).stem).strip(".-")[:60] or "picture"
            pictures.append((f"{len(pictures) + 1}-{stem}.{ending}", content))
        else:
            texts.append(_text(attachment.name, content))
    if pictures:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, content in pictures:
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    return "\n\n".join([prompt, *texts]), tuple(str(folder / name) for name, _ in pictures)


def _ending(content: bytes) -> str:
    return next((name for name, signature in _SIGNATURES.items() if signature.match(content)), "")


def _decoded(attachment: AttachedFile) -> bytes:
    try:
        return base64.b64decode(attachment.content, validate=True)
    except (binascii.Error, ValueError) as fault:
        raise BadRequest(f"{attachment.name!r}: the content is not base64") from fault


def _text(name: str, content: bytes) -> str:
    try:
        text = content.decode()
        if "\0" in text:
            raise ValueError
    except ValueError as fault:
        raise BadRequest(
            f"{name!r} is neither a picture (PNG, JPEG, GIF, WebP) nor text; put it into the project folder and name it"
        ) from fault
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)  # nothing in the file ends it early
    shown = " ".join(name.split())
    return f"{shown}:\n{fence}\n{text.rstrip()}\n{fence}"
