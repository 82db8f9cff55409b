"""REST: Markdown as safe HTML. Whatever an agent writes, only known tags come out, and nothing is fetched."""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from .operations import Operation, RestCall

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MAX_CHARACTERS = 200_000
_HIGHLIGHTED = 60_000
"""Longer code is shown without colours: they would cost more than they help."""
Text = Annotated[str, msgspec.Meta(max_length=MAX_CHARACTERS)]


class RenderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Markdown. Together they may be as long as one text may be; what goes beyond is not rendered."""

    texts: Annotated[list[Text], msgspec.Meta(max_length=100)]


class RenderedTexts(msgspec.Struct, frozen=True):
    html: list[str]


def rendered(text: str) -> str:
    """``text`` as HTML. Raw HTML in it is shown as text, pictures become links, links leave without a trace."""
    return _rendered(text) if len(text) <= MAX_CHARACTERS else plain(text)


def plain(text: str) -> str:
    """``text`` as it is written."""
    return f"<pre>{escape(visible(text))}</pre>"


@lru_cache(maxsize=512)
def _rendered(text: str) -> str:
    return str(_markdown().render(visible(text)))


def visible(text: str) -> str:
    """Characters that reorder or hide text, made visible."""
    return text.translate(_HIDDEN)


_HIDDEN = {
    code: f"⟦U+{code:04X}⟧" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
} | {code: "�" for code in (*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0), 0xFEFF)}


@lru_cache(maxsize=1)
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False, "highlight": _highlighted, "maxNesting": 20})
    markdown.enable(["table", "strikethrough"])
    markdown.add_render_rule("link_open", _link)
    markdown.add_render_rule("image", _picture)
    markdown.core.ruler.push("tasks_and_links", _tasks_and_links)
    for cell in ("th", "td"):
        markdown.add_render_rule(f"{cell}_open", _cell)
    return markdown


_ADDRESS = re.compile(r"https?://[^\s<>()\[\]\"'`]*[^\s<>()\[\]\"'`.,;:!?]")
_TASK = re.compile(r"\[([ xX])\]\s")


def _tasks_and_links(state: Any) -> None:
    """``[ ]`` at the beginning of a list's item becomes a box, an address in plain text a link."""
    for at, token in enumerate(state.tokens):
        if token.type != "inline" or not token.children:
            continue
        first = token.children[0]
        in_item = at > 1 and state.tokens[at - 2].type == "list_item_open"
        if in_item and first.type == "text" and (task := _TASK.match(first.content)):
            first.content = ("☐ " if task[1] == " " else "☑ ") + first.content[task.end() :]
        token.children = _with_links(token.children)


def _with_links(children: list[Any]) -> list[Any]:
    from markdown_it.token import Token

    out: list[Any] = []
    depth = 0
    for child in children:
        depth += (child.type == "link_open") - (child.type == "link_close")
        if child.type != "text" or depth:
            out.append(child)
            continue
        end = 0
        for address in _ADDRESS.finditer(child.content):
            out.append(Token("text", "", 0, content=child.content[end : address.start()]))
            out.append(Token("link_open", "a", 1, attrs={"href": address[0]}))
            out.append(Token("text", "", 0, content=address[0]))
            out.append(Token("link_close", "a", -1))
            end = address.end()
        out.append(Token("text", "", 0, content=child.content[end:]))
    return out


def _link(renderer: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    token = tokens[at]
    address = str(token.attrGet("href") or "")
    if not address.startswith(("https://", "http://", "mailto:")):
        return "<a>"  # a path in the workspace, or something worse: it leads nowhere
    return f'<a href="{escape(address)}" target="_blank" rel="noopener noreferrer nofollow">'


def _cell(renderer: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    """How a column is aligned is a class: the page's policy allows no style in the text."""
    token = tokens[at]
    side = str(token.attrGet("style") or "").removeprefix("text-align:")
    return f'<{token.tag} class="{side}">' if side in ("left", "right", "center") else f"<{token.tag}>"


def _picture(renderer: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    """A picture would tell its server who reads this: its description is shown instead."""
    return f"<em>[{escape(str(tokens[at].content or 'picture'))}]</em>"


def _highlighted(code: str, language: str, _: str) -> str:
    if not language or len(code) > _HIGHLIGHTED:
        return ""
    # It carries no types: everything of it passes through ``Any``.
    pygments: Any = import_module("pygments")
    try:
        lexer = import_module("pygments.lexers").get_lexer_by_name(language.strip().lower())
    except import_module("pygments.util").ClassNotFound:
        return ""
    return str(pygments.highlight(code, lexer, import_module("pygments.formatters").HtmlFormatter(nowrap=True)))


async def render(call: RestCall[None, RenderBody]) -> RenderedTexts:
    return await asyncio.to_thread(_render_all, call.body.texts)  # a long text takes seconds: nobody else waits


def _render_all(texts: list[str]) -> RenderedTexts:
    remaining = MAX_CHARACTERS
    html: list[str] = []
    for text in texts:
        remaining -= len(text)
        html.append(rendered(text) if remaining >= 0 else plain(text))
    return RenderedTexts(html)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="render", method="POST", path="/api/render", tag="page", scope="watch", verb=render, keyed=False,
        summary="Markdown as safe HTML", bodies=(RenderBody,), answer=RenderedTexts,
    ),
)  # fmt: skip
