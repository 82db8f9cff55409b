"""``stagedoor chat``: many turns with one agent at the terminal."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import difflib
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console, RenderableType
from rich.text import Text

from .. import catalog
from ..drivers.acp.definition import AcpAgent
from ..errors import BadRequest, SessionNotFound, StagedoorError
from ..transcript import clean
from ..transports.tasks import TaskOwner
from ..unified import events
from ..unified.events import Event
from . import EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_USAGE
from .command import BadFlag, Parser, add_option_flags, error_line, options_from, report
from .run import add_local_flag, described_agent, with_questions
from .servers.running_server import can_run_there, for_server, with_whole_path
from .state import state_folder, with_audit
from .terminal.conversations import MODES, ChatPartner, LocalConversation, ServerConversation
from .terminal.output import NARROWEST, coloured, one_line, width, wrapped
from .terminal.questions import Keyboard, find_keyboard
from .terminal.screen import TICK, Screen
from .terminal.suggestions import FilesToName, Suggestions
from .trust import ask_for_trust, configured_trust

if TYPE_CHECKING:
    from ..remote import Remote
    from ..service.views import SessionView

COMMANDS = {
    "model": "show the model, or change it: /model NAME",
    "mode": f"show what the agent may do, or change it: /mode {', '.join(MODES)}",
    "diff": "show what has changed in the workspace since the chat began",
    "undo": "put the files back as they were before the last turn, or before another: /undo TURN",
    "agents": "list the agents that are installed",
    "help": "show these commands and the keys",
    "quit": "leave the chat (Ctrl-D)",
}
MOST_NAMED = 10
KEYS = {
    "Enter": "send; while a turn runs, the line waits for its end",
    "Alt-Enter, Ctrl-J": "new line (or end the line with a backslash)",
    "@": "name a file of the workspace",
    "↑ ↓, Ctrl-R": "earlier lines, search in them",
    "Ctrl-C": "stop the turn; twice ends the agent; clears the line when nothing runs",
    "Ctrl-D": "leave",
}
_COMMAND = re.compile(r"/([a-z][\w:.-]*)(?:\s+(.*))?$", re.DOTALL)


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor chat",
        description="Talk with an agent at the terminal. It works in the current folder, shows what it does, and asks "
        "before it does what its mode does not allow.",
        examples=(
            "stagedoor chat",
            "stagedoor chat claude",
            "stagedoor chat codex --model gpt-5 -C ~/code/site",
            "stagedoor chat gemini --resume last",
            "stagedoor chat --attach last",
            'stagedoor chat --acp "my-agent --acp"',
        ),
        closing="In the chat: /help shows the commands and keys, @ names a file, Ctrl-C stops a turn, Ctrl-D leaves.",
    )
    described = any(word == "--acp" or word.startswith("--acp=") for word in argv)
    if not described:
        parser.add_argument("agent", nargs="?", help="stagedoor agents lists them (default: the first that is ready)")
    parser.add_argument(
        "--acp",
        metavar="COMMAND",
        help="in place of the agent's name: the command line of any program that speaks the Agent Client Protocol",
    )
    parser.add_argument(
        "--attach",
        metavar="ID",
        help="go on with a session of the server, such as one begun on the page or a phone; last is the newest",
    )
    parser.add_argument(
        "--server",
        metavar="URL|local",
        help="chat on this server: its address (with its token in STAGEDOOR_TOKEN), or local for the one that runs on "
        "this machine under your account (which is used by itself where nothing changes by it)",
    )
    add_local_flag(parser)
    parser.add_argument("--full-output", action="store_true", help="show all output of the agent's commands")
    parser.add_argument("--no-thinking", dest="thinking", action="store_false", help="do not show the agent's thoughts")
    add_option_flags(parser)
    arguments = parser.parse_args(argv)
    try:
        options = options_from(arguments)
        agent = described_agent(arguments.acp, server=arguments.server) if described else arguments.agent
        if arguments.attach and (agent is not None or options):
            raise BadFlag("--attach: the session has its agent and its options; leave out everything else")
    except (BadFlag, StagedoorError) as fault:
        return report("chat", fault)
    return start_chat(agent, options, arguments)


def start_chat(agent: str | AcpAgent | None, options: dict[str, Any], arguments: argparse.Namespace) -> int:
    """Chat as the flags say. Returns the exit code."""
    keyboard = find_keyboard()
    if keyboard is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("stagedoor chat: it needs a terminal; use stagedoor run AGENT PROMPT in scripts", file=sys.stderr)
        return EXIT_USAGE
    try:
        return asyncio.run(_chat(agent, options, arguments, keyboard))
    except (StagedoorError, ModuleNotFoundError, OSError) as fault:
        keyboard.stop()
        return report("chat", fault)
    except asyncio.CancelledError:
        return EXIT_INTERRUPTED
    finally:
        keyboard.stop()


async def _chat(
    agent: str | AcpAgent | None, options: dict[str, Any], arguments: argparse.Namespace, keyboard: Keyboard
) -> int:
    server: str | None = getattr(arguments, "server", None)
    if attached := getattr(arguments, "attach", None):
        return await _attach(attached, server or "local", arguments, keyboard)
    chosen = agent if agent is not None else await first_ready()
    entry = catalog.agent(chosen)
    is_found = False
    if server is None:
        options = configured_trust(entry.name, options)
        options = await ask_for_trust(entry, options, keyboard, _write)
        if isinstance(chosen, str):
            local = bool(getattr(arguments, "local", False))
            is_found = await can_run_there(entry.name, options, local=local, command="chat")
    window = ChatWindow(entry.title or entry.name, keyboard, Path(options.get("cwd", ".")), arguments)
    # A person is always there: a mode that asks nothing now may be changed later.
    options = with_questions(entry, options, keyboard, window, cast("TextIO", sys.stdout))
    if server is None and not is_found:
        window.conversation = LocalConversation(chosen, entry.name, with_audit(options), window.show, window.fail)
        return await window.run()
    from ..remote import connect

    if is_found:
        options = for_server(options)
    elif server == "local":
        options = with_whole_path(options)
    async with connect(server or "local") as remote:
        window.conversation = ServerConversation(remote, entry.name, options, window.show, window.fail)
        return await window.run(where="in the server")


async def _attach(session_id: str, server: str, arguments: argparse.Namespace, keyboard: Keyboard) -> int:
    from ..remote import connect

    async with connect(server) as remote:
        view = await find_session(remote, session_id)
        entry = catalog.agent(view.agent)
        window = ChatWindow(entry.title or entry.name, keyboard, Path(view.cwd), arguments)
        options = with_questions(entry, {}, keyboard, window, cast("TextIO", sys.stdout))
        window.conversation = ServerConversation(remote, entry.name, options, window.show, window.fail, view=view)
        ended = " · it has ended: your next message continues it in a new one" if view.ended else ""
        window.say(f"{clean(view.title)}{ended}", style="bold")
        return await window.run(where="in the server", folder=view.cwd)


async def find_session(remote: Remote, session_id: str) -> SessionView:
    """By its id, the beginning of it, or ``last``. Raises ``SessionNotFound``."""
    if session_id != "last":
        with contextlib.suppress(SessionNotFound):
            return await remote.session(session_id).view()
    views = await remote.sessions(limit=500)
    hits = [view for view in views if session_id == "last" or view.id.startswith(session_id)]
    if not hits:
        raise SessionNotFound(f"session {session_id!r} not found: the page lists those of the server")
    return hits[0]


async def first_ready() -> str:
    """The agent that the configuration names, else the first that is installed and signed in."""
    from ..service.agents import Agents
    from ..service.config.load import load

    return await Agents(load().settings).default()


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


class ChatWindow:
    """The terminal while a chat runs: the line editor at the bottom, what the agent does above it.

    It is also what questions share the terminal with: they get it for themselves until they are answered.
    """

    conversation: ChatPartner

    def __init__(self, title: str, keyboard: Keyboard, folder: Path, arguments: argparse.Namespace) -> None:
        from .terminal.line_editor import LineEditor, PrintedAbove

        keyboard.start()  # nothing is echoed while the terminal goes from one to the other
        self._title = title
        self._keyboard = keyboard
        self._folder = folder
        self._tasks = TaskOwner()
        self._presses = 0
        self._last_error: events.Error | None = None
        self._echoed: list[str] = []
        self._end = asyncio.Event()
        self._agent_commands: Mapping[str, str] = {}
        self.editor = LineEditor(
            head=self._head,
            interrupt=self._press,
            suggest=Suggestions(FilesToName(folder), self._commands),
            history=state_folder() / "chat_history",
        )
        console_file = cast("TextIO", PrintedAbove(lambda: self.editor))
        self._console = Console(file=console_file, force_terminal=True, highlight=False)
        self._screen = Screen(
            self._console,
            agent=title,
            thinking=arguments.thinking,
            full_output=arguments.full_output,
            region=_HeadOfEditor(self.editor.refresh),
        )

    # -------------------------------------------------------------------------------------------------- from the agent

    def show(self, event: Event) -> None:
        match event:
            case events.TurnStarted():
                self._presses = 0
                self._last_error = None
                self._screen.show(event)
                if event.prompt in self._echoed:
                    self._echoed.remove(event.prompt)
                else:
                    self._echo(event.prompt)
                self._screen.resume()
            case events.TurnCompleted():
                self._screen.pause()
                self._summary(event)
                if self._last_error is not None and self._last_error.kind == "model_not_found":
                    self.say("/model NAME chooses another model; ↑ brings your message back")
                if event.status == "interrupted" and not self._presses:  # by somebody else
                    self._return_waiting()
                self._tasks.start(self._learn_commands(), key="commands")
            case events.Done():
                self._screen.pause()
            case _:
                if isinstance(event, events.Init):
                    self._tasks.start(self._learn_commands(), key="commands")
                elif isinstance(event, events.Error):
                    self._last_error = event
                self._screen.show(event)

    def fail(self, fault: StagedoorError) -> None:
        self._screen.pause()
        if self._last_error is None or self._last_error.message != str(fault):  # else it stands there already
            self.say(error_line(fault), style="bold red")

    def say(self, text: str, *, style: str = "dim") -> None:
        self._console.print(Text(wrapped(clean(text), self._console.width), style=style), soft_wrap=True)

    def _echo(self, prompt: str) -> None:
        lines = clean(prompt).splitlines() or [""]
        self._console.print()
        for number, line in enumerate(lines):
            marked = ("❯ " if not number else "  ") + line
            self._console.print(Text(wrapped(marked, self._console.width), style="bold"), soft_wrap=True)

    def _summary(self, turn: events.TurnCompleted) -> None:
        parts = [] if turn.status == "success" else [turn.status.replace("_", " ")]
        parts += [f"{turn.usage.total_tokens:,} tokens"] if turn.usage.total_tokens else []
        parts += [f"${turn.cost_usd:.4f}"] if turn.cost_usd is not None else []
        parts += [f"{turn.duration_ms / 1000:.1f}s"] if turn.duration_ms is not None else []
        self.say(" · ".join(parts) or "done", style="dim" if turn.status == "success" else "bold red")

    def _return_waiting(self) -> None:
        """Where a turn is stopped, what was to follow is decided anew. What is sent after Ctrl-C is decided already."""
        if waiting := list(self.conversation.waiting):
            self.conversation.waiting.clear()
            self.editor.put("\n".join(waiting))

    # --------------------------------------------------------------------------------------- the terminal for questions

    async def wait_until_shown(self, request_id: str) -> None:
        await self._screen.wait_until_shown(request_id)
        await self.editor.lend()

    def answered(self, request_id: str) -> None:
        self._screen.answered(request_id)

    def pause(self) -> None:
        self._screen.pause()

    def resume(self) -> None:
        self._screen.resume()
        self.editor.take_back()

    def note(self, text: str) -> None:
        self._screen.note(text)

    async def animate(self) -> None:
        while True:
            if self.conversation.busy:
                self.editor.refresh()
            await asyncio.sleep(TICK)

    # ------------------------------------------------------------------------------------------------- from the person

    async def run(self, *, where: str = "", folder: str = "") -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._press)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._end.set)
        parts = [f"{self._title} in {folder or self._folder.resolve()}", self.conversation.mode, where]
        self.say(" · ".join([*filter(None, parts), "/help", "Ctrl-D leaves"]))
        self._tasks.start(self.animate())
        reading = self._tasks.start(self._read())
        ending = self._tasks.start(self._end.wait())
        try:
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
            await self.editor.end()
            if reading.done():
                reading.result()
        finally:
            hint = await self.conversation.leave()
            await self._tasks.close()
            self._keyboard.stop()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)
        if hint:  # in one line, so that it can be copied
            is_short = width(f"to go on: {hint}") <= self._console.width
            text = Text(f"to go on: {hint}" if is_short else f"to go on:\n{hint}", style="dim")
            self._console.print(text, soft_wrap=True)
        return EXIT_SUCCESS

    async def _read(self) -> None:
        async for line in self.editor.lines():
            if await self._carry_out(line):
                return

    async def _carry_out(self, line: str) -> bool:
        """True: the chat is to end."""
        command = _COMMAND.match(line)
        if line.startswith("//"):
            line = line[1:]
        elif command is not None and command[1] not in self._agent_commands:
            name, rest = command[1], (command[2] or "").strip()
            self._echo(line)
            if name in ("quit", "exit"):
                return True
            await self._command(name, rest)
            return False
        if not self.conversation.busy:
            self._echoed.append(line)
            self._echo(line)
            self._screen.resume()
        self._tasks.start(self.conversation.send(line))
        return False

    def _press(self) -> None:
        """Ctrl-C: the turn, then the agent; where nothing runs, the line."""
        if self.conversation.busy:
            self._presses += 1
            self._return_waiting()
            if self._presses == 1:
                self._screen.note("stopping (Ctrl-C again ends the agent)")
                self._tasks.start(self.conversation.interrupt())
            else:
                self._screen.note("ending the agent")
                self._tasks.start(self._kill())
        elif self.editor.text:
            self.editor.clear()
        else:
            self.say("nothing runs · Ctrl-D leaves")

    async def _kill(self) -> None:
        await self.conversation.kill()
        self._screen.pause()
        self.say("the agent was ended; the next message starts it again")

    # -------------------------------------------------------------------------------------------------------- commands

    def _commands(self) -> Mapping[str, str]:
        return {**COMMANDS, **self._agent_commands}

    async def _learn_commands(self) -> None:
        """What the agent's own commands are. Where a name is ours, ``//name`` still reaches the agent's."""
        with contextlib.suppress(StagedoorError):
            offered = await self.conversation.commands()
            self._agent_commands = {
                one.name: clean(one.description).partition("\n")[0] for one in offered if one.name not in COMMANDS
            }

    async def _command(self, name: str, rest: str) -> None:
        verbs: dict[str, Callable[[str], Awaitable[None]]] = {
            "model": self._model,
            "mode": self._mode,
            "diff": self._diff,
            "undo": self._undo,
            "agents": self._agents,
            "help": self._help,
        }
        verb = verbs.get(name)
        if verb is None:
            close = difflib.get_close_matches(name, self._commands(), n=1)
            hint = (
                f"did you mean /{close[0]}?" if close else "/help shows the commands; //… is sent to the agent as it is"
            )
            self.say(f"unknown command /{name}: {hint}", style="red")
            return
        try:
            await verb(rest)
        except StagedoorError as fault:
            self.say(error_line(fault), style="red")

    async def _model(self, name: str) -> None:
        text = await self.conversation.set_model(name) if name else f"model: {self.conversation.model or 'the default'}"
        self.say(text)

    async def _mode(self, name: str) -> None:
        self.say(await self.conversation.set_mode(name) if name else f"mode: {self.conversation.mode}")

    async def _diff(self, rest: str) -> None:
        if rest:
            raise BadRequest("/diff takes no argument")
        found = await self.conversation.diff()
        if not found.files:
            self.say("no changes")
            return
        roles = {"+": "add", "-": "del", "@": "hunk"}
        lines = [
            coloured(roles[line[0]], line) if line[:1] in roles else line for line in clean(found.diff).splitlines()
        ]
        self._console.print(Text.from_ansi(wrapped("\n".join(lines), self._console.width)), soft_wrap=True)
        files = f"{found.files} file{'' if found.files == 1 else 's'}"
        cut = " · too long to show in full" if found.cut else ""
        self.say(f"{files} changed · +{found.insertions} −{found.deletions}{cut}")

    async def _undo(self, rest: str) -> None:
        if rest and not rest.isdecimal():
            raise BadRequest("/undo takes the number of a turn, counted from 1, or nothing for the last one")
        result = await self.conversation.undo(int(rest) if rest else None)
        count = len(result.paths)
        files = f"{count} file{'' if count == 1 else 's'}" if count else "no file"
        self.say(f"restored {files} as before turn {result.checkpoint.turn}; the agent is not told")
        for path in (*result.paths[:MOST_NAMED], *(["…"] if count > MOST_NAMED else [])):
            self.say(f"  {path}")
        for path in result.not_restored[:MOST_NAMED]:
            self.say(f"  not restored: {path}", style="red")

    async def _agents(self, rest: str) -> None:
        from .agents import inspect_agents

        for agent in await inspect_agents(catalog.names()):
            if agent.installed:
                signed = {True: "signed in", False: "not signed in", None: ""}[agent.signed_in]
                self.say(" · ".join(part for part in (agent.agent, agent.version, signed) if part))
        self.say("stagedoor chat AGENT starts another chat")

    async def _help(self, rest: str) -> None:
        rows = {**{f"/{name}": about for name, about in self._commands().items()}, **KEYS}
        widest = max(map(len, rows))
        room = max(self._console.width - widest - 4, NARROWEST)
        for name, about in rows.items():
            first, *more = wrapped(clean(about), room).split("\n")
            self.say(f"  {name:{widest}}  {first}", style="none")
            for line in more:
                self.say(f"  {'':{widest}}  {line}", style="none")

    # ---------------------------------------------------------------------------------------------- above the line

    def _head(self) -> str:
        """What is unfinished, what waits, and the mark before the line."""
        parts: list[RenderableType] = []
        if self.conversation.busy:
            parts.append(self._screen.unfinished())
        parts += [Text(f"  waits: {one_line(line)}", style="dim") for line in self.conversation.waiting]
        with self._console.capture() as capture:
            for part in parts:
                self._console.print(part)
        return f"{capture.get()}{coloured('strong', '❯')} "


class _HeadOfEditor:
    """The unfinished stands in the head of the line editor, which asks for it itself."""

    def __init__(self, refresh: Callable[[], None]) -> None:
        self._refresh = refresh

    def show(self, content: RenderableType) -> None:
        self._refresh()

    def hide(self) -> None:
        self._refresh()
