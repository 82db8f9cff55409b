"""A policy before the person: what it allows or denies is decided, the rest is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from ..permissions.policy import Policy
from ..unified.decisions import Allow, Decision, Deny
from ..unified.events import PermissionRequest


class Policing:
    """A ``can_use_tool`` callback. Without anybody to ask, what the policy leaves open is denied."""

    def __init__(
        self, policy: Policy, cwd: str, ask: Callable[[PermissionRequest], Awaitable[Decision]] | None
    ) -> None:
        self._policy = policy
        self._cwd = str(Path(cwd).resolve())
        self._ask = ask

    async def __call__(self, request: PermissionRequest) -> Decision:
        ruling = self._policy.decide(request, self._cwd, home=str(Path.home()))
        if ruling.action == "allow":
            return Allow()
        if ruling.action == "deny":
            return Deny(ruling.message)
        if self._ask is None:
            return Deny(f"{ruling.why}, and nobody can be asked")
        return await self._ask(request)
