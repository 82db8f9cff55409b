"""What an editor sends with ``session/prompt``, as our agents take it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from stagedoor.errors import BadRequest
from stagedoor.service.views import AttachedFile


class EditorPrompt(msgspec.Struct, frozen=True):
    """A prompt as text, and the pictures that go with it."""

    text: str
    pictures: tuple[AttachedFile, ...] = ()


def read_prompt(blocks: Sequence[dict[str, Any]], unsaved: Mapping[str, str]) -> EditorPrompt:
    """The blocks in their order; links as the path or the address they name, embedded files with their text.

    ``unsaved``: path → the text of a linked file as the editor has it, where that is not what is on disk.
    """
    pieces: list[str] = []
    pictures: list[AttachedFile] = []
    for number, block in enumerate(blocks):
        match block:
            case {"type": "image", "data": str(content)}:
                pictures.append(AttachedFile(name=f"picture-{len(pictures) + 1}", content=content))
            case _:
                pieces.append(_piece(number, block, unsaved))
    text = "\n".join(piece for piece in pieces if piece)
    if not text.strip():
        raise BadRequest("the prompt is empty; send at least one text block that says what the agent should do")
    return EditorPrompt(text, tuple(pictures))


def linked_files(blocks: Sequence[dict[str, Any]]) -> list[str]:
    """The paths that links of a prompt name, each once."""
    links = [path_of(block["uri"]) for block in blocks if block.get("type") == "resource_link" and "uri" in block]
    return list(dict.fromkeys(path for path in links if path.startswith("/")))


def path_of(uri: object) -> str:
    """The path of a ``file:`` address; any other address as it is."""
    try:
        parts = urlsplit(str(uri))
    except ValueError:
        return str(uri)
    return unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else str(uri)


def _piece(number: int, block: dict[str, Any], unsaved: Mapping[str, str]) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource_link", "uri": str(uri)}:
            path = path_of(uri)
            return _fenced(f"{path} (not saved yet)", unsaved[path]) if path in unsaved else f"@{path}"
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return _fenced(path_of(uri), text)
        case {"type": "resource", "resource": {"blob": str()}}:
            raise BadRequest(f"prompt[{number}]: binary files are not passed on; send a resource_link to the file")
        case {"type": "audio"}:
            raise BadRequest(f"prompt[{number}]: audio is not passed on (promptCapabilities says so)")
        case {"type": "image"}:
            raise BadRequest(f"prompt[{number}]: an image needs its bytes in data, as base64")
        case _:
            raise BadRequest(f"prompt[{number}]: not a block of the protocol; send a text, resource or resource_link")


def _fenced(name: str, text: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)  # nothing in the file ends it early
    return f"\n{' '.join(name.split())}:\n{fence}\n{text}\n{fence}\n"
