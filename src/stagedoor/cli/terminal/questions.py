"""Questions at the terminal: the command or the diff is shown and one key answers; an agent's own questions, too."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import os
import shlex
import shutil
import sys
import tempfile
import termios
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import msgspec

from ...transcript import clean
from ...unified.capabilities import Capabilities
from ...unified.decisions import Allow, Decision, Deny
from ...unified.events import PermissionRequest
from .output import DEFAULT_COLUMNS, DIFF_LINES, Style, one_line, wrapped

COMMAND_KEYS = ("command", "cmd", "script")
EDITORS = ("editor", "nano", "vi")
"""For more than one line, where the user has named none."""
RISKS = {"low": "dim", "medium": "strong", "high": "bad"}


class SharedTerminal(Protocol):
    """Whatever else writes to the terminal: it makes room while a question is open."""

    async def wait_until_shown(self, request_id: str) -> None: ...
    def answered(self, request_id: str) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class TerminalQuestions:
    """A ``can_use_tool`` callback. Several questions may be open; they are asked one at a time, in order.

    ``capabilities`` say which answers the agent accepts. Where several agents ask, ``asker`` is shown before each
    question, and they share one ``lock``.
    """

    asks_a_person = True

    def __init__(
        self,
        keyboard: Keyboard,
        terminal: SharedTerminal,
        write: Callable[[str], None],
        style: Style,
        *,
        capabilities: Capabilities,
        remember: Literal["session", "always"] = "session",
        asker: str = "",
        lock: asyncio.Lock | None = None,
    ) -> None:
        self._keyboard = keyboard
        self._terminal = terminal
        self._write = write
        self._style = style
        self._capabilities = capabilities
        self._remember: Literal["session", "always"] = remember
        self._asker = asker
        self._lock = lock or asyncio.Lock()

    async def __call__(self, request: PermissionRequest) -> Decision:
        async with self._lock:
            await self._terminal.wait_until_shown(request.request_id)
            self._terminal.pause()
            try:
                decision = await self._ask(request)
                self._terminal.answered(request.request_id)
                return decision
            finally:
                self._terminal.resume()

    async def _ask(self, request: PermissionRequest) -> Decision:
        self._keyboard.start()
        self._keyboard.forget()
        if self._asker:
            self._write(f"\n{self._style('tool', self._asker)} asks:\n")
        if questions_in(request):
            return await answer_agent(request, self._keyboard, self._write_wrapped, self._style)
        can = self._capabilities
        edit = " [e]dit" if can.edit_input else " [s]ay what instead" if can.deny_message else ""
        whole = describe(request, self._style, shortened=can.edit_input) + self._scope_of_always(request)
        self._write_wrapped(whole)
        scope = " in this session" if self._remember == "session" else ""
        always = f" [a]lways{scope}" if request.remembered_as else ""
        while True:
            self._write(self._style("strong", "  allow?") + f" [y]es [n]o{always}{edit} ")
            key = (await self._keyboard.read_keys())[:1].lower()
            match key:
                case "y":
                    self._write("yes\n")
                    return Allow()
                case "a" if always:
                    self._write("always\n")
                    return Allow(remember=self._remember)
                case "n" | "" | TerminalKey.ESCAPE | TerminalKey.END_OF_INPUT:
                    self._write("no\n")
                    return Deny("the user refused this call")
                case "e" if can.edit_input:
                    self._write("edit\n")
                    decision = await self._edited(request)
                    if decision is not None:
                        return decision
                case "s" if edit and not can.edit_input:
                    self._write("no, instead:\n  > ")
                    if words := (await self._keyboard.line("") or "").strip():
                        return Deny(f"the user wants this instead: {words}")
                case _:
                    self._write("\n")

    def _write_wrapped(self, text: str) -> None:
        self._write(wrapped(text, self._keyboard.columns))

    def _scope_of_always(self, request: PermissionRequest) -> str:
        """Exactly what “always” will allow, shown before it can be chosen."""
        if not request.remembered_as:
            return self._style("dim", "    cannot be remembered: it would be asked about each time\n")
        rules = [visible(rule_text(rule)) for rule in request.remembered_as]
        return "".join(self._style("dim", f"    always: {rule}") + "\n" for rule in rules)

    async def _edited(self, request: PermissionRequest) -> Decision | None:
        key = next((name for name in COMMAND_KEYS if isinstance(request.input.get(name), str)), None)
        before = str(request.input[key]) if key else json.dumps(request.input, indent=2, ensure_ascii=False)
        after = await self._changed(before, ".sh" if key else ".json")
        if after is None or after == before:
            self._write(self._style("dim", "  nothing changed\n"))
            return None
        if key:
            return Allow(updated_input={**request.input, key: after})
        try:
            return Allow(updated_input=msgspec.json.decode(after.encode(), type=dict[str, Any]))
        except msgspec.MsgspecError as fault:
            self._write(self._style("bad", f"  not a JSON object: {fault}\n"))
            return None

    async def _changed(self, text: str, suffix: str) -> str | None:
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if editor:
            return await self._in_editor(shlex.split(editor), text, suffix)
        if "\n" in text:
            if program := next(filter(None, map(shutil.which, EDITORS)), None):
                return await self._in_editor([program], text, suffix)
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
                self._write(self._style("bad", f"  cannot start the editor: {fault}\n"))
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


def describe(request: PermissionRequest, style: Style, *, shortened: bool = False) -> str:
    """The question in full: nothing of what would be done is left out or hidden.

    ``shortened``: long content is cut, because an editor can show all of it.
    """
    risk = style(RISKS[request.risk], f"risk {request.risk}")
    who = " (sub-agent)" if request.parent_tool_use_id is not None else ""
    head = f"{style('strong', '?')} {style('tool', request.tool_name)}{who} · {risk}"
    command = next((value for name in COMMAND_KEYS if isinstance(value := request.input.get(name), str)), None)
    repeated = ("", command, request.target)
    about = f" · {visible(one_line(request.description))}" if request.description not in repeated else ""
    if command is not None:
        body = [f"    {style('strong', '$')} {line}" for line in visible(command).splitlines() or [""]]
    else:
        body = [f"    {visible(request.target)}"] if request.target else []
        lines = _content(request, style)
        more = len(lines) - DIFF_LINES if shortened else 0
        note = [style("bad", f"… {more} more lines: [e]dit shows all")] if more > 0 else []
        body += [f"    {line}" for line in [*(lines[:DIFF_LINES] if more > 0 else lines), *note]]
    why = [f"    {style('dim', visible('; '.join(request.risk_reasons[:3])))}"] if request.risk_reasons else []
    return "\n".join([head + about, *why, *body, ""])


def _content(request: PermissionRequest, style: Style) -> list[str]:
    """What an edit or a call of an unknown tool would do."""
    fields = request.input
    old, new = (
        _text(fields, "old_string", "oldText", "oldString", "old"),
        _text(fields, "new_string", "newText", "newString", "new", "content", "contents"),
    )
    diff = _text(fields, "diff", "patch", "input") or "\n".join(_diffs(fields.get("changes")))
    if diff:
        roles = {"+": "add", "-": "del", "@": "hunk"}
        lines = [style(roles[line[0]], line) if line[:1] in roles else line for line in visible(diff).splitlines()]
    elif old or new:
        lines = [style("del", f"-{line}") for line in visible(old).splitlines()]
        lines += [style("add", f"+{line}") for line in visible(new).splitlines()]
    elif request.operation in ("read", "network") or not fields:
        return []
    else:
        lines = visible(json.dumps(fields, indent=2, ensure_ascii=False, default=str)).splitlines()
    return lines


def _diffs(changes: object) -> list[str]:
    """Of a call that changes several files at once."""
    diffs = [_text(change, "diff").rstrip("\n") for change in _tables(changes)]
    return diffs if all(diffs) else []  # nothing of it may be left out


def _text(fields: dict[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := fields.get(name), str)), "")


def rule_text(rule: dict[str, Any]) -> str:
    """A rule in one line, with all that it says."""
    words = {name: ", ".join(map(str, _listed(value))) for name, value in rule.items()}
    return words.pop("action", "allow") + "".join(f" · {name} {value}" for name, value in words.items())


def _listed(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]


def visible(text: str) -> str:
    """Control characters spelled out: what is asked about must look like what it is."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text
    )


# --------------------------------------------------------------------------------- questions of the agent to its user

MOST_CHOICES = 9


class AgentQuestion(msgspec.Struct, frozen=True):
    text: str
    choices: list[str]
    several: bool = False
    secret: bool = False


def questions_in(request: PermissionRequest) -> list[AgentQuestion]:
    """The agent's questions, in the shape the agents share; empty when the request has another shape."""
    if request.tool_name != "question":
        return []
    questions: list[AgentQuestion] = []
    for fields in _tables(request.input.get("questions")):
        text = fields.get("question")
        options = _tables(fields.get("options"))
        choices = [str(option.get("label") or option.get("value") or "") for option in options]
        if isinstance(text, str) and text:
            several = bool(fields.get("multiSelect") or fields.get("multiple"))
            labels = [clean(choice) for choice in choices if choice][:MOST_CHOICES]
            questions.append(AgentQuestion(clean(text), labels, several, secret=bool(fields.get("isSecret"))))
    return questions


async def answer_agent(
    request: PermissionRequest, keys: Keyboard, write: Callable[[str], None], style: Style
) -> Decision:
    """Ask every question in turn. Escape refuses them all."""
    answers: dict[str, str | list[str]] = {}
    for question in questions_in(request):
        chosen = await _choose(question, keys, write, style)
        if chosen is None:
            write("no answer\n")
            return Deny("the user does not want to answer")
        answers[question.text] = chosen if question.several else chosen[0]
    return Allow(updated_input={**request.input, "answers": answers})


async def _choose(
    question: AgentQuestion, keys: Keyboard, write: Callable[[str], None], style: Style
) -> list[str] | None:
    write(f"{style('strong', '?')} {question.text}\n")
    write("".join(f"    {style('tool', str(number))} {choice}\n" for number, choice in enumerate(question.choices, 1)))
    if not question.choices:
        return await _typed_answer(question, keys, write)
    hint = "some numbers, then Enter" if question.several else "a number"
    chosen: list[str] = []
    write(style("strong", "  which?") + f" {hint}, [o]ther, [n]one ")
    while True:
        key = (await keys.read_keys())[:1].lower()
        match key:
            case "n" | "" | TerminalKey.ESCAPE | TerminalKey.END_OF_INPUT:
                return None
            case "o":
                write("other\n")
                return await _typed_answer(question, keys, write)
            case "\r" | "\n" if chosen:
                write("\n")
                return chosen
            case _ if key.isdigit() and 1 <= int(key) <= len(question.choices):
                choice = question.choices[int(key) - 1]
                write(f"{choice} " if question.several else f"{choice}\n")
                chosen += [] if choice in chosen else [choice]
                if not question.several:
                    return chosen
            case _:
                continue


async def _typed_answer(question: AgentQuestion, keys: Keyboard, write: Callable[[str], None]) -> list[str] | None:
    write("  > ")
    line = await keys.line("", secret=question.secret)
    return [line] if line else None


def _tables(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [cast("dict[str, Any]", item) for item in cast("list[object]", value) if isinstance(item, dict)]


# -------------------------------------------------------------------------------------------------------- the keyboard


class TerminalKey:
    """The keys with a meaning of their own."""

    ENTER = ("\r", "\n")
    BACKSPACE = ("\x7f", "\b")
    ESCAPE = "\x1b"
    END_OF_INPUT = "\x04"
    CLEAR_LINE = "\x15"
    CLEAR_WORD = "\x17"


class Keyboard:
    """Holds the terminal quiet (no echo, no line editing) from ``start`` to ``stop``. Ctrl-C stays a signal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before: list[Any] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def columns(self) -> int:
        try:
            return os.get_terminal_size(self._descriptor).columns or DEFAULT_COLUMNS
        except OSError:
            return DEFAULT_COLUMNS

    def start(self) -> None:
        if self._before is None:
            self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor, termios.TCSADRAIN)
        quiet = termios.tcgetattr(self._descriptor)
        quiet[0] &= ~termios.ICRNL  # Enter stays Enter, for whoever reads it later
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, quiet)

    def stop(self) -> None:
        if self._before is not None:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
            self._before = None

    def forget(self) -> None:
        """Drop what was typed before the question was shown: it is not an answer."""
        termios.tcflush(self._descriptor, termios.TCIFLUSH)

    async def read_keys(self) -> str:
        """The next keys, at least one character; empty when the terminal is closed."""
        loop = asyncio.get_running_loop()
        while True:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(self._descriptor, _set, ready)
            try:
                await ready
            finally:
                loop.remove_reader(self._descriptor)
            try:
                chunk = os.read(self._descriptor, 1024)
            except OSError:
                return ""
            if not chunk:
                return ""
            text = self._decoder.decode(chunk)
            if text:
                return text

    async def line(self, text: str, *, secret: bool = False) -> str | None:
        """Let the user change one line, written at the cursor. ``None``: they cancelled it (Escape).

        ``secret``: what is typed is shown as stars.
        """
        out = sys.stderr if not sys.stdout.isatty() else sys.stdout
        out.write(text)
        out.flush()
        while True:
            typed = await self.read_keys()
            if not typed or typed in (TerminalKey.ESCAPE, TerminalKey.END_OF_INPUT):
                out.write("\n")
                return None
            if typed.startswith(TerminalKey.ESCAPE):
                continue  # an arrow or function key
            for key in typed:
                if key in TerminalKey.ENTER:
                    out.write("\n")
                    out.flush()
                    return text
                changed = _edit(text, key)
                added = "*" * (len(changed) - len(text)) if secret else changed[len(text) :]
                out.write("\b \b" * (len(text) - len(changed)) if len(changed) < len(text) else added)
                text = changed
            out.flush()


def _edit(text: str, key: str) -> str:
    if key in TerminalKey.BACKSPACE:
        return text[:-1]
    if key == TerminalKey.CLEAR_LINE:
        return ""
    if key == TerminalKey.CLEAR_WORD:
        return text.rstrip().rpartition(" ")[0]
    return text + key if key.isprintable() else text


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def find_keyboard() -> Keyboard | None:
    """The terminal of the user, even when standard input is a file; ``None`` without one."""
    if not (sys.stdout.isatty() or sys.stderr.isatty()):
        return None
    try:
        descriptor = sys.stdin.fileno() if sys.stdin.isatty() else os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
        in_front = os.tcgetpgrp(descriptor) == os.getpgrp()  # a job in the background would be stopped by a read
    except (OSError, ValueError):
        return None
    return Keyboard(descriptor) if in_front else None
