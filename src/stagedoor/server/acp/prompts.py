"""What an editor sends with ``session/prompt``, as the text that our agents take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from stagedoor.errors import BadRequest


def prompt_text(blocks: Sequence[dict[str, Any]]) -> str:
    """The blocks in their order; links as the path or the address they name, embedded files with their text."""
    pieces = [_piece(number, block) for number, block in enumerate(blocks)]
    text = "\n".join(piece for piece in pieces if piece)
    if not text.strip():
        raise BadRequest("the prompt is empty; send at least one text block that says what the agent should do")
    return text


def _piece(number: int, block: dict[str, Any]) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource_link", "uri": str(uri)}:
            return f"@{path_of(uri)}"
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            fence = "`" * max(3, 1 + max((len(run) for run in _fences(text)), default=0))
            return f"\n{path_of(uri)}:\n{fence}\n{text}\n{fence}\n"
        case {"type": "resource", "resource": {"blob": str()}}:
            raise BadRequest(f"prompt[{number}]: binary files are not passed on; send a resource_link to the file")
        case {"type": "image" | "audio" as kind}:
            raise BadRequest(f"prompt[{number}]: {kind} blocks are not passed on (promptCapabilities says so)")
        case _:
            raise BadRequest(f"prompt[{number}]: not a block of the protocol; send a text, resource or resource_link")


def path_of(uri: str) -> str:
    """The path of a ``file:`` address; any other address as it is."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else uri


def _fences(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().strip("`")]
