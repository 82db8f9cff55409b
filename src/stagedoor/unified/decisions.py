"""Answers to a permission request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

import msgspec

from .events import By, PermissionRequest, PermissionResolved, Remember


class Allow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="allow"):
    """Let the tool run, with ``updated_input`` in place of its own where the agent can do that.

    ``remember``: ask again next time, not again in this session, or never again.
    """

    updated_input: dict[str, Any] | None = None
    remember: Remember = "once"


class Deny(msgspec.Struct, frozen=True, tag="deny"):
    """Refuse. The agent is told ``message`` and goes on, unless ``interrupt`` ends its turn."""

    message: str = ""
    interrupt: bool = False


Decision: TypeAlias = Allow | Deny
CanUseTool: TypeAlias = Callable[[PermissionRequest], Decision | Awaitable[Decision]]

INTERRUPTED = Deny("the turn was interrupted")
WITHDRAWN = Deny("the agent waits for no answer any more")


def resolved(request_id: str, decision: Decision, by: By, why: str = "") -> PermissionResolved:
    """The decision as an event; ``why`` an approval was given."""
    return PermissionResolved(
        request_id=request_id,
        decision="allow" if isinstance(decision, Allow) else "deny",
        remember=decision.remember if isinstance(decision, Allow) else "once",
        by=by,
        message=decision.message if isinstance(decision, Deny) else why,
    )


class Ask(Protocol):
    """Decides one question; never raises, and denies when in doubt."""

    async def __call__(self, request: PermissionRequest) -> Decision: ...
