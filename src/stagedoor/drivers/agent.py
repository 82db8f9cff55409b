"""What the catalog knows of an agent: one value per agent, filled in by the folder beside this module.

Installed packages bring agents of the same shape through the entry point ``stagedoor.agents``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from ..transports.versions import CheckedVersion, ProvenVersions
from ..trust.project import ProjectPath
from ..unified.capabilities import Capabilities
from ..unified.decisions import Ask
from ..unified.events import Event
from ..unified.options import Options
from ..unified.recording import OneSided, RecordingReader
from ..unified.settings import AgentSetting
from ..unified.tool_lists import MCP, AgentTool, ToolLists, tool_lists
from .transcripts import Transcript

NativeT = TypeVar("NativeT")
"""An agent's native events."""
NativeIn = TypeVar("NativeIn", contravariant=True)
NativeOut = TypeVar("NativeOut", covariant=True)
DictionaryT = TypeVar("DictionaryT")


class NativeSession(Protocol):
    """The shape a session needs of an agent's own session. Agents match it; they never inherit it."""

    @property
    def session_id(self) -> str: ...
    @property
    def received(self) -> Any: ...  # an async iterator of (raw message, native event)
    async def send(self, prompt: str) -> None: ...
    async def interrupt(self) -> None: ...
    async def cancel(self) -> None: ...
    async def close(self) -> None: ...


class Steerable(Protocol):
    """An agent's own session, where its driver can ``steer``."""

    async def steer(self, text: str) -> None: ...


class SessionSettings(Protocol):
    """What can be chosen in a driver's sessions while they run."""

    def read(self, native: Any, options: Options) -> tuple[AgentSetting, ...]: ...
    async def change(self, native: Any, options: Options, name: str, value: str) -> AgentSetting:
        """Set one, by its id or kind; returns it as it stands then. Raises ``BadRequest`` or ``NotAllowed``."""
        ...


class Dictionary(Protocol[NativeIn]):
    """Native event → unified events. Total and pure; state only for what an agent spreads over several messages."""

    def translate(self, native: NativeIn) -> Iterable[Event]: ...


class ReplayProtocol(Protocol[NativeOut]):
    """An agent's protocol as far as replaying a recording needs it.

    One that is spoken to also has ``decode_command(message)``, which reads our side of a recording back into commands.
    """

    def receive(self, message: bytes) -> Iterable[NativeOut]: ...
    def receive_eof(self) -> Iterable[NativeOut]: ...


class StoredSession(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session an agent keeps on disk."""

    agent: str
    session_id: str
    cwd: str = ""
    title: str = ""
    first_prompt: str = ""
    messages: int | None = None
    model: str = ""
    branch: str = ""
    started_ms: int = 0
    updated_ms: int = 0
    tokens: int | None = None
    cost_usd: float | None = None
    path: str = ""


class Presence(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What ``discover`` found of an agent. ``signed_in`` is ``None`` where it cannot be told without a model call."""

    agent: str
    title: str = ""
    installed: bool = False
    executable: str = ""
    version: str = ""
    signed_in: bool | None = None
    problem: str = ""
    fix: str = ""
    drivers: dict[str, Capabilities] = {}


@dataclass(frozen=True)
class Driver(Generic[NativeT, DictionaryT]):
    """One way to run an agent.

    ``open(prompt, options, ask, dictionary)`` starts or resumes the native session with its first prompt. It gets the
    dictionary because a question of the agent is translated with what the dictionary has already read.
    """

    name: str
    capabilities: Capabilities
    dictionary: Callable[[], DictionaryT]
    protocol: Callable[[], ReplayProtocol[NativeT]]
    open: Callable[[str, Options, Ask, DictionaryT], Awaitable[NativeSession]]
    question_types: tuple[type, ...] = ()
    """The native events that ask for permission; the dictionary's ``request`` puts one into our words."""
    recording: Callable[[DictionaryT], RecordingReader] = OneSided
    """What a recording tells of prompts and answers."""
    check_version: Callable[[Options], Awaitable[CheckedVersion]] | None = None
    """Asked before the start; raises ``UnsupportedVersion``. ``None``: there are no versions to tell apart."""
    recognize: Callable[[bytes, Mapping[str, Any]], int] = lambda line, message: 0
    """How surely one line of a recording (its JSON, where it is some) is of this driver's protocol: 0 to 3, and much
    more where it names the agent itself."""
    check: Callable[[Options], None] = lambda options: None
    """Raises ``NotSupported`` for a combination of options that this driver cannot keep, before anything starts."""
    settings: SessionSettings | None = None
    """What can be chosen in its sessions; ``None``: nothing, once they run."""
    models: Callable[[Any], Awaitable[Sequence[str]]] | None = None
    """The models that the program names, where it lets any name pass and fails at the first turn."""


AnyDriver = Driver[Any, Any]


class SortedArguments(msgspec.Struct, frozen=True):
    """A user's arguments for an agent's program."""

    passed: tuple[str, ...] = ()
    """They go to the program."""
    dropped: tuple[str, ...] = ()
    """The driver gives these itself."""
    misplaced: Mapping[str, str] = {}
    """Argument → the configuration key that says the same, and that we would not know of otherwise."""


@dataclass(frozen=True)
class ArgumentRules:
    """Which arguments of its program an agent's driver owns."""

    reserved: Mapping[str, int] = field(default_factory=dict[str, int])
    """Those the driver gives itself → how many words follow each."""
    replaced: Mapping[str, str] = field(default_factory=dict[str, str])
    """Those that would bypass us → the configuration key that says the same to us."""

    def sort(self, words: Sequence[str]) -> SortedArguments:
        passed: list[str] = []
        dropped: list[str] = []
        misplaced: dict[str, str] = {}
        rest = list(words)
        while rest:
            word = rest.pop(0)
            name, joined, _ = word.partition("=")
            if name in self.replaced:
                misplaced[name] = self.replaced[name]
            elif name in self.reserved:
                following = 0 if joined else self.reserved[name]
                dropped += [word, *rest[:following]]
                del rest[:following]
            else:
                passed.append(word)
        return SortedArguments(tuple(passed), tuple(dropped), misplaced)


class Package(msgspec.Struct, frozen=True):
    """The npm package that brings an agent's program, and the version that was proven."""

    name: str
    version: str
    node: str = ""
    """The version of Node.js to run it with, where that must be newer than the one most machines have."""


class ScriptedSettings(msgspec.Struct, frozen=True):
    """How an agent is told to talk to a scripted model and to nobody else."""

    env: Mapping[str, str]
    files: Mapping[str, str] = {}
    """Path below its home → text."""
    once: bool = False
    """The agent keeps its own state in the files: they are written when the home is new, then left alone."""


class ScriptedSetup(msgspec.Struct, frozen=True):
    """How an agent's program is run in tests, with no key and no network."""

    model: str
    """What it is asked for unless the test says otherwise."""
    settings: Callable[[str, Path, str, str, str], ScriptedSettings]
    """``settings(url, home, cwd, model, key)``"""
    shares_cache: bool = False
    """It unpacks much into its cache at the first start: that is kept beside the installed programs."""


class StateFolders(msgspec.Struct, frozen=True):
    """Where an agent keeps its own things. A confined one can write there, but not in the ``settings`` among them: what
    they say is done by the next one, which may not be confined."""

    folders: tuple[str, ...]
    settings: tuple[str, ...] = ()
    """Files, and folders with a trailing slash."""


@dataclass(frozen=True)
class Agent:
    """Everything we know of an agent outside its native library."""

    name: str
    title: str
    install: str
    """The command that installs it."""
    drivers: Mapping[str, AnyDriver]
    choose_driver: Callable[[Options], str]
    """The driver for these options when the caller names none."""
    list_stored: Callable[[str, Mapping[str, str] | None], Iterable[StoredSession]]
    """The sessions stored for a directory; the environment says where the agent keeps them."""
    inspect: Callable[[Mapping[str, str] | None], Awaitable[Presence]]
    """Installed? Where? Which version? Signed in?"""
    read_stored: Callable[[StoredSession, Mapping[str, str]], Iterable[Event]] | None = None
    """A stored session in unified events; ``None``: what it keeps cannot be read."""
    tools: tuple[AgentTool, ...] = ()
    """Its own tools, as the running program offers them (a live test compares). One that is not in it counts as one
    that acts: asked about where the tier asks, and in no list."""
    mcp_name: str = MCP
    """How it names the tool of an MCP server."""
    protected: Mapping[str, str] = field(default_factory=dict[str, str])
    """The files from which it runs something by itself (patterns, see ``permissions.protected``) → what it does."""
    arguments: ArgumentRules = ArgumentRules()
    project_paths: tuple[ProjectPath, ...] = ()
    """What it takes from a project by itself."""
    own_sandboxes: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """A sandbox that the program makes around itself → the environment that asks for it."""
    state: Callable[[Mapping[str, str]], StateFolders] | None = None
    """Its own folders in this environment; ``None``: not known, so it cannot be confined. Whoever gives it also starts
    the agent with ``confinement_of`` its options."""
    package: Package | None = None
    versions: ProvenVersions | None = None
    """The versions of its program that keep every rule of the permission contract."""
    scripted: ScriptedSetup | None = None
    offered_settings: Callable[[Mapping[str, str] | None], Awaitable[tuple[AgentSetting, ...]]] | None = None
    """Starts the program once to see what a session lets one choose; ``None``: that is known only while one runs."""
    transcript: Transcript | None = None
    """How a session of it can continue on another machine; ``None``: it cannot, there it begins a new conversation."""
    keep_lines: bool = False
    """The server keeps the program's own lines in its log: clients from before there was a second agent read them."""

    def tool_lists(self, options: Options) -> ToolLists:
        """What ``allowed_tools`` and ``disallowed_tools`` mean here. Raises ``BadRequest`` for an unknown name."""
        return tool_lists(options, self.tools, agent=self.title, mcp_name=self.mcp_name)
