"""The line editor of ``chat``: a prompt that stays at the bottom while everything else is printed above it.

prompt_toolkit edits, remembers and completes; only this module knows it (docs/decisions/0020).
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, cast

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style as PromptStyle

from ...transports.tasks import TaskOwner

Suggestions: TypeAlias = Callable[[str], Iterable[tuple[str, str]]]
"""The beginning of a word → (whole word, what it is), the likeliest first."""

SUGGESTED_WORD = re.compile(r"(?:^|(?<=\s))@\S*$|^/\S*$")
MOST_SUGGESTIONS = 50
MENU_LINES = 6
_STYLE = {
    "completion-menu": "bg:default fg:default",
    "completion-menu.completion": "bg:default fg:default",
    "completion-menu.completion.current": "reverse",
    "completion-menu.meta.completion": "bg:default fg:ansibrightblack",
    "completion-menu.meta.completion.current": "bg:default fg:ansibrightblack",
}


class LineEditor:
    """``head`` is what stands above and before the line, as ANSI text; ``interrupt`` is called for Ctrl-C.

    Every line comes out of ``lines``; Ctrl-D on an empty line ends them. What was typed and not sent stays while the
    terminal is lent out.
    """

    def __init__(
        self, *, head: Callable[[], str], interrupt: Callable[[], None], suggest: Suggestions, history: Path | None
    ) -> None:
        self._head = head
        self._interrupt = interrupt
        self._draft = Document()
        self._lent = 0
        self._free = asyncio.Event()
        self._free.set()
        self._resting = asyncio.Event()
        self._resting.set()
        self._ended = False
        self._sent: asyncio.Queue[str | None] = asyncio.Queue()
        # No questions to the terminal where its cursor stands: an answer that comes late would be read as keys.
        self._output = Vt100_Output(
            sys.stdout, _terminal_size, term=os.environ.get("TERM"), enable_bell=False, enable_cpr=False
        )
        depth = ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None
        self._session: PromptSession[str] = PromptSession(
            self._message,
            multiline=True,
            completer=cast("Completer", _WordCompleter(suggest)),  # it is asked in a thread, for get_completions only
            complete_in_thread=True,
            complete_while_typing=Condition(self._can_suggest),  # room for the list is taken only then
            reserve_space_for_menu=MENU_LINES,
            history=_history(history),
            key_bindings=self._keys(),
            prompt_continuation="  ",
            erase_when_done=True,
            style=PromptStyle.from_dict(_STYLE),
            color_depth=depth,
            output=self._output,
        )

    @property
    def text(self) -> str:
        """What is typed now."""
        return str(self._app.current_buffer.text if self._app.is_running else self._draft.text)

    async def lines(self) -> AsyncGenerator[str]:
        """Until Ctrl-D, or ``end``. The terminal stays the editor's between two lines: nothing typed is lost."""
        tasks = TaskOwner()
        tasks.start(self._edit())
        try:
            while (line := await self._sent.get()) is not None:
                yield line
        finally:
            await tasks.close()

    async def _edit(self) -> None:
        try:
            while not self._ended:
                await self._free.wait()
                self._resting.clear()
                try:
                    await self._session.prompt_async(
                        default=self._draft, handle_sigint=False, set_exception_handler=False
                    )
                finally:
                    self._resting.set()
        except EOFError:
            pass
        finally:
            self._sent.put_nowait(None)

    def print(self, text: str) -> None:
        """Whole lines, above the prompt."""
        app = self._app
        if app.is_running:
            app.renderer.erase()
            self._output.enable_autowrap()
            self._output.write_raw(text)
            self._output.flush()
            app.invalidate()
        else:
            sys.stdout.write(text)
            sys.stdout.flush()

    def refresh(self) -> None:
        if self._app.is_running:
            self._app.invalidate()

    def put(self, text: str) -> None:
        """Text to go on with, before what is typed."""
        if self._app.is_running:
            buffer = self._app.current_buffer
            whole = "\n".join(part for part in (text, buffer.text) if part)
            buffer.document = Document(whole, len(whole))
        else:
            whole = "\n".join(part for part in (text, self._draft.text) if part)
            self._draft = Document(whole, len(whole))

    def clear(self) -> None:
        if self._app.is_running:
            self._app.current_buffer.reset()

    async def lend(self) -> None:
        """Give the terminal to somebody else; returns when it is free. Each must be taken back once."""
        self._lent += 1
        self._free.clear()
        self._leave()
        try:
            await self._resting.wait()
        except asyncio.CancelledError:
            self.take_back()
            raise

    def take_back(self) -> None:
        self._lent -= 1
        if not self._lent:
            self._free.set()

    async def end(self) -> None:
        """No more lines; the prompt is gone."""
        self._ended = True
        self._free.set()
        self._leave()
        await self._resting.wait()

    @property
    def _app(self) -> Application[Any]:
        return self._session.app

    def _leave(self) -> None:
        if self._app.is_running:
            self._draft = self._app.current_buffer.document
            with suppress(Exception):  # it says so when it is about to end by itself
                self._app.exit(result=None)

    def _can_suggest(self) -> bool:
        return SUGGESTED_WORD.search(self._session.default_buffer.document.text_before_cursor) is not None

    def _message(self) -> ANSI:
        return ANSI(self._head())

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        def enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            state = buffer.complete_state
            if state is not None and state.current_completion is not None:
                buffer.apply_completion(state.current_completion)
            elif buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.newline(copy_margin=False)
            else:
                line = buffer.text.strip()
                buffer.append_to_history()
                buffer.reset()
                if line:
                    self._sent.put_nowait(line)

        def new_line(event: KeyPressEvent) -> None:
            event.current_buffer.newline(copy_margin=False)

        def stop(event: KeyPressEvent) -> None:
            self._interrupt()

        keys.add("enter")(enter)
        keys.add("escape", "enter")(new_line)
        keys.add("c-j")(new_line)
        keys.add("c-c")(stop)
        return keys


def _terminal_size() -> Size:
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    return Size(rows=rows or 24, columns=columns or 80)


class _WordCompleter:
    def __init__(self, suggest: Suggestions) -> None:
        self._suggest = suggest

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        match = SUGGESTED_WORD.search(document.text_before_cursor)
        if match is None:
            return
        word = match[0]
        for count, (whole, about) in enumerate(self._suggest(word)):
            if count >= MOST_SUGGESTIONS:
                return
            yield Completion(whole, start_position=-len(word), display=whole, display_meta=about)


def _history(path: Path | None) -> FileHistory | InMemoryHistory:
    """What was typed is for the eyes of its user only; without a place for it, it is kept until the end."""
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


class PrintedAbove:
    """A file for a ``rich.Console``: what is written goes above the prompt when it is flushed."""

    encoding = "utf-8"

    def __init__(self, editor: Callable[[], LineEditor]) -> None:
        self._editor = editor
        self._parts: list[str] = []

    def write(self, text: str) -> int:
        self._parts.append(text)
        return len(text)

    def writelines(self, lines: Sequence[str]) -> None:
        self._parts.extend(lines)

    def flush(self) -> None:
        text, self._parts = "".join(self._parts), []
        if text:
            self._editor().print(text)

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return sys.stdout.fileno()
