"""How a session with an ACP agent is set up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from .commands import McpServer
from .requests import CreateElicitation, PermissionKind, PermissionOption, RequestPermission

PermissionAnswer: TypeAlias = PermissionKind | PermissionOption | None
"""A kind of answer, one of the offered options itself, or None for ``cancelled``."""

AskPermission: TypeAlias = Callable[[RequestPermission], PermissionAnswer | Awaitable[PermissionAnswer]]
Elicit: TypeAlias = Callable[[CreateElicitation], Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None]
"""Returns what the user filled in, or None to decline."""


class AcpConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One session.

    ``mode`` and ``model`` are ids the agent offers; ``options`` are its config options by id. ``request_permission``
    decides about tool calls, in a task of its own for each question; without it, after ``permission_timeout`` seconds,
    or when it raises, the answer is a refusal. ``replay``: a resumed session is played back first, where there is a
    choice.
    """

    mcp_servers: tuple[McpServer, ...] = ()
    additional_directories: tuple[str, ...] = ()
    mode: str | None = None
    model: str | None = None
    options: Mapping[str, str | bool] = {}
    request_permission: AskPermission | None = None
    permission_timeout: float | None = None
    elicit: Elicit | None = None
    replay: bool = False
    meta: Mapping[str, Any] | None = None
