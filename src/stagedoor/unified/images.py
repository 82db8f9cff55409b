"""Images that agents show: kept with the event where they fit into it, and named in its words in any case."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

from .events import Notice, ShownImage

MOST_LETTERS = 2_000_000
"""Of base64 that one event carries: it goes through the log and to every follower. A larger image is only named."""
_DATA_URL = re.compile(r"data:(image/[\w.+-]+)(?:;[\w.+-]+=[^;,]*)*;base64,", re.IGNORECASE)
_MEDIA_TYPE = re.compile(r"image/[\w.+-]{1,80}", re.IGNORECASE)
_BEGINNINGS = {"iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def image_mark(media_type: str, content: str, *, place: str = "") -> str:
    """What stands for an image where there is only text."""
    size = len(content) * 3 // 4 - content[-2:].count("=")
    return f"[an image: {place or media_type}, {size} byte{'' if size == 1 else 's'}]"


def image_in(block: object) -> ShownImage | None:
    """The image of a content block, in the words of the tool servers, of the agents' protocol or of a model's API."""
    match block:
        case {"type": "image", "data": str(content), "mimeType": str(kind)}:
            return ShownImage(kind, content)
        case {"type": "image", "source": {"type": "base64", "data": str(content), "media_type": str(kind)}}:
            return ShownImage(kind, content)
        case (
            {"type": "inputImage" | "input_image", "imageUrl": str(url)}
            | {"type": "inputImage" | "input_image", "image_url": str(url)}
            | {"type": "image_url", "image_url": {"url": str(url)}}
            | {"type": "image_url", "imageUrl": {"url": str(url)}}
            | {"type": "file", "url": str(url)}
        ):
            return image_of_url(url)
        case {"inlineData": {"data": str(content), "mimeType": str(kind)}} if kind.startswith("image/"):
            return ShownImage(kind, content)
        case {"type": "resource", "resource": {"blob": str(content), "mimeType": str(kind)}} if kind.startswith(
            "image/"
        ):
            return ShownImage(kind, content)
        case _:
            return None


def image_of_url(url: str) -> ShownImage | None:
    """Of a ``data:`` address; nothing is fetched from any other."""
    head = _DATA_URL.match(url)
    return None if head is None else ShownImage(head[1].lower(), url[head.end() :])


def image_of_content(content: str) -> ShownImage | None:
    """Of base64 that comes without its type: how it begins tells which it is."""
    kind = next((kind for letters, kind in _BEGINNINGS.items() if content.startswith(letters)), None)
    return None if kind is None else ShownImage(kind, content)


def images_in(content: object) -> list[ShownImage]:
    """Those among content blocks."""
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    return [image for block in blocks if (image := image_in(block)) is not None]


def that_fit(images: Iterable[ShownImage]) -> list[ShownImage]:
    """Those that one event can carry, and that are what they say as far as letters show."""
    room, fitting = MOST_LETTERS, list[ShownImage]()
    for image in images:
        room -= len(image.content)
        if room < 0:
            break
        if _MEDIA_TYPE.fullmatch(image.media_type) and _BASE64.fullmatch(image.content):
            fitting.append(image)
    return fitting


def image_notice(image: ShownImage, parent: str | None) -> Notice:
    """One that the agent shows in its answer."""
    named = f"the agent sent {image_mark(image.media_type, image.content)[1:-1]}"
    return Notice(level="info", code="attachment", message=named, images=that_fit([image]), parent_tool_use_id=parent)


def marks_of(images: Iterable[ShownImage]) -> list[str]:
    return [image_mark(image.media_type, image.content) for image in images]


def with_marks(text: str, images: Iterable[ShownImage]) -> str:
    """``text`` in which every image is named."""
    return "\n".join([*([text] if text else []), *(mark for mark in marks_of(images) if mark not in text)])
