"""The configuration: a file, over it the environment, over that flags. All mistakes are told at once, with lines.

``server: {port: 16180}`` in the file, ``STAGEDOOR_SERVER__PORT=16180`` in the environment, ``--port 16180`` as a flag.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast, get_args

import msgspec
import yaml

from stagedoor import catalog
from stagedoor.drivers.acp.configured import KEY, agent_of, entries_in
from stagedoor.drivers.agent import Agent
from stagedoor.errors import ConfigError, NotSupported, PolicyError
from stagedoor.permissions.policy_file import load_policy
from stagedoor.register import CONFIG_NAME as NAME
from stagedoor.register import config_files
from stagedoor.unified.capabilities import require
from stagedoor.unified.options import Options, Sandbox, without_modes
from stagedoor.unified.tool_lists import unknown_tool
from stagedoor.yaml_with_lines import Mistakes, Where, hint, yaml_tree

from .keys import BY_PATH, KEYS, Key, Wrong, convert
from .profile import CUSTOM, read_profile
from .settings import AgentSettings, Limits, Settings

PREFIX = "STAGEDOOR_"


class Value(msgspec.Struct, frozen=True):
    """One value in force, and where it comes from: the default, a line of the file, a variable or a flag."""

    path: str
    value: Any
    origin: str
    secret: bool = False


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    settings: Settings
    file: Path | None
    values: tuple[Value, ...]
    warnings: tuple[str, ...] = ()


def load(
    path: Path | None = None, *, env: Mapping[str, str] = os.environ, flags: Mapping[str, Any] | None = None
) -> Loaded:
    """What is in force. ``flags``: dotted key → value; those that are ``None`` were not given.

    Raises ``ConfigError`` with every mistake on a line of its own.
    """
    file = find(path, env)
    text = "" if file is None else _read(file)
    return parse(text, source=str(file or NAME), file=file, env=env, flags=flags or {})


def find(path: Path | None = None, env: Mapping[str, str] = os.environ) -> Path | None:
    """The file that counts. Raises ``ConfigError`` when one was named that is not there."""
    named = path or (Path(env["STAGEDOOR_CONFIG"]) if env.get("STAGEDOOR_CONFIG") else None)
    if named is not None:
        if not named.is_file():
            raise ConfigError(f"{named}: file not found; create it with stagedoor config edit")
        return named
    return next((place for place in config_files(env) if place.is_file()), None)


def parse(
    text: str,
    *,
    source: str = NAME,
    file: Path | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Loaded:
    tree, lines = yaml_tree(text, source, ConfigError)
    reading = _Reading(source, Mistakes(lines), (file or Path(source)).parent)
    reading.take_file(tree)
    reading.take_environment(env or {})
    reading.take_flags(flags or {})
    settings = reading.settings()
    if reading.wrong:
        raise ConfigError("\n".join(reading.wrong))
    return Loaded(settings=settings, file=file, values=_in_force(reading.values), warnings=tuple(reading.warnings))


class _Reading:
    def __init__(self, source: str, mistakes: Mistakes, folder: Path) -> None:
        self.values: dict[str, Value] = {}
        self.warnings: list[str] = []
        self._source = source
        self._mistakes = mistakes
        self._folder = folder
        self._others: list[str] = []
        self._added: frozenset[str] = frozenset()
        self._at: dict[str, Where] = {}

    @property
    def wrong(self) -> list[str]:
        return [*(f"{self._source}: {mistake}" for mistake in self._mistakes.messages), *self._others]

    def take_file(self, tree: object) -> None:
        if tree is None:
            return
        if not isinstance(tree, dict):
            self._mistakes.add((), "a configuration must be a table with sections such as 'server:'")
            return
        self._added = frozenset(name for name, _ in entries_in(cast("object", tree)))
        self._table(cast("dict[object, object]", tree), ())

    def take_environment(self, env: Mapping[str, str]) -> None:
        for name in sorted(env):
            if not name.startswith(PREFIX) or "__" not in name:
                continue
            path = name.removeprefix(PREFIX).lower().replace("__", ".")
            key, known = _key(path, self._added)
            if key is None:
                self._others.append(f"{name}: unknown key{hint(path, known)}")
                continue
            self._put(key, path, _from_text(key, env[name]), name, Path.cwd())

    def take_flags(self, flags: Mapping[str, Any]) -> None:
        for path, value in flags.items():
            key, _ = _key(path, self._added)
            if key is None:
                raise KeyError(path)
            if value is not None:
                plain = list(cast("Iterable[object]", value)) if isinstance(value, tuple) else value
                self._put(key, path, plain, f"--{path.rpartition('.')[2].replace('_', '-')}", Path.cwd())

    def _table(self, table: dict[object, object], where: Where) -> None:
        for name, value in table.items():
            at = (*where, str(name))
            path = ".".join(map(str, at))
            key, known = _key(path, self._added)
            if key is not None:
                self._put(key, path, value, f"{self._source} line {self._mistakes.line(at)}", self._folder, at)
            elif _is_section(at, self._added):
                if isinstance(value, dict):
                    self._table(cast("dict[object, object]", value), at)
                elif value is not None:
                    self._mistakes.add(at, f"'{name}' is a section and must be a table", "; indent its keys under it")
            else:
                what = "agent" if where == ("agents",) else "key"
                beside = {".".join(one.split(".")[: len(at)]) for one in known}
                near = hint(path, beside) or hint(path, known)
                if what == "agent":
                    near = (
                        hint(str(name), catalog.names()) or "; one of yours needs its command (acp: [my-agent, --acp])"
                    )
                self._mistakes.add(at, f"unknown {what} '{path if what == 'key' else name}'", near)

    def _put(self, key: Key, path: str, value: object, origin: str, folder: Path, at: Where = ()) -> None:
        try:
            fields = convert(key, value)
        except Wrong as fault:
            self._complain(origin, at, fault.problem, fault.remedy)
            return
        match key.kind:
            case "path":
                fields = _placed(fields, folder)
            case "command" if key.setting:  # a hook is our program; an agent's is looked for as the agent does
                fields = _placed_command(fields, folder)
            case "commands":
                fields = {name: _placed_command(words, folder) for name, words in fields.items()}
            case "paths":
                fields = tuple(_placed(one, folder) for one in fields)
            case "places":
                fields = {name: _placed(one, folder) for name, one in fields.items()}
            case _:
                pass
        section, _, rest = path.partition(".")
        if section == "agents" and "." in rest:
            name, _, last = rest.partition(".")
            path = f"agents.{name if name in self._added else catalog.canonical_name(name)}.{last}"
        self.values[path] = Value(path, fields, origin, key.secret)
        self._at[path] = at

    def _complain(self, origin: str, at: Where, problem: str, remedy: str = "") -> None:
        if at:
            self._mistakes.add(at, problem, remedy)
        else:
            self._others.append(f"{origin}: {problem}{remedy}")

    def settings(self) -> Settings:
        chosen: dict[str, Any] = {}
        limits: dict[str, int] = {}
        for path, value in self.values.items():
            setting = BY_PATH[path].setting if path in BY_PATH else ""
            if setting.startswith("limits."):
                limits[setting.removeprefix("limits.")] = value.value
            elif setting:
                chosen[setting] = value.value
        entries = AgentEntries({path: value.value for path, value in self.values.items()})
        agents = entries.settings()
        self.warnings += entries.warnings
        for path, problem, remedy in entries.mistakes:
            self._blame(path, problem, remedy)
        if "default_agent" in chosen:
            self._check_default(chosen, agents)
        for one, other in (("server.tls_cert", "server.tls_key"), ("server.tls_key", "server.tls_cert")):
            if one in self.values and other not in self.values:
                self._blame(one, f"'{one}' needs '{other}' too")
        for path in ("server.tls_cert", "server.tls_key"):
            if path in self.values and not Path(self.values[path].value).is_file():
                self._blame(path, f"file {self.values[path].value} not found")
        if chosen.get("webhooks") and "webhook_secret" not in chosen:
            self._blame(
                "notify.webhooks",
                "'notify.webhooks' needs 'notify.webhook_secret' too",
                "; receivers cannot know us without (make one with: echo whsec_$(openssl rand -base64 32))",
            )
        if "policy" in chosen:
            try:
                load_policy(Path(chosen["policy"]))
            except PolicyError as fault:
                self._others += str(fault).splitlines()
        for root in chosen.get("roots", ()):
            if not Path(root).is_dir():
                self.warnings.append(f"{self.values['workspaces.roots'].origin}: {root} is not a folder yet")
        return Settings(**chosen, agents=agents, limits=Limits(**limits))

    def _check_default(self, chosen: dict[str, Any], agents: Mapping[str, Any]) -> None:
        try:
            name = chosen["default_agent"]
            chosen["default_agent"] = name = name if name in self._added else catalog.canonical_name(name)
        except NotSupported:
            unknown = chosen["default_agent"]
            self._blame("agents.default", f"unknown agent '{unknown}'", hint(unknown, (*catalog.names(), *self._added)))
            return
        if name in agents and not agents[name].enabled:
            self._blame("agents.default", f"{name} is the default agent but is switched off (enabled: false)")

    def _blame(self, path: str, problem: str, remedy: str = "") -> None:
        """A mistake that shows only when all values have been read."""
        self._complain(self.values[path].origin, self._at[path], problem, remedy)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(f"cannot read {file}: {fault}") from fault


def _key(path: str, added: frozenset[str]) -> tuple[Key | None, list[str]]:
    """The key at ``path``, and what else could have been meant."""
    known = [key.path for key in KEYS]
    if path in BY_PATH and "*" not in path:
        return BY_PATH[path], known
    section, _, rest = path.partition(".")
    name, dot, last = rest.partition(".")
    if section == "agents" and dot and _is_agent(name, added):
        others = () if name in added else _DESCRIBE
        fitting = [one for one in known if one.startswith("agents.*") and one.removeprefix("agents.*.") not in others]
        return BY_PATH.get(f"agents.*.{last}"), [one.replace("*", name) for one in fitting]
    return None, known


def _is_agent(name: str, added: frozenset[str]) -> bool:
    """``added``: those of this very file; what another one added does not count."""
    return name in added or (name in {*catalog.names(), *catalog.ALIASES} and not catalog.is_configured(name))


def _is_section(at: Where, added: frozenset[str]) -> bool:
    if at[0] == "agents":
        return len(at) == 1 or (len(at) == 2 and _is_agent(str(at[1]), added))
    path = ".".join(map(str, at))
    return any(key.path.startswith(f"{path}.") for key in KEYS)


def _from_text(key: Key, text: str) -> object:
    """What a variable says: lists may be written with commas, tables and all else as YAML would be."""
    if key.kind in ("text", "path", "signing_secret", "database") or (
        key.kind == "command" and not text.lstrip().startswith("[")
    ):
        return text
    if key.kind in ("texts", "paths", "addresses") and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        value: object = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return value


def _placed(written: str, folder: Path) -> str:
    return os.path.normpath(folder / Path(written).expanduser())


def _placed_command(words: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    return (_placed(words[0], folder) if "/" in words[0] else words[0], *words[1:])


def _in_force(chosen: Mapping[str, Value]) -> tuple[Value, ...]:
    """Every value in force: defaults where nothing is set; an agent's keys only where they are set."""
    default = Settings()
    out: list[Value] = []
    for key in KEYS:
        if "*" in key.path:
            continue
        if key.path in chosen:
            out.append(chosen[key.path])
            continue
        room, name = (default.limits, key.setting[7:]) if key.setting.startswith("limits.") else (default, key.setting)
        out.append(Value(key.path, getattr(room, name), "default"))
    return (*out, *(chosen[path] for path in sorted(chosen) if path.startswith("agents.") and path != "agents.default"))


_DESCRIBE = ("acp", "modes", "options", "install", "title")
"""What only an agent has that the configuration adds."""
_AS_THEY_ARE = (
    "enabled",
    "model",
    "effort",
    "driver",
    "tier",
    "approval",
    "auto_accept",
    "trusted_folders",
    "confine",
    "confine_write",
    "confine_hide",
)


_PROMISES = ("sandbox", "confine", "tier", "approval", "driver")


class AgentEntries:
    """``values``: dotted key → value. ``mistakes``: a key, what is wrong with it, and what would be right."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.mistakes: list[tuple[str, str, str]] = []
        self.warnings: list[str] = []
        self._entries: dict[str, dict[str, Any]] = {}
        for path, value in values.items():
            section, _, rest = path.partition(".")
            name, dot, key = rest.partition(".")
            if section == "agents" and dot:
                self._entries.setdefault(name, {})[key] = value

    def settings(self) -> dict[str, AgentSettings]:
        return {name: self._agent(name, entries) for name, entries in self._entries.items()}

    def _value(self, name: str, entries: Mapping[str, Any]) -> Agent | None:
        """The agent that is meant; ``None``: its description is wrong."""
        if KEY not in entries:
            for key in [key for key in _DESCRIBE if key in entries]:
                self._wrong(name, key, f"'{key}' describes an agent of yours", f"; {name} needs '{KEY}' to be one")
            return catalog.agent(name)
        if name in {*catalog.names(), *catalog.ALIASES} and not catalog.is_configured(name):
            self._wrong(name, KEY, f"{name} is an agent of its own", "; give yours another name")
            return None
        try:
            return catalog.agent(agent_of(name, {key: entries[key] for key in (*_DESCRIBE, "env") if key in entries}))
        except ConfigError as fault:
            self._wrong(name, KEY, str(fault), "")
            return None

    def _agent(self, name: str, entries: Mapping[str, Any]) -> AgentSettings:
        agent = self._value(name, entries)
        if agent is None:
            return AgentSettings()
        fields = dict(without_modes({key: entries[key] for key in _AS_THEY_ARE if key in entries}))
        if KEY in entries:
            fields["acp"] = agent_of(name, {key: entries[key] for key in (*_DESCRIBE, "env") if key in entries})
        env = dict(cast("Mapping[str, str]", entries.get("env", {})))
        if entries.get("command", name) != name:  # its own name is what is looked for anyway, in more places
            fields["command"] = entries["command"]
        if "args" in entries:
            fields["args"] = self._arguments(agent, entries["args"])
        if "sandbox" in entries:
            sandbox = entries["sandbox"]
            own = agent.own_sandboxes.get(sandbox)
            if sandbox == CUSTOM:
                fields |= self._profile(name, entries)
            elif own is not None:
                env = {**own, **env}
            elif sandbox in get_args(Sandbox):
                fields["sandbox"] = sandbox
            else:
                known = (*get_args(Sandbox), *agent.own_sandboxes, CUSTOM)
                remedy = hint(sandbox, known) or f"; use one of {', '.join(known)}"
                self._wrong(name, "sandbox", f"{name} has no sandbox '{sandbox}'", remedy)
        if "profile" in entries and entries.get("sandbox") != CUSTOM:
            self._wrong(name, "profile", "'profile' works only with 'sandbox: custom'", "; set that too")
        if entries.get("skip_permissions"):
            if entries.get("tier", "autonomous") != "autonomous" or "approval" in entries:
                self._wrong(name, "skip_permissions", "'skip_permissions' contradicts tier or approval", "; keep one")
            fields["tier"] = "autonomous"
        if "driver" in entries:
            drivers = agent.drivers
            if entries["driver"] not in drivers:
                remedy = hint(entries["driver"], drivers) or f"; use one of {', '.join(drivers)}"
                self._wrong(name, "driver", f"{name} has no driver '{entries['driver']}'", remedy)
        for tool in entries.get("auto_accept", ()):
            if remedy := unknown_tool(tool, agent.tools, agent.mcp_name):
                self._wrong(name, "auto_accept", f"{name} has no tool '{tool}'", f"; {remedy}")
        if not self.mistakes:
            self._check_promises(agent, fields)
        return AgentSettings(**fields, env=env)

    def _profile(self, name: str, entries: Mapping[str, Any]) -> dict[str, Any]:
        """What a profile amounts to: ``confine`` and its folders."""
        if "profile" not in entries:
            self._wrong(name, "sandbox", "'sandbox: custom' needs 'profile'", "; give the path of its file")
            return {}
        for key in ("confine", "confine_write", "confine_hide"):
            if key in entries:
                self._wrong(name, key, f"'{key}' contradicts 'sandbox: custom'", "; write it into the profile")
        try:
            return read_profile(Path(entries["profile"]))
        except ConfigError as fault:
            self._wrong(name, "profile", str(fault), "")
            return {}

    def _check_promises(self, agent: Agent, fields: Mapping[str, Any]) -> None:
        """What a session with these settings would be refused with is a mistake here."""
        chosen = {key: fields[key] for key in _PROMISES if fields.get(key) is not None}
        if not chosen:
            return
        name, options = agent.name, Options(**chosen)
        driver = options.driver or agent.choose_driver(options)
        try:
            require(options, agent.drivers[driver].capabilities, agent=name, driver=driver)
        except NotSupported as fault:
            blamed = next(key for key in _PROMISES if key in chosen)
            self._wrong(name, blamed, str(fault), "")

    def _arguments(self, agent: Agent, words: tuple[str, ...]) -> tuple[str, ...]:
        name, sorted_out = agent.name, agent.arguments.sort(words)
        if sorted_out.dropped:
            dropped = " ".join(sorted_out.dropped)
            self.warnings.append(f"agents.{name}.args: {dropped} ignored: Stagedoor sets these arguments itself")
        for word, key in sorted_out.misplaced.items():
            self._wrong(name, "args", f"'{word}' cannot be set in 'args'", f"; use the key '{key}' instead")
        return sorted_out.passed

    def _wrong(self, name: str, key: str, problem: str, remedy: str) -> None:
        self.mistakes.append((f"agents.{name}.{key}", problem, remedy))
