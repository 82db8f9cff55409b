"""A home for Kimi Code in which a session's rules are: everything in it is the user's, but the configuration.

It has no rules of its own over the protocol, and no switch that takes a tool away; but it runs the hooks of its
configuration before each call, and one of them may refuse it. So it gets the user's configuration with our hooks.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from pathlib import Path

CONFIG = "config.toml"
FOLDERS = ("sessions", "logs", "credentials", "blobs")
FILES = ("session_index.jsonl", "workspaces.json")


class RefusedTools:
    """The tools that a session does not have, and what the model is told when it calls one."""

    def __init__(self, names: str, reason: str) -> None:
        self.names = names
        self.reason = reason

    @property
    def hook(self) -> str:
        answer = {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": self.reason}}
        command = f"printf '%s' {shlex.quote(json.dumps(answer))}"
        return f'[[hooks]]\nevent = "PreToolUse"\nmatcher = {_toml(self.names)}\ncommand = {_toml(command)}\n'


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=True).replace("\\/", "/")


def fill_home(place: Path, user: Path, refusals: list[RefusedTools]) -> None:
    """Links to everything of the user's, and a configuration of our own."""
    with contextlib.suppress(OSError):  # a home that cannot be written is the CLI's to complain about
        for name in FOLDERS:
            (user / name).mkdir(parents=True, exist_ok=True)
    place.mkdir(parents=True, exist_ok=True)
    present: list[str] = []
    with contextlib.suppress(OSError):
        present = os.listdir(user)  # noqa: PTH208 (names)
    for name in {*present, *FOLDERS, *FILES} - {CONFIG, "workspace-trust"}:
        if not name.endswith((".tmp", ".lock")):
            (place / name).symlink_to(user / name)
    try:
        theirs = (user / CONFIG).read_text("utf-8")
    except OSError:
        theirs = ""
    file = place / CONFIG
    file.touch(0o600)
    file.write_text("\n".join([theirs, *(refusal.hook for refusal in refusals)]), "utf-8")


def any_of(names: list[str], *, but: str = "") -> str:
    """``but``: how names begin that are none of them."""
    return (
        "^"
        + (f"(?!{re.escape(but)})" if but else "")
        + "(?:"
        + "|".join(re.escape(name).replace("\\*", ".*") for name in names)
        + ")$"
    )


def all_but(names: list[str]) -> str:
    return "^(?!(?:" + "|".join(re.escape(name).replace("\\*", ".*") for name in names) + ")$).*"
