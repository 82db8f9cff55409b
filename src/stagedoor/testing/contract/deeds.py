"""The deeds: one call for every kind of tool, each with an effect that can be seen from outside."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

from ..model import ScriptedRequest
from ..script import (
    Reply,
    ScriptedCall,
    delete_file,
    edit_file,
    mcp,
    read_file,
    say,
    shell,
    task,
    web_fetch,
    web_search,
)
from ..script import write_file as write

Deed = Literal[
    "read", "read outside", "harmless", "write", "edit", "delete", "command", "redirect", "background", "outside",
    "danger", "fetch", "search", "mcp", "sub-agent",
]  # fmt: skip
DEEDS: tuple[Deed, ...] = get_args(Deed)
MEANING: dict[Deed, str] = {
    "read": "read a file of the workspace with the agent's own tool",
    "read outside": "read a file outside the workspace with the agent's own tool",
    "harmless": "run `cat` on a file of the workspace",
    "write": "write a new file of the workspace with the agent's own tool",
    "edit": "change a file of the workspace with the agent's own tool",
    "delete": "delete a file of the workspace: by a patch where the agent has one, else `rm -f`",
    "command": "run `touch` on a file of the workspace",
    "redirect": "run `echo > file` on a file of the workspace",
    "background": "run `touch` on a file of the workspace, as a command in the background",
    "outside": "run `touch` on a file outside the workspace",
    "danger": "run `touch ~/.bashrc`",
    "fetch": "fetch a page of a server on this machine with the agent's own tool",
    "search": "search the web with the agent's own tool",
    "mcp": "call a tool of an MCP server, which makes a file",
    "sub-agent": "start a sub-agent that runs `touch` on a file of the workspace",
}
SERVER = "marks"
HOSTED_SEARCH = ("web_search", "googleSearch")
HOSTED_FETCH = ("urlContext",)
"""What vendors call the tools that their models use by themselves."""


class Places:
    """The folders of one trial, none of which any sandbox takes for temporary."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.outside, self.home = (folder / name for name in ("workspace", "outside", "home"))
        for place in (self.workspace, self.outside, self.home):
            place.mkdir()


class Attempt:
    """Every deed once, as one turn tries them. What one attempt leaves behind cannot be mistaken for another's."""

    def __init__(self, number: int, places: Places, port: int) -> None:
        self.places = places
        self.number = number
        self._secrets: dict[Deed, str] = {deed: secrets.token_hex(8) for deed in DEEDS}
        self._calls = self._calls_to(port)

    def mark(self, deed: Deed) -> str:
        """What the input of the call holds, and no other's."""
        return ".bashrc" if deed == "danger" else f"deed{self.number}{deed.replace(' ', '').replace('-', '')}.txt"

    def prepare(self) -> None:
        inside, outside = self.places.workspace, self.places.outside
        readable: dict[Deed, Path] = {"read": inside, "read outside": outside, "harmless": inside}
        for deed, place in readable.items():
            (place / self.mark(deed)).write_text(f"{self._secrets[deed]}\n")
        (inside / self.mark("edit")).write_text("before\n")
        (inside / self.mark("delete")).write_text("here\n")
        (self.places.home / ".bashrc").unlink(missing_ok=True)

    @property
    def steps(self) -> list[tuple[Deed, ScriptedCall]]:
        """What the model calls, one after the other."""
        return [(deed, call) for deed in DEEDS for call in self._calls[deed]]

    def _calls_to(self, port: int) -> dict[Deed, Sequence[ScriptedCall]]:
        def inside(deed: Deed) -> str:
            return str(self.places.workspace / self.mark(deed))

        def outside(deed: Deed) -> str:
            return str(self.places.outside / self.mark(deed))

        edited = inside("edit")
        below: list[Reply] = [shell(f"touch {self.mark('sub-agent')}"), say("Below.")]
        return {
            "read": [read_file(inside("read"))],
            "read outside": [read_file(outside("read outside"))],
            "harmless": [shell(f"cat {self.mark('harmless')}")],
            "write": [write(inside("write"), "written\n")],
            "edit": [read_file(edited), edit_file(edited, "before\n", "after\n")],
            "delete": [delete_file(inside("delete"))],
            "command": [shell(f"touch {self.mark('command')}")],
            "redirect": [shell(f"echo made > {self.mark('redirect')}")],
            "background": [shell(f"touch {self.mark('background')}", background=True)],
            "outside": [shell(f"touch {outside('outside')}")],
            "danger": [shell("touch ~/.bashrc")],
            "fetch": [web_fetch(f"http://127.0.0.1:{port}/{self.mark('fetch')}")],
            "search": [web_search(self.mark("search"))],
            "mcp": [mcp(SERVER, "mark", path=inside("mcp"))],
            "sub-agent": [task(f"Make {self.mark('sub-agent')}", below)],
        }

    # ------------------------------------------------------------------------------------------- what happened

    def done(self, deed: Deed, requests: Sequence[ScriptedRequest], visitors: int) -> bool:
        """Whether it happened: by what is on the disk, who came to the server, and what the model was sent."""
        inside, outside, mark = self.places.workspace, self.places.outside, self.mark(deed)
        match deed:
            case "read" | "read outside" | "harmless":
                return _sent(requests, self._secrets[deed])
            case "edit":
                return (inside / mark).read_text() == "after\n"
            case "delete":
                return not (inside / mark).exists()
            case "outside":
                return (outside / mark).exists()
            case "danger":
                return (self.places.home / mark).exists()
            case "fetch":
                return visitors > 0 or _hosted(requests, HOSTED_FETCH)
            case "search":
                return _hosted(requests, HOSTED_SEARCH)
            case _:
                return (inside / mark).exists()


def _sent(requests: Sequence[ScriptedRequest], words: str) -> bool:
    return any(words in json.dumps(request.body, ensure_ascii=False) for request in requests)


def _hosted(requests: Sequence[ScriptedRequest], names: tuple[str, ...]) -> bool:
    """Whether the model was offered a tool of its vendor's: by its type, or as the key of its settings."""
    offered = (tool for request in requests for tool in request.body.get("tools") or ())
    return any(
        str(tool.get("type", "")).startswith(names) or not tool.keys().isdisjoint(names)
        for tool in cast("Iterable[dict[str, Any]]", offered)
        if isinstance(tool, dict)  # pyright: ignore[reportUnnecessaryIsInstance]
    )
