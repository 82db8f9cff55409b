"""What the faces share when they put a scripted call into an agent's own words. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Container, Sequence
from pathlib import PurePosixPath
from typing import Any

from ..asked import NativeCall
from ..script import Call


def pick(tools: Container[str], names: str | Sequence[str], given: Any) -> NativeCall:
    """A call of the first of these tools that was offered; if none was, of the first all the same."""
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name in tools:
            return NativeCall(name, given)
    return NativeCall(wanted[0], given, offered=False)


def absolute(path: Any, cwd: str) -> str:
    """The path as an agent that wants absolute ones takes it."""
    text = str(path or ".")
    return str(PurePosixPath(cwd) / text) if cwd else text


def file_commands(call: Call) -> str:
    """The shell command that does what an agent has no tool for."""
    given = {name: shlex.quote(str(value)) for name, value in call.input.items()}
    match call.tool:
        case "search_content":
            return f"grep -rn -e {given['pattern']} {given['path']}"
        case "find_files":
            return f"find {given['path']} -name {given['pattern']}"
        case "delete_file":
            return f"rm {given['path']}"
        case "read_file":
            return f"cat {given['path']}"
        case _:
            raise ValueError(f"no shell command stands for {call.tool!r}")
