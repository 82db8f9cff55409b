"""The stances: every tier, mode, policy, list and answer under which the deeds are tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from ...permissions.policy import Policy
from ...permissions.rules import Rule
from ...unified.options import Approval, Sandbox, Tier
from .deeds import Deed

Answer = Literal["allow", "deny", "raise", "late"]
"""What ``can_use_tool`` does. ``late``: it allows, after the deadline."""
Beginning = Literal["new", "resumed", "forked", "remembered"]
"""``remembered``: one command was allowed for the session before."""
Promise = Literal[
    "nothing", "edits", "everything", "all asked", "danger asked", "workspace", "all denied", "by policy denied",
    "by policy allowed", "no commands", "only reading", "edits, else denied", "one remembered, else denied",
]  # fmt: skip
DEADLINE = 4.0


class Stance(msgspec.Struct, frozen=True):
    """One row of the tables: how the question is answered, and what was promised."""

    name: str
    promise: Promise
    answer: Answer = "allow"
    deeds: tuple[Deed, ...] = ()
    """Only these are tried; none: all."""


class Scene(msgspec.Struct, frozen=True):
    """One session, with a turn for each stance."""

    stances: tuple[Stance, ...]
    options: Mapping[str, Any] = {}
    beginning: Beginning = "new"
    core: bool = False
    """It is among those that ``doctor --deep`` plays."""

    @property
    def name(self) -> str:
        return self.stances[0].name


_TIERS: dict[Tier, Promise] = {"dry-run": "nothing", "supervised": "edits", "autonomous": "everything"}
_APPROVALS: dict[Approval, Promise] = {
    "ask": "all asked", "askDangerous": "danger asked", "autoEdit": "edits", "autoAll": "everything",
}  # fmt: skip
_SANDBOXES: dict[Sandbox, Promise] = {
    "none": "everything", "readOnly": "nothing", "workspaceWrite": "workspace", "fullAccess": "everything",
}  # fmt: skip
_ANSWERS = (
    Stance("callback denies", "all denied", "deny"),
    Stance("callback raises", "all denied", "raise"),
    Stance("callback is late", "all denied", "late", ("write", "command", "mcp")),
)
_NO_SHELL = Policy(rules=(Rule(action="deny", tool=("shell",)),))

SCENES: tuple[Scene, ...] = (
    *(
        Scene((Stance(f"tier {tier}", _TIERS[tier]),), {"tier": tier}, core=tier != "autonomous")
        for tier in get_args(Tier)
    ),
    *(
        Scene((Stance(f"approval {mode}", _APPROVALS[mode]),), {"approval": mode})
        for mode in get_args(Approval)
        if mode != "ask"
    ),
    Scene((Stance("approval ask", "all asked"), *_ANSWERS), {"approval": "ask"}, core=True),
    *(
        Scene((Stance(f"sandbox {mode}", _SANDBOXES[mode]),), {"tier": "autonomous", "sandbox": mode})
        for mode in get_args(Sandbox)
    ),
    Scene((Stance("policy denies", "by policy denied"),), {"tier": "autonomous", "policy": Policy(default="deny")}),
    Scene((Stance("policy allows", "by policy allowed"),), {"approval": "ask", "policy": Policy(default="allow")}),
    Scene((Stance("policy asks", "all asked"),), {"tier": "autonomous", "policy": Policy(default="ask")}),
    Scene(
        (Stance("policy denies shell, allowed_tools lists it", "no commands"),),
        {"tier": "autonomous", "policy": _NO_SHELL, "allowed_tools": ("shell", "read_file", "write_file", "edit_file")},
        core=True,
    ),
    Scene(
        (Stance("allowed_tools read_file", "only reading"),), {"tier": "autonomous", "allowed_tools": ("read_file",)}
    ),
    Scene((Stance("disallowed_tools shell", "no commands"),), {"tier": "autonomous", "disallowed_tools": ("shell",)}),
    Scene((Stance("supervised, resumed", "edits, else denied", "deny"),), {"tier": "supervised"}, "resumed"),
    Scene((Stance("supervised, forked", "edits, else denied", "deny"),), {"tier": "supervised"}, "forked"),
    Scene((Stance("dry-run, resumed", "nothing"),), {"tier": "dry-run"}, "resumed"),
    Scene(
        (Stance("one command remembered", "one remembered, else denied", "deny"),), {"approval": "ask"}, "remembered"
    ),
)
