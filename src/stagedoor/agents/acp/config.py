"""How a session with an ACP agent is set up, and how an agent departs from the letter of the protocol."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from stagedoor.wire.permission import PermissionBehavior

from .commands import McpServer, McpServerStdio
from .requests import (
    CreateElicitation,
    CreateTerminal,
    PermissionKind,
    PermissionOption,
    ReadTextFile,
    RequestPermission,
    WriteTextFile,
)


class AcpProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent does differently, as a value its own package gives; no agent is named here.

    The default is an agent without peculiarities.

    ``tool_name_in_id``: a pattern whose first group is the tool's name in a ``toolCallId``.
    ``mode_prefix``: message text that begins so is a change of mode in disguise.
    ``undeclared_writes_are_echoes``: it sends ``fs/write_text_file`` though we did not offer it, after having written
    the file itself; such a request is acknowledged and nothing is written.
    ``replays_after_load``: most of a loaded session is replayed after the answer to ``session/load``, up to the list
    of commands; a prompt has to wait for that, at most so many seconds.
    ``missing_files_are_empty``: a missing file is answered as an empty one, because an error spoils creating it.
    ``broad_options``: permission options to choose only when there is no narrower one of the same kind.
    ``begins_turns``: it works without a prompt, too; what it does then is not late.
    ``tool_list``: a request of its own that it answers with ``{tools: [{name, enabled}]}``.
    """

    tool_name_in_id: str | None = None
    mode_prefix: str | None = None
    undeclared_writes_are_echoes: bool = False
    replays_after_load: float = 0.0
    missing_files_are_empty: bool = False
    broad_options: tuple[str, ...] = ()
    begins_turns: bool = False
    tool_list: str = ""

    def tool_name(self, tool_call_id: str) -> str | None:
        """The tool's own name where the id contains it."""
        if self.tool_name_in_id is None:
            return None
        match = re.match(self.tool_name_in_id, tool_call_id)
        return match.group(1) if match else None


class AnsweredQuestion(msgspec.Struct, frozen=True):
    """An option, and what the user answered to the agent's own questions, by their number from ``"0"``. It goes beside
    the outcome, where some agents look for it; the protocol itself has no place for it."""

    option: PermissionOption
    answers: Mapping[str, str]


PermissionAnswer: TypeAlias = PermissionKind | PermissionOption | AnsweredQuestion | PermissionBehavior | None
"""A kind of answer, one of the offered options itself, the same with answers, one of the four behaviours, or None for
``cancelled``."""

AskPermission: TypeAlias = Callable[[RequestPermission], PermissionAnswer | Awaitable[PermissionAnswer]]
Elicit: TypeAlias = Callable[[CreateElicitation], Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None]
"""Returns what the user filled in, or None to decline."""


ServedRequest: TypeAlias = ReadTextFile | WriteTextFile | CreateTerminal
Authorize: TypeAlias = Callable[[ServedRequest], Awaitable[str]]
"""Returns why this is not served; empty when it may be. Paths are real ones: links are followed."""


Host: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""Carries out a method of the protocol (``fs/write_text_file``) with these parameters. ``None``: nobody is there who
could, so we do it ourselves. Raises :class:`~stagedoor.agents.acp.hosted.HostRefused`."""


class AcpSessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One session.

    ``mode``, ``model`` and ``effort`` are values the agent offers; ``options`` are its config options by id.
    ``can_use_tool`` decides about tool calls; each question has its own task, and a plain function its own thread.
    Without it, after ``permission_timeout`` seconds, or when it raises, the answer is a refusal. ``authorize`` decides
    about each file and terminal that we serve, wherever the file is; without it, all in the session's folders is served
    and nothing else. ``replay``: a resumed session is played back first, where the agent offers both.
    """

    mcp_servers: tuple[McpServer, ...] = ()
    over_pipes: Mapping[str, McpServerStdio] = {}
    """What stands in for a server over HTTP, by its name, where the agent only speaks to those that it starts."""
    ready: Callable[[], Awaitable[object]] | None = None
    """Awaited between the opening of the session and its first prompt."""
    add_dirs: tuple[str, ...] = ()
    mode: str | None = None
    model: str | None = None
    effort: str | None = None
    options: Mapping[str, str | bool] = {}
    can_use_tool: AskPermission | None = None
    permission_timeout: float | None = None
    elicit: Elicit | None = None
    authorize: Authorize | None = None
    host: Host | None = None
    """A client of ours with files and terminals of its own: they are used in place of ours, once it is decided that
    they may be."""
    replay: bool = False
    meta: Mapping[str, Any] | None = None
