"""Every option of a session as a flag, shared by the commands that start agents."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from ..unified.options import Approval, McpServer, Options, Sandbox, Tier

NO_LIMIT = ("none", "never", "0")


class BadFlag(ValueError):
    """What a flag was given cannot be used; the sentence says why."""


def add_option_flags(parser: argparse.ArgumentParser) -> None:
    """One flag for each field of ``Options``, except the callback, which a command line cannot carry."""
    where = parser.add_argument_group("where and what")
    where.add_argument("-C", "--cwd", metavar="DIR", help="the workspace (default: here)")
    where.add_argument("-m", "--model", metavar="NAME")
    where.add_argument("--driver", metavar="NAME", help="which of the agent's protocols to use")
    where.add_argument("--executable", metavar="FILE", help="the agent's program, where it is not on the PATH")
    where.add_argument("--resume", metavar="ID", help="go on with a stored session (stagedoor sessions lists them)")
    where.add_argument("--fork", action="store_true", default=None, help="with --resume: go on in a copy")
    where.add_argument("--image", dest="images", action="append", metavar="FILE", help="attach an image (repeatable)")
    where.add_argument("--output-schema", metavar="FILE|JSON", help="the answer must fit this JSON Schema")

    rights = parser.add_argument_group("rights")
    rights.add_argument("--tier", choices=get_args(Tier), help="default: supervised")
    rights.add_argument("--approval", choices=get_args(Approval), help="finer than the tier")
    rights.add_argument("--sandbox", choices=get_args(Sandbox))
    rights.add_argument("--policy", metavar="FILE", help="rules that decide before anybody is asked (YAML or TOML)")
    rights.add_argument("--remember-in", metavar="FILE", help="the policy file an answer of “always” is written to")
    rights.add_argument(
        "--audit", metavar="FILE", help="where decisions are recorded (stagedoor audit; - records none)"
    )
    rights.add_argument("--allowed-tools", action="append", metavar="NAMES", help="only these tools, by commas")
    rights.add_argument("--disallowed-tools", action="append", metavar="NAMES", help="never these tools, by commas")
    rights.add_argument(
        "--permission-timeout", metavar="SECONDS", help="how long a question waits before it is denied (300; none)"
    )

    limits = parser.add_argument_group("limits")
    limits.add_argument("--timeout", type=float, metavar="SECONDS", help="interrupt a turn that takes longer")
    limits.add_argument("--max-turns", type=int, metavar="N")
    limits.add_argument("--max-budget-usd", type=float, metavar="USD")
    limits.add_argument("--stall-after", metavar="SECONDS", help="say so when nothing moves for so long (120; none)")

    more = parser.add_argument_group("more")
    more.add_argument("--system-prompt", metavar="TEXT", help="in place of the agent's own (@FILE reads it)")
    more.add_argument("--append-system-prompt", metavar="TEXT", help="after the agent's own (@FILE reads it)")
    more.add_argument("--mcp-server", action="append", metavar="NAME=COMMAND|URL", help="an MCP server (repeatable)")
    more.add_argument("--mcp-config", action="append", metavar="FILE", help="MCP servers, as JSON with mcpServers")
    more.add_argument("--env", action="append", metavar="NAME=VALUE", help="a variable for the agent (repeatable)")
    more.add_argument(
        "--no-inherit-env", dest="inherit_env", action="store_false", default=None, help="give it --env and no more"
    )
    more.add_argument("--extra-arg", dest="extra_args", action="append", metavar="WORD", help="for the agent's program")
    more.add_argument(
        "--no-watch-files", dest="watch_files", action="store_false", default=None,
        help="do not compare the workspace before and after each turn",
    )  # fmt: skip
    more.add_argument("--raw", action="store_true", default=None, help="the agent's own message beside each event")


def options_from(given: argparse.Namespace) -> dict[str, Any]:
    """The flags that were given, as keywords for ``stagedoor.run``. Raises ``BadFlag``."""
    options: dict[str, Any] = {}
    for name in Options.__struct_fields__:
        value = getattr(given, name, None)
        if value is not None:
            read = _READERS.get(name)
            options[name] = value if read is None else read(value)
    servers = _mcp_servers(given.mcp_config or [], given.mcp_server or [])
    if servers:
        options["mcp_servers"] = servers
    if getattr(given, "server", None) is None and not Path(options.get("cwd", ".")).is_dir():
        raise BadFlag(f"--cwd: there is no directory {options['cwd']!r}")
    return options


def _seconds(text: str) -> float | None:
    if text.lower() in NO_LIMIT:
        return None
    try:
        return float(text)
    except ValueError:
        raise BadFlag(f"{text!r} is no number of seconds; give one, or none") from None


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
        raise BadFlag(f"{name}: {fault}") from fault


def _schema(text: str) -> Any:
    written = text if text.lstrip().startswith("{") else _content(text.removeprefix("@"))
    schema = _json(written, "--output-schema")
    if not isinstance(schema, dict):
        raise BadFlag("--output-schema: a JSON Schema is an object")
    return schema  # pyright: ignore[reportUnknownVariableType]


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as fault:
        raise BadFlag(f"{where}: this is not JSON: {fault}") from fault


def _pair(text: str, flag: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise BadFlag(f"{flag}: {text!r} should be NAME=VALUE")
    return name, value


def _variables(values: list[str]) -> dict[str, str]:
    return dict(_pair(value, "--env") for value in values)


def _images(files: list[str]) -> tuple[str, ...]:
    for file in files:
        if "://" not in file and not Path(file).is_file():
            raise BadFlag(f"--image: there is no file {file!r}")
    return tuple(file if "://" in file else str(Path(file).resolve()) for file in files)


def _mcp_servers(files: list[str], inline: list[str]) -> dict[str, McpServer]:
    import msgspec

    servers: dict[str, McpServer] = {}
    for file in files:
        tree = _json(_content(file), file)
        try:
            found = msgspec.convert(tree.get("mcpServers", tree) if isinstance(tree, dict) else tree, dict[str, Any])  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
            servers |= {name: msgspec.convert(_known(server), McpServer) for name, server in found.items()}
        except msgspec.ValidationError as fault:
            raise BadFlag(f"{file}: {fault}") from fault
    for text in inline:
        name, value = _pair(text, "--mcp-server")
        servers[name] = _server(value)
    return servers


def _known(server: Any) -> Any:
    """Settings files call the transport ``type``."""
    if not isinstance(server, dict):
        return server
    known: dict[str, Any] = {**server}
    kind = known.pop("type", None) or ("http" if "url" in known else "stdio")
    return {"transport": kind, **known}


def _server(value: str) -> McpServer:
    import shlex

    if value.startswith(("http://", "https://")):
        return McpServer(url=value, transport="http")
    words = shlex.split(value)
    if not words:
        raise BadFlag("--mcp-server: give a command or a URL after the equals sign")
    return McpServer(command=words[0], args=tuple(words[1:]))


_READERS: dict[str, Callable[[Any], Any]] = {
    "allowed_tools": _names,
    "disallowed_tools": _names,
    "permission_timeout": _seconds,
    "stall_after": _seconds,
    "system_prompt": _text_or_file,
    "append_system_prompt": _text_or_file,
    "output_schema": _schema,
    "images": _images,
    "env": _variables,
    "extra_args": tuple,
}
