"""What the commands share: a parser with examples, the options of a session as flags, exit codes, one-line errors."""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from . import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_LIMIT,
    EXIT_NOT_INSTALLED,
    EXIT_NOT_SIGNED_IN,
    EXIT_SUCCESS,
    EXIT_USAGE,
)

if TYPE_CHECKING:
    from ..unified.options import McpServer

DIALECTS = ("stagedoor", "ues", "lifecycle", "board", "notify", "chat")
"""Their names alone: a help text should not import them."""


class Parser(argparse.ArgumentParser):
    """``examples`` are command lines, one each; ``closing`` is printed after them."""

    def __init__(self, *, examples: Sequence[str] = (), closing: str = "", **settings: Any) -> None:
        listed = "\n".join(["examples:", *(f"  {line}" for line in examples)]) if examples else ""
        epilog = "\n\n".join(part for part in (listed, closing) if part)
        super().__init__(formatter_class=_HelpFormatter, epilog=epilog or None, **settings)

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message}{self._hint(message)} (see {self.prog} --help)\n")

    def _hint(self, message: str) -> str:
        """What was probably meant. Only argparse's own sentence says which flag it stopped at."""
        unknown = re.match(r"unrecognized arguments: (--?[\w-]+)", message)
        if unknown:
            close = difflib.get_close_matches(unknown[1], self._option_string_actions, n=2, cutoff=0.8)
            return f": did you mean {' or '.join(close)}?" if close else ""
        lacking = re.match(r"argument (?:-\w/)?(--[\w-]+): expected (?:one|at least one) argument", message)
        if lacking:
            return f": a value that starts with a dash must be joined to it: {lacking[1]}=--value"
        return ""


class _HelpFormatter(argparse.HelpFormatter):
    """Fills paragraphs as usual, but keeps text that already has line breaks."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


# ---------------------------------------------------------------------------------------------- how a command ends

_SERVER_PACKAGES = "starlette uvicorn websockets watchfiles segno cryptography"
PACKAGES = {
    "h11": "h11",
    "httpx": "httpx",
    "websockets": "websockets",
    "mcp": "mcp",
    "starlette": _SERVER_PACKAGES,
    "uvicorn": _SERVER_PACKAGES,
    "segno": _SERVER_PACKAGES,
    "cryptography": _SERVER_PACKAGES,
    "watchfiles": _SERVER_PACKAGES,
}
"""Optional module → the packages to install for what needs it."""


def code_of_status(status: str, error_kinds: Iterable[str] = ()) -> int:
    """The exit code of ``done``, given the kinds of the fatal errors that came before it."""
    kinds = set(error_kinds)
    if status == "success":
        return EXIT_SUCCESS
    if status in ("max_turns", "max_budget") or "timeout" in kinds:
        return EXIT_LIMIT
    if status == "interrupted":
        return EXIT_INTERRUPTED
    return EXIT_NOT_SIGNED_IN if "authentication_failed" in kinds else EXIT_FAILED


def code_of_error(error: BaseException) -> int:
    from ..errors import (
        BadRequest,
        ConfigError,
        NotAllowed,
        NotInstalled,
        NotSignedIn,
        NotSupported,
        PolicyError,
        SessionNotFound,
        UnsupportedVersion,
    )

    match error:
        case NotSignedIn():
            return EXIT_NOT_SIGNED_IN
        case NotInstalled() | UnsupportedVersion() | ModuleNotFoundError():
            return EXIT_NOT_INSTALLED
        case (
            BadRequest()
            | NotAllowed()
            | NotSupported()
            | PolicyError()
            | ConfigError()
            | SessionNotFound()
            | ValueError()
        ):
            return EXIT_USAGE
        case _:
            return EXIT_FAILED


def error_line(error: BaseException) -> str:
    """An error in one line: never a traceback, never empty."""
    if isinstance(error, ModuleNotFoundError):
        if error.name in PACKAGES:
            return f"{error.name} is not installed: run pip install {PACKAGES[error.name]}"
        return f"{error.name} is missing from this installation: reinstall Stagedoor, or choose another agent"
    from ..errors import SessionNotFound

    text = as_flags(str(error).strip()).replace("list_sessions()", "stagedoor sessions") or type(error).__name__
    if isinstance(error, SessionNotFound) and text.endswith("not found"):
        return f"{text}: stagedoor sessions lists those that the agents have stored, the page those of the server"
    return text


_PYTHON_WORD = re.compile(r"\b([a-z_]+)=(?:'([^'\s]*)'|(-?\w[\w.]*)|(?=[\s,.:;)]|$))|\b([a-z]+(?:_[a-z]+)+)\b(?!=)")
"""``tier='dry-run'``, ``fork=True``, ``timeout=`` or ``max_turns`` in a sentence."""


def as_flags(text: str) -> str:
    """The same sentence for somebody at a shell: options have the names of their flags there."""
    if not _PYTHON_WORD.search(text):
        return text
    parser = argparse.ArgumentParser()
    add_option_flags(parser)
    strings: dict[str, argparse.Action] = parser._option_string_actions
    flags = {action.dest: flag for flag, action in strings.items() if not flag.startswith("--no-")}

    def flag(match: re.Match[str]) -> str:
        name, quoted, word, bare = match.groups()
        if (name or bare) not in flags:
            return match[0]
        value = quoted or ("" if word == "True" else word)
        return f"{flags[name or bare]} {value}" if value else flags[name or bare]

    return _PYTHON_WORD.sub(flag, text)


def report(command: str, error: BaseException) -> int:
    """Print the error on stderr; returns its exit code."""
    complain(f"stagedoor {command}: {error_line(error)}")
    return code_of_error(error)


def complain(text: str) -> None:
    """Print it on stderr, between words where a terminal is narrow."""
    from .terminal.output import terminal_columns, wrapped

    print(wrapped(text, terminal_columns(sys.stderr)), file=sys.stderr)


# --------------------------------------------------------------------------------- the options of a session as flags

NO_LIMIT = ("none", "never", "0")


class BadFlag(ValueError):
    """A flag has a value that cannot be used; the message says why."""


def add_option_flags(parser: argparse.ArgumentParser) -> None:
    """One flag for each field of ``Options``, except the callback, which a command line cannot carry."""
    from ..unified.options import Approval, Confine, PermissionMode, Sandbox, Tier

    where = parser.add_argument_group("workspace and agent")
    where.add_argument("-C", "--cwd", metavar="DIR", help="the workspace (default: here)")
    where.add_argument("-m", "--model", metavar="NAME")
    where.add_argument("--effort", metavar="LEVEL", help="how much the model thinks, by the agent's own word")
    where.add_argument("--mode", metavar="NAME", help="the agent's own mode, where the tier does not decide it")
    where.add_argument("--driver", metavar="NAME", help="the protocol to use, where the agent has several")
    where.add_argument("--executable", metavar="FILE", help="the agent's program, if it is not on the PATH")
    where.add_argument(
        "--resume", metavar="ID", help="continue a stored session (stagedoor sessions lists them), or last"
    )
    where.add_argument("--fork", action="store_true", default=None, help="with --resume: continue in a copy")
    where.add_argument("--image", dest="images", action="append", metavar="FILE", help="attach an image (repeatable)")
    where.add_argument("--output-schema", metavar="FILE|JSON", help="the answer must fit this JSON Schema")

    rights = parser.add_argument_group("permissions")
    rights.add_argument(
        "--tier",
        choices=get_args(Tier),
        help="what the agent may do: dry-run (Read-only), supervised (Accept edits, the default) or autonomous "
        "(Full auto)",
    )
    modes = (*get_args(Approval), *get_args(PermissionMode))
    rights.add_argument(
        "--approval", choices=modes, help="when you are asked, if not as the tier says; plan changes nothing"
    )
    rights.add_argument("--sandbox", choices=get_args(Sandbox), help="what commands may touch")
    rights.add_argument(
        "--confine",
        choices=get_args(Confine),
        help="run the agent in Stagedoor's own sandbox: it writes only in the workspace, or nowhere",
    )
    rights.add_argument(
        "--confine-write", action="append", metavar="DIR", help="with --confine: one more folder to write (repeatable)"
    )
    rights.add_argument(
        "--confine-hide", action="append", metavar="PATH", help="with --confine: what cannot be read (repeatable)"
    )
    rights.add_argument(
        "--trust",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="load the project's own settings, hooks, plugins and tool servers (default: what stagedoor trust "
        "has recorded for the folder)",
    )
    rights.add_argument("--policy", metavar="FILE", help="rules that decide before you are asked (YAML or TOML)")
    rights.add_argument(
        "--protect",
        dest="protected",
        action="append",
        metavar="PATTERN",
        help="ask before these files are written, too (repeatable; agents', editors' and CI files always are)",
    )
    rights.add_argument("--remember-in", metavar="FILE", help="the policy file that stores your “always” answers")
    rights.add_argument(
        "--audit", metavar="FILE", help="the log of decisions (stagedoor audit reads it; - writes none)"
    )
    rights.add_argument(
        "--allowed-tools", action="append", metavar="NAMES", help="only these tools, separated by commas"
    )
    rights.add_argument(
        "--disallowed-tools", action="append", metavar="NAMES", help="not these tools, separated by commas"
    )
    rights.add_argument(
        "--before-tool-call",
        metavar="COMMAND",
        help="a command that decides about every call: the request as JSON on its input, its answer on its output",
    )
    rights.add_argument("--after-tool-call", metavar="COMMAND", help="a command that gets the result of every call")
    rights.add_argument(
        "--on-event",
        action="append",
        metavar="TYPE=COMMAND",
        help="a command that gets every event of this type, such as turn_completed (repeatable)",
    )
    rights.add_argument(
        "--hook-timeout",
        type=float,
        metavar="SECONDS",
        help="how long such a command may take (default: 60); a late decision counts as no",
    )
    rights.add_argument(
        "--permission-timeout",
        metavar="SECONDS",
        help="deny a question after this time (default: 300; none waits forever)",
    )

    limits = parser.add_argument_group("limits")
    limits.add_argument("--timeout", type=float, metavar="SECONDS", help="interrupt a turn that takes longer")
    limits.add_argument("--max-turns", type=int, metavar="N")
    limits.add_argument("--max-budget-usd", type=float, metavar="USD")
    limits.add_argument(
        "--stall-after", metavar="SECONDS", help="report when the agent is silent for this time (default: 120; none)"
    )

    more = parser.add_argument_group("advanced")
    more.add_argument("--system-prompt", metavar="TEXT", help="replace the agent's system prompt (@FILE reads a file)")
    more.add_argument(
        "--append-system-prompt", metavar="TEXT", help="add to the agent's system prompt (@FILE reads a file)"
    )
    more.add_argument("--mcp-server", action="append", metavar="NAME=COMMAND|URL", help="an MCP server (repeatable)")
    more.add_argument(
        "--mcp-config", action="append", metavar="FILE", help="MCP servers from a JSON file with mcpServers"
    )
    more.add_argument(
        "--env", action="append", metavar="NAME=VALUE", help="an environment variable for the agent (repeatable)"
    )
    more.add_argument(
        "--no-inherit-env",
        dest="inherit_env",
        action="store_false",
        default=None,
        help="the agent gets only the variables of --env",
    )
    more.add_argument(
        "--extra-arg",
        dest="extra_args",
        action="append",
        metavar="WORD",
        help="an argument for the agent's program (repeatable; one that starts with a dash is joined: --extra-arg=-v)",
    )
    more.add_argument(
        "--no-watch-files", dest="watch_files", action="store_false", default=None,
        help="do not compare the workspace before and after each turn",
    )  # fmt: skip
    more.add_argument(
        "--checkpoints", action="store_true", default=None,
        help="keep how the workspace stands before each turn, so that a turn can be undone",
    )  # fmt: skip
    more.add_argument("--raw", action="store_true", default=None, help="add the agent's native message to each event")


def options_from(arguments: argparse.Namespace) -> dict[str, Any]:
    """The flags that are set, as keywords for ``stagedoor.run``. Raises ``BadFlag``."""
    from ..unified.options import Options

    options: dict[str, Any] = {}
    for name in Options.__struct_fields__:
        value = getattr(arguments, name, None)
        if value is not None:
            read = _READERS.get(name)
            options[name] = value if read is None else read(value)
    servers = _mcp_servers(arguments.mcp_config or [], arguments.mcp_server or [])
    if servers:
        options["mcp_servers"] = servers
    if getattr(arguments, "server", None) is None and not Path(options.get("cwd", ".")).is_dir():
        raise BadFlag(f"--cwd: directory {options['cwd']!r} not found")
    return options


def _seconds(text: str) -> float | None:
    if text.lower() in NO_LIMIT:
        return None
    try:
        return float(text)
    except ValueError:
        raise BadFlag(f"{text!r} is not a number of seconds: use a number, or none") from None


def _names(values: list[str]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def _text_or_file(text: str) -> str:
    if not text.startswith("@"):
        return text
    return _content(text[1:])


def _content(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise BadFlag(f"cannot read {name}: {getattr(fault, 'strerror', None) or fault}") from fault


def _schema(text: str) -> Any:
    source = text if text.lstrip().startswith("{") else _content(text.removeprefix("@"))
    schema = _json(source, "--output-schema")
    if not isinstance(schema, dict):
        raise BadFlag("--output-schema: a JSON Schema must be an object")
    return schema  # pyright: ignore[reportUnknownVariableType]


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as fault:
        raise BadFlag(f"{where}: not valid JSON: {fault}") from fault


def _pair(text: str, flag: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise BadFlag(f"{flag}: {text!r} must be NAME=VALUE")
    return name, value


def _variables(values: list[str]) -> dict[str, str]:
    return dict(_pair(value, "--env") for value in values)


def _images(files: list[str]) -> tuple[str, ...]:
    for file in files:
        if "://" not in file and not Path(file).is_file():
            raise BadFlag(f"--image: file {file!r} not found")
    return tuple(file if "://" in file else str(Path(file).resolve()) for file in files)


def _mcp_servers(files: list[str], inline: list[str]) -> dict[str, McpServer]:
    import msgspec

    from ..unified.options import McpServer

    servers: dict[str, McpServer] = {}
    for file in files:
        tree = _json(_content(file), file)
        try:
            entries = msgspec.convert(tree.get("mcpServers", tree) if isinstance(tree, dict) else tree, dict[str, Any])  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
            servers |= {name: msgspec.convert(_with_transport(server), McpServer) for name, server in entries.items()}
        except msgspec.ValidationError as fault:
            raise BadFlag(f"{file}: {fault}") from fault
    for text in inline:
        name, value = _pair(text, "--mcp-server")
        servers[name] = _server(value)
    return servers


def _with_transport(server: Any) -> Any:
    """Settings files call the transport ``type``."""
    if not isinstance(server, dict):
        return server
    settings: dict[str, Any] = {**server}
    transport = settings.pop("type", None) or ("http" if "url" in settings else "stdio")
    return {"transport": transport, **settings}


def _server(value: str) -> McpServer:
    import shlex

    from ..unified.options import McpServer

    if value.startswith(("http://", "https://")):
        return McpServer(url=value, transport="http")
    words = shlex.split(value)
    if not words:
        raise BadFlag("--mcp-server: a command or a URL must follow the equals sign")
    return McpServer(command=words[0], args=tuple(words[1:]))


def _command(value: str) -> tuple[str, ...]:
    """Words in the manner of a shell, without one."""
    import shlex

    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise BadFlag(f"{value!r} is not a command: {error}") from None


def _commands(values: list[str]) -> dict[str, tuple[str, ...]]:
    return {kind: _command(words) for kind, words in (_pair(value, "--on-event") for value in values)}


_READERS: dict[str, Callable[[Any], Any]] = {
    "allowed_tools": _names,
    "disallowed_tools": _names,
    "permission_timeout": _seconds,
    "stall_after": _seconds,
    "system_prompt": _text_or_file,
    "append_system_prompt": _text_or_file,
    "output_schema": _schema,
    "images": _images,
    "before_tool_call": _command,
    "after_tool_call": _command,
    "on_event": _commands,
    "confine_write": tuple,
    "confine_hide": tuple,
    "env": _variables,
    "extra_args": tuple,
}
