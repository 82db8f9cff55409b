"""What the catalog knows of an agent. Filled in by one module per agent beside this one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from ..unified.capabilities import Capabilities
from ..unified.decisions import Ask
from ..unified.events import Event
from ..unified.options import Options
from ..unified.recorded import OneSided, Recorded


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


class Dictionary(Protocol):
    """Native event → unified events. Total and pure; state only for what an agent spreads over several messages."""

    def translate(self, native: Any) -> Iterable[Event]: ...


class Replayed(Protocol):
    """An agent's protocol as far as replaying a recording needs it.

    One that is spoken to also has ``overhear(message)``, which reads our side of a recording back into commands.
    """

    def receive(self, message: bytes) -> Iterable[Any]: ...
    def receive_eof(self) -> Iterable[Any]: ...


class Stored(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
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
class Driver:
    """One way to run an agent.

    ``open(prompt, options, ask, dictionary)`` starts or resumes the native session with its first prompt. It gets the
    dictionary because a question of the agent is translated with what the dictionary has already heard.
    """

    name: str
    capabilities: Capabilities
    dictionary: Callable[[], Dictionary]
    protocol: Callable[[], Replayed]
    open: Callable[[str, Options, Ask, Any], Awaitable[NativeSession]]
    questions: tuple[type, ...] = ()
    """The native events that ask for permission; the dictionary's ``request`` puts one into our words."""
    recorded: Callable[[Any], Recorded] = OneSided
    """Given the dictionary: what a recording tells of prompts and answers."""


@dataclass(frozen=True)
class Agent:
    name: str
    title: str
    install: str
    drivers: Mapping[str, Driver]
    choose: Callable[[Options], str]
    """The driver for these options when the caller names none."""
    history: Callable[[str, Mapping[str, str] | None], Iterable[Stored]]
    """The sessions stored for a directory; the environment says where the agent keeps them."""
    inspect: Callable[[Mapping[str, str] | None], Awaitable[Presence]]
    """Installed? Where? Which version? Signed in?"""
    tools: tuple[str, ...] = ()
    """Its tools for files, commands and the web, by its own names."""
