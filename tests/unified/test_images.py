"""Images in the words of every protocol that carries them, and what an event takes of them."""

from __future__ import annotations

from typing import Any

import pytest

from stagedoor.unified.events import Notice, ShownImage
from stagedoor.unified.images import (
    MOST_LETTERS,
    image_in,
    image_notice,
    image_of_content,
    images_in,
    that_fit,
    with_marks,
)

PNG = ShownImage("image/png", "iVBORw0KGgo=")
URL = "data:image/png;base64,iVBORw0KGgo="
BLOCKS: dict[str, tuple[Any, ShownImage | None]] = {
    "a tool server's": ({"type": "image", "data": PNG.content, "mimeType": "image/png"}, PNG),
    "a model API's": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG.content}},
        PNG,
    ),
    "by an address, camel case": ({"type": "inputImage", "imageUrl": URL}, PNG),
    "by an address, snake case": ({"type": "input_image", "image_url": URL, "detail": "high"}, PNG),
    "by an address in an object": ({"type": "image_url", "imageUrl": {"url": URL}}, PNG),
    "an attachment": ({"type": "file", "mime": "image/png", "url": URL}, PNG),
    "an address with parameters": ({"type": "file", "url": "data:image/PNG;name=a;base64,iVBORw0KGgo="}, PNG),
    "inline bytes": ({"inlineData": {"mimeType": "image/png", "data": PNG.content}}, PNG),
    "an embedded resource": (
        {"type": "resource", "resource": {"uri": "x:y", "blob": PNG.content, "mimeType": "image/png"}},
        PNG,
    ),
    "nothing is fetched": ({"type": "input_image", "image_url": "http://127.0.0.1/a.png"}, None),
    "inline sound": ({"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}}, None),
    "another file": ({"type": "file", "url": "data:text/plain;base64,AAAA"}, None),
    "a page as an image": ({"type": "file", "url": "data:text/html;image/png;base64,AAAA"}, None),
    "text": ({"type": "text", "text": "hello"}, None),
    "bytes that are none": ({"type": "image", "data": 3, "mimeType": "image/png"}, None),
    "no block": (None, None),
}


@pytest.mark.parametrize(("block", "image"), BLOCKS.values(), ids=list(BLOCKS))
def test_blocks(block: Any, image: ShownImage | None) -> None:
    assert image_in(block) == image
    assert images_in([block, "-"]) == ([] if image is None else [image])


def test_what_an_event_carries() -> None:
    half = ShownImage("image/png", "A" * (MOST_LETTERS // 2))
    assert that_fit([half, half, PNG]) == [half, half]
    assert that_fit([ShownImage("image/png", "A" * (MOST_LETTERS + 4))]) == []
    wrong = [("text/html", "AAAA"), ("image/png", "<svg>"), ("image/png", ""), ("image/png\r\nx", "AAAA")]
    assert that_fit([*(ShownImage(*words) for words in wrong), PNG]) == [PNG]


def test_words_for_images() -> None:
    mark = "[an image: image/png, 8 bytes]"
    assert with_marks("two birds", [PNG]) == f"two birds\n{mark}"
    assert with_marks(f"{mark} a bird", [PNG]) == f"{mark} a bird"
    assert (with_marks("", [PNG]), with_marks("", [])) == (mark, "")
    assert image_notice(PNG, "t1") == Notice(
        level="info", code="attachment", message="the agent sent an image: image/png, 8 bytes", images=[PNG],
        parent_tool_use_id="t1",
    )  # fmt: skip
    assert [image_of_content(content) for content in (PNG.content, "/9j/AAAA", "PGh0bWw+")] == [
        PNG, ShownImage("image/jpeg", "/9j/AAAA"), None,
    ]  # fmt: skip
