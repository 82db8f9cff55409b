"""What a session plays: the script of the program, one of its routes, or one that a prompt brings along."""

from __future__ import annotations

import re

from stagedoor.testing.script import Script

FENCE = re.compile(r"^```stagedoor[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LIKE_A_SCRIPT = re.compile(r"\s*(\[\s*[\[{\"]|\{\s*\"?script\"?\s*:|script:\s|- )")


class BadScript(Exception):
    """A prompt's fenced script cannot be read; the sentence says where and why."""


def script_in(prompt: str) -> Script | None:
    """The script a prompt is, or holds in a fenced ``stagedoor`` block; None for an ordinary prompt."""
    fenced = FENCE.search(prompt)
    if fenced is None and LIKE_A_SCRIPT.match(prompt) is None:
        return None
    from stagedoor.testing.yaml_script import ScriptError, load_script  # only scripts need YAML, and it takes its time

    try:
        return load_script((fenced[1] if fenced else prompt) + "\n").script
    except ScriptError as error:
        if fenced is None:
            return None  # an ordinary prompt may well begin with a dash
        raise BadScript(str(error)) from None
