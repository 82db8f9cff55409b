"""Every key of the configuration: where it stands, what it takes, what it is for. The page and the checks use this."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import msgspec

from stagedoor.dialects import DIALECTS
from stagedoor.errors import ConfigError
from stagedoor.transports.posting import address_problem
from stagedoor.unified.options import HOOKED_EVENTS, Approval, Confine, PermissionMode, Sandbox, Tier
from stagedoor.yaml_with_lines import hint

from ..notify.signing import secret_key
from ..postgres.address import DatabaseAddress
from .settings import AgentSettings, Settings

Kind: TypeAlias = Literal[
    "text",
    "path",
    "number",
    "time",
    "days",
    "flag",
    "texts",
    "paths",
    "table",
    "places",
    "command",
    "values",
    "commands",
    "addresses",
    "signing_secret",
    "database",
]
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """``path`` has dots; ``*`` stands for an agent's name. ``setting`` is the field of ``Settings`` it becomes."""

    path: str
    kind: Kind
    about: str
    setting: str = ""
    choices: tuple[str, ...] = ()
    least: int = 1
    most: int | None = None
    secret: bool = False


def _limit(name: str, about: str) -> Key:
    return Key(path=f"sessions.limits.{name}", kind="number", about=about, setting=f"limits.{name}")


_TIERS = cast("tuple[str, ...]", get_args(Tier))
_APPROVALS = cast("tuple[str, ...]", (*get_args(Approval), *get_args(PermissionMode)))

KEYS: tuple[Key, ...] = (
    Key(path="server.host", kind="text", about="the address to listen on", setting="host"),
    Key(path="server.port", kind="number", about="0: any free port", setting="port", least=0, most=65_535),
    Key(
        path="server.hosts",
        kind="texts",
        about="more names of this server: requests with another `Host` or `Origin` are refused; "
        "`https://NAME` where a proxy does TLS",
        setting="hosts",
    ),
    Key(
        path="server.dialect",
        kind="text",
        about="the vocabulary of event streams and pages where neither the request (`?dialect=`) nor the device says "
        "(see [dialects](dialects.md))",
        setting="dialect",
        choices=tuple(DIALECTS),
    ),
    Key(path="server.tls_cert", kind="path", about="a certificate (PEM), for HTTPS", setting="tls_cert"),
    Key(path="server.tls_key", kind="path", about="its private key (PEM)", setting="tls_key"),
    Key(
        path="workspaces.roots",
        kind="paths",
        about="sessions run, and files are read, only under these folders; the first one is the default",
        setting="roots",
    ),
    Key(path="workspaces.projects", kind="places", about="project id → folder", setting="projects"),
    Key(
        path="workspaces.push",
        kind="texts",
        about="git addresses that clients may push a workspace's branches to; one that ends with `/` or `:` stands for "
        "all that begin so; none: nothing is pushed",
        setting="push",
    ),
    Key(
        path="workspaces.clone",
        kind="texts",
        about="git addresses that sessions may be placed in (`place: git:ADDRESS@REF`): this machine clones from them "
        "with your own ssh and credentials; one that ends with `/` or `:` stands for all that begin so",
        setting="clone",
    ),
    Key(
        path="workspaces.clone_megabytes",
        kind="number",
        about="how large such a clone may be, its history and its files together; a larger one is refused and removed; "
        "0: no limit",
        setting="clone_megabytes",
        least=0,
    ),
    Key(
        path="workspaces.clone_files",
        kind="number",
        about="how many files and folders such a clone may have; one with more is refused and removed; 0: no limit",
        setting="clone_files",
        least=0,
    ),
    Key(
        path="workspaces.checkpoints",
        kind="flag",
        about="before each turn, keep how the workspace stands, so that a turn or a file can be undone",
        setting="checkpoints",
    ),
    Key(
        path="workspaces.trusted_folders",
        kind="paths",
        about="folders whose own settings, hooks, plugins and tool servers take part, with all that is in a plain "
        "folder (see [security](security.md))",
        setting="trusted_folders",
    ),
    Key(path="agents.default", kind="text", about="the default agent", setting="default_agent"),
    Key(path="agents.*.enabled", kind="flag", about="false: this agent starts no sessions"),
    Key(
        path="agents.*.acp",
        kind="command",
        about="makes NAME an agent of yours: the command line of any program that speaks the Agent Client Protocol "
        "(see [other agents](acp-agents.md))",
    ),
    Key(
        path="agents.*.modes",
        kind="table",
        about="with acp: tier → the agent's own mode that keeps it; a tier without one is refused",
    ),
    Key(path="agents.*.options", kind="values", about="with acp: the agent's own settings, by their ids"),
    Key(
        path="agents.*.install", kind="text", about="with acp: the command that installs it, shown where it is missing"
    ),
    Key(path="agents.*.title", kind="text", about="with acp: its name for people"),
    Key(path="agents.*.command", kind="text", about="its program: a name or a path"),
    Key(
        path="agents.*.args",
        kind="texts",
        about="more arguments; those that the driver sets itself are ignored with a warning",
    ),
    Key(path="agents.*.env", kind="table", about="more environment variables", secret=True),
    Key(path="agents.*.model", kind="text", about="the default model"),
    Key(path="agents.*.effort", kind="text", about="how much the model thinks, by the agent's own word (`high`)"),
    Key(path="agents.*.driver", kind="text", about="the default driver"),
    Key(path="agents.*.tier", kind="text", about="the default tier", choices=_TIERS),
    Key(path="agents.*.approval", kind="text", about="when it asks", choices=_APPROVALS),
    Key(
        path="agents.*.sandbox",
        kind="text",
        about=f"{', '.join(get_args(Sandbox))}, a container where the program has one (docker, podman), or custom: "
        "what `profile` says",
    ),
    Key(
        path="agents.*.profile",
        kind="path",
        about="with sandbox custom: a file that says what the agent may touch (see [confine](confine.md#profiles))",
    ),
    Key(
        path="agents.*.confine",
        kind="text",
        about="run it in a sandbox of ours; a client may ask for a narrower one, not for a wider",
        choices=get_args(Confine),
    ),
    Key(path="agents.*.confine_write", kind="paths", about="with confine: more folders it may write"),
    Key(path="agents.*.confine_hide", kind="paths", about="with confine: what it cannot read"),
    Key(path="agents.*.skip_permissions", kind="flag", about="true: the same as tier `autonomous`, no questions"),
    Key(
        path="agents.*.trusted_folders",
        kind="paths",
        about="folders that are trusted when this agent runs there, in addition to `workspaces.trusted_folders`",
    ),
    Key(
        path="agents.*.auto_accept",
        kind="texts",
        about="tools that are allowed without a question (a policy can still deny them)",
    ),
    Key(path="sessions.tier", kind="text", about="the tier of agents that have none", setting="tier", choices=_TIERS),
    Key(
        path="sessions.sleep_after",
        kind="time",
        about="an open session's program stops after this time without a turn; the next message starts it again",
        setting="sleep_after",
    ),
    Key(
        path="sessions.answer_within",
        kind="time",
        about="an unanswered question is denied after this time",
        setting="answer_within",
    ),
    Key(
        path="sessions.keep_days",
        kind="days",
        about="the events of ended sessions are deleted after this many days",
        setting="keep_days",
    ),
    _limit("awake", "sessions whose program runs at the same time"),
    _limit("queued", "follow-ups that wait in one session"),
    _limit("prompt", "characters of one prompt"),
    _limit("body", "bytes of one request"),
    _limit("connections", "connections at once"),
    _limit("subscriptions", "sessions one JSON-RPC client follows"),
    _limit("depth", "how deep sessions that start sessions may be nested"),
    _limit("children", "open sessions that one session, or one caller of the MCP door, may have started"),
    Key(
        path="policy.file",
        kind="path",
        about="a [policy](permissions.md), reloaded when it changes",
        setting="policy",
    ),
    Key(
        path="policy.protected",
        kind="texts",
        about="more [protected files](permissions.md#protected-files): patterns of files that are asked about before "
        "they are written",
        setting="protected",
    ),
    Key(
        path="hooks.beforeToolCall",
        kind="command",
        about="a command that decides about every call before it runs (see [hooks](permissions.md#hooks))",
        setting="before_tool_call",
    ),
    Key(
        path="hooks.afterToolCall",
        kind="command",
        about="a command that is told of every call when it is over",
        setting="after_tool_call",
    ),
    Key(
        path="hooks.onEvent",
        kind="commands",
        about="commands that are told of events, by the type of event: "
        + " ".join(f"`{kind}`" for kind in HOOKED_EVENTS),
        setting="on_event",
    ),
    Key(
        path="hooks.timeout",
        kind="number",
        about="seconds that one of these commands may take; a decision that is late is a no",
        setting="hook_timeout",
        most=3600,
    ),
    Key(
        path="notify.webhooks",
        kind="addresses",
        about="addresses that get a signed POST when a session asks, is done or has failed "
        "(see [notifications](notifications.md))",
        setting="webhooks",
        secret=True,
    ),
    Key(
        path="notify.webhook_secret",
        kind="signing_secret",
        about="what those are signed with",
        setting="webhook_secret",
        secret=True,
    ),
    Key(
        path="notify.ntfy",
        kind="addresses",
        about="topics of [ntfy](https://ntfy.sh) servers that get the same as a push message",
        setting="ntfy",
        secret=True,
    ),
    Key(
        path="notify.ntfy_token",
        kind="text",
        about="an access token for those topics",
        setting="ntfy_token",
        secret=True,
    ),
    Key(
        path="notify.push_contact",
        kind="text",
        about="`mailto:YOU` or an https address: whom a push service may write to when something is wrong",
        setting="push_contact",
    ),
    Key(
        path="notify.push_hosts",
        kind="texts",
        about="push services of your own (`NAME` or `NAME:PORT`) that are in your network or have no TLS; "
        "browsers' push messages go nowhere else than to https addresses of the internet",
        setting="push_hosts",
    ),
    Key(
        path="notify.events",
        kind="texts",
        about="what is told",
        setting="notify_on",
        choices=("question", "done", "failed"),
    ),
    Key(
        path="notify.content",
        kind="flag",
        about="true: titles, commands and results are sent along; false: only what happened, and a link",
        setting="notify_content",
    ),
    Key(
        path="machine.name",
        kind="text",
        about="what this machine is called where several share a database; its host name when empty",
        setting="machine_name",
    ),
    Key(
        path="machine.labels",
        kind="texts",
        about="labels that sessions can ask for, beside `host:NAME` and `agent:NAME` of each installed agent",
        setting="labels",
    ),
    Key(
        path="machine.lease",
        kind="number",
        about="seconds that a machine may be silent before it ends what it runs; the same on all machines",
        setting="lease",
    ),
    Key(
        path="log.durable",
        kind="text",
        about="what is acknowledged survives a crash of this process, or also a power failure",
        setting="durable",
        choices=("process", "power"),
    ),
    Key(
        path="log.database",
        kind="database",
        about="keep the log in this PostgreSQL database instead of a file of this machine, so that several servers and "
        "workers can share it (see [many machines](machines.md))",
        setting="database",
        secret=True,
    ),
    Key(
        path="log.database_password_file",
        kind="path",
        about="a file whose first line is the password for it; else `PGPASSWORD`, `PGPASSFILE` or `~/.pgpass` count",
        setting="database_password_file",
    ),
)
BY_PATH = {key.path: key for key in KEYS}
TAKES: dict[Kind, str] = {
    "text": "text", "path": "a path", "number": "a whole number", "time": "seconds, a time like 15m or 24h, or never",
    "days": "days, or never", "flag": "true or false", "texts": "a list of texts", "paths": "a list of paths",
    "table": "a table of texts", "places": "a table of paths", "command": "a command line, or a list of its words",
    "values": "a table of texts, true and false", "commands": "a table of command lines",
    "addresses": "a list of addresses that begin with https:// (or http://)",
    "signing_secret": "whsec_ and the base64 of 24 to 64 random bytes",
    "database": "an address like postgresql://role@host/name",
}  # fmt: skip


class Wrong(Exception):
    """A value that its key does not take: what is wrong with it, and what would be right (``; …``, or nothing)."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem + remedy)
        self.problem = problem
        self.remedy = remedy


def convert(key: Key, value: object) -> Any:
    """``value`` as the setting wants it. Raises ``Wrong``."""
    name = key.path.rpartition(".")[2]
    received = "a secret" if key.secret else repr(value)
    match key.kind:
        case "flag" if isinstance(value, bool):
            return value
        case "number" if isinstance(value, int) and not isinstance(value, bool):
            if value < key.least or (key.most is not None and value > key.most):
                upper = f" and at most {key.most}" if key.most is not None else ""
                raise Wrong(f"'{name}' must be at least {key.least}{upper}, not {value}")
            return value
        case "time" | "days":
            return _time(name, key.kind, value)
        case "text" | "path" if isinstance(value, str) and value.strip():
            if key.choices and value not in key.choices:
                remedy = hint(value, key.choices) or f"; use one of {', '.join(key.choices)}"
                raise Wrong(f"unknown {name} '{value}'", remedy)
            return value
        case "texts" | "paths":
            entries = cast("list[object]", value) if isinstance(value, list) else [value]
            if all(isinstance(one, str) and one.strip() for one in entries):
                words = tuple(cast("list[str]", entries))
                for word in words if key.choices else ():
                    if word not in key.choices:
                        remedy = hint(word, key.choices) or f"; use one of {', '.join(key.choices)}"
                        raise Wrong(f"'{name}' knows no '{word}'", remedy)
                return words
        case "addresses":
            return _addresses(name, value)
        case "signing_secret" if isinstance(value, str):
            try:
                secret_key(value)
            except ValueError:
                pass
            else:
                return value
            raise Wrong(f"'{name}' must be {TAKES[key.kind]}", "; make one with: echo whsec_$(openssl rand -base64 32)")
        case "database" if isinstance(value, str):
            try:
                DatabaseAddress(value)
            except ConfigError as fault:
                raise Wrong(f"'{name}' cannot be used: {fault}") from None
            return value
        case "command":
            return _command(name, value)
        case "commands" if isinstance(value, dict):
            lines = cast("dict[object, object]", value)
            for kind in lines:
                if kind not in HOOKED_EVENTS:
                    remedy = hint(str(kind), HOOKED_EVENTS) or f"; use one of {', '.join(HOOKED_EVENTS)}"
                    raise Wrong(f"'{name}' knows no event '{kind}'", remedy)
            return {str(kind): _command(name, line) for kind, line in lines.items()}
        case "values" if isinstance(value, dict):
            settings = cast("dict[object, object]", value)
            if all(isinstance(setting, str | bool) for setting in settings.values()):
                return {str(id): setting for id, setting in settings.items()}
        case "table" | "places" if isinstance(value, dict):
            pairs = cast("dict[object, object]", value)
            if all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in pairs.values()):
                return {str(one): str(text) for one, text in pairs.items()}
        case _:
            pass
    raise Wrong(f"'{name}' must be {TAKES[key.kind]}, not {received}")


def _addresses(name: str, value: object) -> tuple[str, ...]:
    entries = cast("list[object]", value) if isinstance(value, list) else [value]
    for number, entry in enumerate(entries, 1):
        problem = address_problem(entry) if isinstance(entry, str) else "it must be text"
        if problem:
            raise Wrong(f"'{name}': address {number} cannot be used: {problem}")
    return tuple(cast("list[str]", entries))


def _command(name: str, value: object) -> tuple[str, ...]:
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError as fault:
        raise Wrong(f"'{name}' is not a command line: {str(fault).lower()}") from None
    if (
        isinstance(words, list)
        and words
        and all(isinstance(word, str) and word for word in cast("list[object]", words))
    ):
        return tuple(cast("list[str]", words))
    raise Wrong(f"'{name}' must be {TAKES['command']}, not {value!r}")


def _time(name: str, kind: Kind, value: object) -> float | None:
    if value is None or value == "never":
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    if kind == "time" and isinstance(value, str) and (match := _TIME.fullmatch(value.strip())):
        seconds = float(match.group(1)) * UNITS[match.group(2) or "s"]
        if seconds > 0:
            return seconds
    raise Wrong(f"'{name}' must be {TAKES[kind]}, not {value!r}")


_HEAD = """\
# Stagedoor's configuration. Commented lines show the default, or how a key is written.
# stagedoor config check finds mistakes, stagedoor config show prints the values in force.
"""
_EXAMPLES: dict[str, str] = {
    "server.hosts": "[stagedoor.example.org]", "server.tls_cert": "cert.pem", "server.tls_key": "key.pem",
    "workspaces.roots": "[~/projects]", "workspaces.trusted_folders": "[~/projects/mine]",
    "workspaces.push": "['git@example.org:me/']",
    "workspaces.clone": "['https://example.org/team/']",
    "workspaces.projects": "{site: ~/projects/site}", "policy.file": "policy.yaml",
    "policy.protected": "[deploy/**]",
    "hooks.beforeToolCall": "./approve-tool.sh", "hooks.afterToolCall": "./log-tool.sh",
    "notify.webhooks": "[https://example.org/hook]", "notify.webhook_secret": f"whsec_{'A' * 32}",
    "notify.ntfy": "[https://ntfy.sh/a-name-nobody-guesses]", "notify.ntfy_token": "tk_something",
    "notify.push_contact": "mailto:you@example.org", "notify.push_hosts": "[push.example.org]",
    "hooks.onEvent": "{turn_completed: ./notify.sh}",
    "machine.name": "box3", "machine.labels": "[gpu, 'team:blue']",
    "log.database": "postgresql://stagedoor@db.example.org/stagedoor",
    "log.database_password_file": "database.password",
    "agents.default": "understudy", "agents.*.acp": "[my-agent, --acp]",
    "agents.*.modes": "{supervised: ask, autonomous: auto}", "agents.*.options": "{effort: high}",
    "agents.*.install": "npm install -g my-agent", "agents.*.title": "My agent",
    "agents.*.command": "~/bin/understudy", "agents.*.model": "large", "agents.*.effort": "high",
    "agents.*.driver": "acp", "agents.*.args": "[--flag, value]", "agents.*.env": "{NAME: value}",
    "agents.*.sandbox": "readOnly", "agents.*.profile": "sandbox.yaml", "agents.*.confine": "workspace",
    "agents.*.confine_write": "[~/.npm]", "agents.*.confine_hide": "[~/.ssh]",
    "agents.*.trusted_folders": "[~/projects/mine]", "agents.*.auto_accept": "[read_file, find_files]",
}  # fmt: skip
_ANY_AGENT = "understudy"


def template() -> str:
    """A file that changes nothing until something in it is uncommented."""
    out, open_sections = [_HEAD], list[str]()
    for key in KEYS:
        *sections, name = key.path.replace("*", _ANY_AGENT).split(".")
        if sections != open_sections:
            shared = 0
            while shared < min(len(sections), len(open_sections)) and sections[shared] == open_sections[shared]:
                shared += 1
            if not shared:
                out.append("")
            out += [f"#{'  ' * depth} {sections[depth]}:" for depth in range(shared, len(sections))]
            open_sections = sections
        line = f"#{'  ' * len(sections)} {name}: {example(key)}"
        out.append(f"{line:<44}  # {_plain(key.about)}" + (f" ({', '.join(key.choices)})" if key.choices else ""))
    return "\n".join(out) + "\n"


def table() -> str:
    """Every key as a row in Markdown."""
    rows = ["| key | takes | default | what it is for |", "|---|---|---|---|"]
    for key in KEYS:
        takes = " ".join(f"`{one}`" for one in key.choices) or TAKES[key.kind]
        default = as_written(key.path, default_of(key))
        cell = f"`{default}`" if default else ""
        rows.append(f"| `{key.path.replace('*', 'NAME')}` | {takes} | {cell} | {key.about} |")
    return "\n".join(rows) + "\n"


def default_of(key: Key) -> Any:
    if key.path == "agents.*.skip_permissions":
        return False
    if "*" in key.path:
        return getattr(AgentSettings(), key.path.rpartition(".")[2], None)
    room, _, name = key.setting.rpartition(".")
    return getattr(Settings().limits if room else Settings(), name)


def example(key: Key) -> str:
    """A value for the key as it is written: its default, or one that shows how."""
    return _EXAMPLES.get(key.path) or as_written(key.path, default_of(key)) or (key.choices[0] if key.choices else "")


def as_written(path: str, value: Any) -> str:
    """A value as it is written in the file; empty where nothing is said."""
    kind = BY_PATH[path].kind if path in BY_PATH else "text"
    match value:
        case None:
            return "never" if kind in ("time", "days") else ""
        case bool():
            return "true" if value else "false"
        case float() if kind == "time":
            unit = next(unit for unit in ("d", "h", "m", "s") if value % UNITS[unit] == 0 or unit == "s")
            return f"{value / UNITS[unit]:g}{unit}"
        case float():
            return f"{value:g}"
        case Mapping():
            pairs = cast("Mapping[str, str]", value)
            return f"{{{', '.join(f'{name}: {one}' for name, one in pairs.items())}}}" if pairs else ""
        case tuple() | list():
            entries = cast("Sequence[str]", value)
            return f"[{', '.join(entries)}]" if entries else ""
        case _:
            return str(value)


def _plain(text: str) -> str:
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text.replace("`", ""))
