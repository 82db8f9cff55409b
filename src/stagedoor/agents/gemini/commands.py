"""What a caller can send to a running ``stream-json`` process. Its prompt is part of its launch."""

from __future__ import annotations

import re
from typing import TypeAlias

import msgspec

# What the CLI takes for a reference: an at sign that no backslash precedes, and the beginning of a path behind it.
_REFERENCE = re.compile(r"(?<!\\)@(?=[^\s,;!?()\[\]{}])")


class GeminiInterrupt(msgspec.Struct, frozen=True):
    """End the turn. The process ends with it; the session continues with the next prompt."""


Command: TypeAlias = GeminiInterrupt


def literal(prompt: str) -> str:
    """``prompt`` so that ``stream-json`` takes it as plain text.

    A prompt that begins with ``/`` would run a slash command, so it gets a leading space. ``@src/main.py`` would append
    that file, and ``me@example.com`` any file with a name like that: a backslash, the CLI's own escape, stops it.
    """
    escaped = _REFERENCE.sub(r"\\@", prompt)
    return f" {escaped}" if escaped.startswith("/") and not escaped.startswith(("//", "/*")) else escaped


def literal_over_acp(prompt: str) -> str:
    """The same for ``--acp``, which expands no ``@`` but looks for commands (``$`` too) behind any white space.

    A zero-width space is none to the CLI; the model does not mind it.
    """
    return f"\u200b{prompt}" if prompt.lstrip().lstrip("\ufeff").startswith(("/", "$")) else prompt
