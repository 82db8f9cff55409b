"""docs/jsonrpc.md is what the table says. ``STAGEDOOR_BLESS=1`` writes it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from stagedoor.server.jsonrpc.methods import METHODS
from tools.jsonrpc_reference import SERVER_NOTIFICATIONS, page

PAGE = Path(__file__).parents[2] / "docs" / "jsonrpc.md"
SOURCES = Path(__file__).parents[2] / "src" / "stagedoor" / "server" / "jsonrpc"


def test_the_reference_page_is_true() -> None:
    if os.environ.get("STAGEDOOR_BLESS"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_link_of_the_page_leads_somewhere() -> None:
    lines = re.findall(r"^#+ (.*)$", page(), re.MULTILINE)
    headings = [re.sub(r"[^\w-]", "", line.lower().replace(" ", "-")) for line in lines]
    assert len(set(headings)) == len(headings)
    assert set(re.findall(r"\(#([^)]*)\)", page())) <= set(headings)


def test_every_notification_of_the_server_is_described() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES.glob("*.py"))
    assert set(re.findall(r'notification\(\s*"(\w+)"', source)) == set(SERVER_NOTIFICATIONS)


def test_the_methods_are_those_that_were_asked_for() -> None:
    assert list(METHODS) == [
        *(
            f"agent/{name}"
            for name in ("discover", "select", "configure", "settings", "run", "stop", "respond", "status")
        ),
        *(
            f"session/{name}"
            for name in (
                *("list", "get", "events", "send", "settings", "set", "subscribe", "unsubscribe", "listen", "resume"),
                *("checkpoints", "undo"),
            )
        ),
        *(
            f"git/{name}"
            for name in ("status", "diff", "stage", "unstage", "discard", "commit", "branches", "checkout", "push")
        ),
        *("file/list", "file/read", "permission/list", "permission/answer"),
    ]
