"""Files that people send with a prompt: pictures are stored for the agent, text becomes part of the prompt."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from pathlib import Path

from stagedoor.errors import BadRequest

from ..views import AttachedFile

MOST = 10
_SIGNATURES: dict[str, re.Pattern[bytes]] = {
    "png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "jpg": re.compile(rb"\xff\xd8\xff"),
    "gif": re.compile(rb"GIF8[79]a"),
    "webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
_UNSAFE = re.compile(r"[^\w.-]+")


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
        ending = next((name for name, signature in _SIGNATURES.items() if signature.match(content)), "")
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
