"""Approvals at the terminal: the command or the diff is shown, one key answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import msgspec

from ..unified.capabilities import Capabilities
from ..unified.decisions import Allow, Decision, Deny
from ..unified.events import PermissionRequest
from . import keyboard
from .choosing import answer, questions_in
from .keyboard import Keyboard
from .lines import DIFF_LINES, Style, one_line

COMMAND_KEYS = ("command", "cmd", "script")
RISKS = {"low": "dim", "medium": "strong", "high": "bad"}


class Stage(Protocol):
    """Whatever else writes to the terminal: it makes room while a question is open."""

    async def shown(self, request_id: str) -> None: ...
    def answered(self, request_id: str) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Asking:
    """A ``can_use_tool`` callback. Several questions may be open; people are asked one at a time, in order.

    ``able`` is what the agent can be told. Where several agents ask, each has its name before its questions (``who``),
    and they share one ``turn``.
    """

    asks_a_person = True

    def __init__(
        self,
        keyboard: Keyboard,
        stage: Stage,
        write: Callable[[str], None],
        style: Style,
        *,
        able: Capabilities,
        remember: Literal["session", "always"] = "session",
        who: str = "",
        turn: asyncio.Lock | None = None,
    ) -> None:
        self._keyboard = keyboard
        self._stage = stage
        self._write = write
        self._style = style
        self._able = able
        self._remember: Literal["session", "always"] = remember
        self._who = who
        self._turn = turn or asyncio.Lock()

    async def __call__(self, request: PermissionRequest) -> Decision:
        async with self._turn:
            await self._stage.shown(request.request_id)
            self._stage.pause()
            try:
                decision = await self._ask(request)
                self._stage.answered(request.request_id)
                return decision
            finally:
                self._stage.resume()

    async def _ask(self, request: PermissionRequest) -> Decision:
        self._keyboard.start()
        self._keyboard.forget()
        if self._who:
            self._write(f"\n{self._style('tool', self._who)} asks:\n")
        if questions_in(request):
            return await answer(request, self._keyboard, self._write, self._style)
        self._write(describe(request, self._style))
        how_long = " in this session" if self._remember == "session" else ""
        while True:
            self._write(self._style("strong", "  allow?") + " [y]es [n]o [a]lways" + how_long + " [e]dit ")
            key = (await self._keyboard.typed())[:1].lower()
            match key:
                case "y":
                    self._write("yes\n")
                    return Allow()
                case "a":
                    self._write("always\n")
                    return Allow(remember=self._remember)
                case "n" | "" | keyboard.ESCAPE | keyboard.END_OF_INPUT:
                    self._write("no\n")
                    return Deny("the user said no")
                case "e":
                    self._write("edit\n")
                    decision = await self._edited(request)
                    if decision is not None:
                        return decision
                case _:
                    self._write("\n")

    async def _edited(self, request: PermissionRequest) -> Decision | None:
        key = next((name for name in COMMAND_KEYS if isinstance(request.input.get(name), str)), None)
        before = str(request.input[key]) if key else json.dumps(request.input, indent=2, ensure_ascii=False)
        after = await self._changed(before, ".sh" if key else ".json")
        if after is None or after == before:
            self._write(self._style("dim", "  nothing was changed\n"))
            return None
        if not self._able.edit_input:
            # The protocol cannot carry a changed call; where the agent can be told, it can make it itself.
            told = ", and told what you want" if self._able.deny_message else "; say what you want when it is done"
            self._write(self._style("dim", f"  this agent takes no changed call: it is refused{told}\n"))
            return Deny(f"the user wants this instead: {after}")
        if key:
            return Allow(updated_input={**request.input, key: after})
        try:
            return Allow(updated_input=msgspec.json.decode(after.encode(), type=dict[str, Any]))
        except msgspec.MsgspecError as fault:
            self._write(self._style("bad", f"  that is not a JSON object: {fault}\n"))
            return None

    async def _changed(self, text: str, suffix: str) -> str | None:
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if editor:
            return await self._in_editor(shlex.split(editor), text, suffix)
        if "\n" in text:
            self._write(self._style("dim", "  set $EDITOR to edit more than one line\n"))
            return None
        self._write("  > ")
        return await self._keyboard.line(text)

    async def _in_editor(self, editor: list[str], text: str, suffix: str) -> str | None:
        with tempfile.TemporaryDirectory(prefix="stagedoor-edit-") as folder:
            path = Path(folder) / f"call{suffix}"
            path.write_text(text)
            self._keyboard.stop()
            try:
                process = await asyncio.create_subprocess_exec(*editor, str(path))
            except OSError as fault:
                self._write(self._style("bad", f"  the editor did not start: {fault}\n"))
                return None
            try:
                code = await process.wait()
            except asyncio.CancelledError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                raise
            finally:
                self._keyboard.start()
            return None if code else path.read_text().removesuffix("\n")


def describe(request: PermissionRequest, style: Style) -> str:
    """The question in full: nothing of what would be done is left out or hidden."""
    risk = style(RISKS[request.risk], f"risk {request.risk}")
    who = " (sub-agent)" if request.parent_tool_use_id is not None else ""
    head = f"{style('strong', '?')} {style('tool', request.tool_name)}{who} · {risk}"
    command = next((value for name in COMMAND_KEYS if isinstance(value := request.input.get(name), str)), None)
    known = ("", command, request.target)
    about = f" · {visible(one_line(request.description))}" if request.description not in known else ""
    if command is not None:
        body = [f"    {style('strong', '$')} {line}" for line in visible(command).splitlines() or [""]]
    else:
        body = [f"    {visible(request.target)}"] if request.target else []
        body += [f"    {line}" for line in _content(request, style)]
    why = [f"    {style('dim', visible('; '.join(request.risk_reasons[:3])))}"] if request.risk_reasons else []
    return "\n".join([head + about, *why, *body, ""])


def _content(request: PermissionRequest, style: Style) -> list[str]:
    """What an edit or a call of an unknown tool would do."""
    given = request.input
    old, new = (
        _text(given, "old_string", "oldText", "oldString", "old"),
        _text(given, "new_string", "newText", "newString", "new", "content", "contents"),
    )
    diff = _text(given, "diff", "patch", "input") or "\n".join(_diffs(given.get("changes")))
    if diff:
        roles = {"+": "add", "-": "del", "@": "hunk"}
        lines = [style(roles[line[0]], line) if line[:1] in roles else line for line in visible(diff).splitlines()]
    elif old or new:
        lines = [style("del", f"-{line}") for line in visible(old).splitlines()]
        lines += [style("add", f"+{line}") for line in visible(new).splitlines()]
    elif request.operation in ("read", "network") or not given:
        return []
    else:
        lines = visible(json.dumps(given, indent=2, ensure_ascii=False, default=str)).splitlines()
    more = (
        [style("bad", f"… {len(lines) - DIFF_LINES} more lines: [e]dit shows all")] if len(lines) > DIFF_LINES else []
    )
    return [*lines[:DIFF_LINES], *more]


def _diffs(changes: object) -> list[str]:
    """Of a call that changes several files at once."""
    found = cast("list[object]", changes) if isinstance(changes, list) else []
    tables = [cast("dict[str, Any]", one) for one in found if isinstance(one, dict)]
    told = [_text(one, "diff").rstrip("\n") for one in tables]
    return told if all(told) else []  # nothing of it may be left out


def _text(given: dict[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := given.get(name), str)), "")


def visible(text: str) -> str:
    """Control characters spelled out: what is asked about must look like what it is."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text
    )
