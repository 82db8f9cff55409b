"""``stagedoor run``: one prompt on one agent, shown while it runs; questions are asked, Ctrl-C interrupts."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, TextIO

from .. import api, catalog
from ..drivers.acp.definition import AcpAgent
from ..drivers.agent import Agent
from ..errors import NotSupported, StagedoorError
from ..session import Session
from ..transports.tasks import TaskOwner
from ..unified import events
from ..unified.capabilities import Capabilities
from ..unified.decisions import Decision, Deny
from ..unified.events import Event, PermissionRequest
from ..unified.options import Options
from . import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from .command import (
    DIALECTS,
    BadFlag,
    Parser,
    add_option_flags,
    code_of_error,
    code_of_status,
    complain,
    error_line,
    options_from,
    report,
)
from .servers.running_server import can_run_there, for_server, with_whole_path
from .state import count_unrecognized, with_audit
from .terminal.output import Output, PrintedOutput, final_answer, json_lines, plain_lines, style_for
from .terminal.questions import Keyboard, TerminalQuestions, find_keyboard
from .trust import ask_for_trust, configured_trust

if TYPE_CHECKING:
    from ..remote import RemoteSession


def add_local_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--local",
        action="store_true",
        help="run it in this process, although a server runs under your account (STAGEDOOR_LOCAL=1 does the same)",
    )


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one event per line on stdout")
    group.add_argument("--dialect", choices=DIALECTS, help="with --json: the vocabulary (default: stagedoor)")
    group.add_argument("-q", "--quiet", action="store_true", help="print only the final answer")
    group.add_argument("--plain", action="store_true", help="print plain lines, also at a terminal")
    group.add_argument(
        "--full-output", action="store_true", help="show all output of the agent's commands, not only its end"
    )
    group.add_argument("--no-thinking", dest="thinking", action="store_false", help="do not show the agent's thoughts")


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor run",
        description="Run one prompt on an agent. At a terminal you are asked before the agent does what its tier "
        "does not allow: one key answers, and the question says which. Ctrl-C interrupts, twice kills.",
        examples=(
            'stagedoor run claude "Fix the login bug"',
            "stagedoor run codex - --tier autonomous --json < task.md",
            'stagedoor run gemini "Explain this repository" --quiet > answer.md',
            'stagedoor run opencode "And now the docs" --resume 3f2a9c10 --policy team.yaml',
            'stagedoor run codex "Go on" --resume last',
            'stagedoor run --acp "my-agent --acp" "Fix the login bug" --tier autonomous',
        ),
        closing="exit codes: 0 success · 1 the agent failed · 2 usage · 3 not installed · 4 not signed in · "
        "5 limit reached\n            130 interrupted",
    )
    described = any(word == "--acp" or word.startswith("--acp=") for word in argv)
    if not described:  # two words that may be one would be matched wrongly between flags
        parser.add_argument("agent", help="stagedoor agents lists them; none with --acp")
    parser.add_argument(
        "--acp",
        metavar="COMMAND",
        help="in place of the agent's name: the command line of any program that speaks the Agent Client Protocol",
    )
    parser.add_argument(
        "prompt",
        nargs="*",
        help="what to do; - reads it from standard input (without one, at a terminal: stagedoor chat)",
    )
    parser.add_argument(
        "--server",
        metavar="URL|local",
        help="run it on a server: its address (with its token in STAGEDOOR_TOKEN), or local for the server that runs "
        "on this machine under your account",
    )
    parser.add_argument(
        "--place",
        metavar="PLACE",
        help="with --server: host:NAME for one of its machines, or git:ADDRESS@REF for a clone of that repository",
    )
    parser.add_argument(
        "--need", metavar="LABEL", action="append", default=[], help="with --server: a label the machine must have"
    )
    add_local_flag(parser)
    add_output_flags(parser)
    add_option_flags(parser)
    arguments = parser.parse_intermixed_args(argv)  # the prompt may be left out, or stand behind flags
    try:
        options = {**options_from(arguments), **_placed(arguments)}
    except BadFlag as fault:
        return report("run", fault)
    if arguments.dialect and not arguments.json:
        print("stagedoor run: --dialect needs --json", file=sys.stderr)
        return EXIT_USAGE
    try:
        agent = described_agent(arguments.acp, server=arguments.server) if described else arguments.agent
    except (BadFlag, StagedoorError) as fault:
        return report("run", fault)
    return run_words(parser, agent, options, arguments)


def run_words(parser: Parser, agent: str | AcpAgent, options: dict[str, Any], arguments: argparse.Namespace) -> int:
    """Run the words of the command line as one prompt. Without any: at a terminal somebody can type it."""
    if not arguments.prompt:
        printed = arguments.json or arguments.quiet or arguments.plain
        if printed or not (sys.stdin.isatty() and sys.stdout.isatty()):
            parser.error("the following arguments are required: prompt")
        from .chat import start_chat

        return start_chat(agent, options, arguments)
    words = " ".join(arguments.prompt)
    prompt = sys.stdin.read() if words == "-" else words
    if not prompt.strip():
        print(f"{parser.prog}: the prompt is empty", file=sys.stderr)
        return EXIT_USAGE
    return run_prompt(agent, prompt, options, arguments)


def _placed(arguments: argparse.Namespace) -> dict[str, Any]:
    """Where a server is to run it."""
    if not arguments.place and not arguments.need:
        return {}
    if arguments.server is None:
        raise BadFlag("--place and --need choose a machine of a server: add --server URL, or --server local")
    place = {"place": arguments.place} if arguments.place else {}
    return {**place, "needs": tuple(arguments.need)}


def described_agent(command: str, *, server: str | None = None) -> AcpAgent:
    """The agent that ``--acp`` describes. Raises ``BadFlag``."""
    if server is not None:
        raise BadFlag("--acp: a server runs the agents of its own configuration: add it there (stagedoor agents add)")
    try:
        words = shlex.split(command)
    except ValueError as fault:
        raise BadFlag(f"--acp: {command!r} is not a command line: {str(fault).lower()}") from None
    if not words:
        raise BadFlag("--acp: the command is empty; name a program that speaks the Agent Client Protocol")
    return AcpAgent(command=words)


def run_prompt(agent: str | AcpAgent, prompt: str, options: dict[str, Any], arguments: argparse.Namespace) -> int:
    """Run the prompt and show it as the flags of ``add_output_flags`` ask. Returns the exit code."""
    try:
        return asyncio.run(_run_prompt(agent, prompt, options, arguments))
    except (StagedoorError, ModuleNotFoundError, OSError) as fault:
        if isinstance(fault, BrokenPipeError):
            raise
        return report("run", fault)
    except asyncio.CancelledError:
        _end_line()
        return EXIT_INTERRUPTED


async def _run_prompt(
    agent: str | AcpAgent, prompt: str, options: dict[str, Any], arguments: argparse.Namespace
) -> int:
    entry = catalog.agent(agent)
    keyboard = find_keyboard()
    on_screen = sys.stdout.isatty() and not (arguments.json or arguments.quiet or arguments.plain)
    if on_screen:
        output = screen_output(entry.name, thinking=arguments.thinking, full_output=arguments.full_output)
    else:
        output = _printed(arguments)
    server: str | None = getattr(arguments, "server", None)
    is_found = False
    if server is None:
        options = configured_trust(entry.name, options)
        if keyboard is not None:
            options = await ask_for_trust(entry, options, keyboard, _writer(sys.stdout if on_screen else sys.stderr))
        if isinstance(agent, str):
            local = getattr(arguments, "local", True)
            is_found = await can_run_there(entry.name, options, local=local, command="run")
    if keyboard is not None and _may_ask(options):
        options = with_questions(entry, options, keyboard, output, sys.stdout if on_screen else sys.stderr)
    elif is_found and _may_ask(options):
        options = {**options, "can_use_tool": _deny_unattended}

    def restore() -> None:
        if keyboard is not None:
            keyboard.stop()

    session: Session | RemoteSession
    if is_found:
        session = _open_on_server("local", entry.name, for_server(options), keep_open=False)
    elif server is not None:
        session = _open_on_server(server, entry.name, options)
    else:
        session = api.open(agent, **with_audit(options))
    if keyboard is not None:
        keyboard.start()
    try:
        return await show_turn(session, prompt, output, restore, as_json=arguments.json)
    finally:
        restore()


async def _deny_unattended(request: PermissionRequest) -> Decision:
    """Without a terminal nobody is asked, wherever the agent runs."""
    return Deny("nobody can be asked: there is no terminal; choose another tier, or use a policy")


def _open_on_server(server: str, agent: str, options: dict[str, Any], *, keep_open: bool = True) -> RemoteSession:
    from ..remote import connect

    if server == "local" and not str(options.get("place", "")).startswith("git:"):
        options = with_whole_path(options)
    return connect(server).open(agent, keep_open=keep_open, **options)


def _may_ask(options: dict[str, Any]) -> bool:
    """Whether a question is possible at all: without any the agent may be run in a simpler way."""
    approval = options.get("approval") or ("autoAll" if options.get("tier") == "autonomous" else "ask")
    return approval != "autoAll" or "policy" in options


def _printed(arguments: argparse.Namespace) -> Output:
    if arguments.json:
        return PrintedOutput(json_lines(arguments.dialect or "stagedoor"))
    if arguments.quiet:
        return PrintedOutput(final_answer)
    return PrintedOutput(plain_lines(thinking=arguments.thinking, full_output=arguments.full_output))


def screen_output(agent: str, *, thinking: bool, full_output: bool = False) -> Output:
    from rich.console import Console

    from .terminal.screen import Screen

    return Screen(Console(highlight=False), agent=agent, thinking=thinking, full_output=full_output)


# ------------------------------------------------------------------------------------------ a session in the foreground


def with_questions(
    agent: Agent, options: dict[str, Any], keyboard: Keyboard, output: Output, stream: TextIO
) -> dict[str, Any]:
    """The options with a person to ask, where the agent has a driver that can."""

    capabilities = capabilities_when_asking(agent, options)
    if capabilities is None:
        return options  # whatever else is wrong is reported when the session is opened
    has_policy_file = "policy" in options or "remember_in" in options
    remember: Literal["session", "always"] = "always" if has_policy_file else "session"
    questions = TerminalQuestions(
        keyboard, output, _writer(stream), style_for(stream), capabilities=capabilities, remember=remember
    )
    return {**options, "can_use_tool": questions}


def _writer(stream: TextIO) -> Callable[[str], None]:
    def write(text: str) -> None:
        stream.write(text)
        stream.flush()

    return write


def capabilities_when_asking(agent: Agent, options: dict[str, Any]) -> Capabilities | None:
    """What the driver that these options choose can do, when a person can be asked."""

    def person(request: PermissionRequest) -> Decision:
        raise NotImplementedError

    fields: dict[str, Any] = {**options, "can_use_tool": person}
    try:
        return catalog.driver(agent, Options(**fields)).capabilities
    except NotSupported:
        return None


class RunOutcome:
    """What the events so far mean for the exit code."""

    def __init__(self) -> None:
        self.started = False
        self.version = ""
        self._status = ""
        self._kinds: list[str] = []

    def see(self, event: Event) -> None:
        match event:
            case events.Init():
                self.started, self.version = True, event.agent_version
            case events.Error(fatal=True):
                self._kinds.append(event.kind)
            case events.Done():
                self._status = event.status
            case _:
                return

    def code(self, *, interrupted: bool) -> int:
        if interrupted and self._status != "success":
            return EXIT_INTERRUPTED
        return code_of_status(self._status, self._kinds) if self._status else EXIT_FAILED


async def show_turn(
    session: Session | RemoteSession,
    prompt: str,
    output: Output,
    restore: Callable[[], None],
    *,
    as_json: bool = False,
    observe: Callable[[Event], None] = lambda event: None,
) -> int:
    """Send the prompt and show every event, under the rules of Ctrl-C. Returns the exit code."""
    outcome = RunOutcome()

    def see(event: Event) -> None:
        outcome.see(event)
        output.show(event)
        observe(event)

    tasks = TaskOwner()
    signals = StopSignals(session, tasks, output.note, restore, started=lambda: outcome.started)
    tasks.start(output.animate())
    signals.listen()
    output.resume()
    try:
        async with session:
            try:
                async with aclosing(session.send(prompt)) as turn:
                    async for event in turn:
                        see(event)
            except StagedoorError as fault:
                if as_json and isinstance(session, Session):
                    # A program reads the events to their end; a person reads the one line below.
                    async for event in session.events:
                        see(event)
                output.pause()
                complain(f"stagedoor run: {error_line(fault)}")
                return code_of_error(fault)
            rest = session.events
            if isinstance(session, Session) or not session.ends_by_itself:
                await session.close()
            async for event in rest:
                see(event)
    finally:
        signals.ignore()
        output.pause()
        await tasks.close()
        if session.unrecognized:
            count_unrecognized(session.agent, outcome.version, session.unrecognized)
    return outcome.code(interrupted=signals.presses > 0)


def _end_line() -> None:
    """What is killed ends in the middle of a line, and the shell writes its prompt behind it."""
    if sys.stderr.isatty():
        print(file=sys.stderr, flush=True)


PATIENCE = 4.0
"""Seconds from the kill to the end of this process; the guard ends what is then still running."""


class StopSignals:
    """Ctrl-C: once interrupts the turn, twice kills; if even that takes too long, this process ends at once.

    ``started``: has the agent reported anything? Before that there is no turn to interrupt.
    """

    def __init__(
        self,
        session: Session | RemoteSession,
        tasks: TaskOwner,
        note: Callable[[str], None],
        restore: Callable[[], None],
        started: Callable[[], bool],
    ) -> None:
        self.presses = 0
        self._session = session
        self._tasks = tasks
        self._note = note
        self._restore = restore
        self._started = started
        self._main: asyncio.Task[object] | None = None

    def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        loop.add_signal_handler(signal.SIGINT, self._press)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._kill)

    def ignore(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)

    def _press(self) -> None:
        self.presses += 1
        if self.presses == 1 and self._started():
            self._note("interrupting (Ctrl-C again kills)")
            self._tasks.start(self._session.interrupt())
        else:
            self._kill()

    def _kill(self) -> None:
        self.presses = max(self.presses, 1) + 1
        loop = asyncio.get_running_loop()
        if self.presses > 3:
            self._die()
        self._note("killing")
        if self._started():
            self._tasks.start(self._session.close())
            loop.call_later(PATIENCE / 2, self._cancel)
        else:
            self._cancel()
        loop.call_later(PATIENCE, self._die)

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _die(self) -> None:
        self._restore()
        _end_line()
        os._exit(EXIT_INTERRUPTED)
