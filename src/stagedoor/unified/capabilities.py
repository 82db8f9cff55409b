"""What a driver can do, stated. The live suite asserts every line of it, in both directions."""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec

from ..errors import NotSupported
from .options import Options


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``notes`` explains what a plain yes or no would hide, by field name."""

    text_deltas: bool = False
    thinking: bool = False
    plan: bool = False
    subagents: bool = False
    mcp_servers: bool = False
    permissions: Literal["none", "some", "all"] = "none"
    """Which tool calls reach ``can_use_tool``: none, those the agent asks about, or every one that acts."""
    edit_input: bool = False
    deny_message: bool = False
    remember_session: bool = False
    interrupt: bool = False
    steer: bool = False
    resume: bool = True
    fork: bool = False
    max_turns: bool = False
    max_budget: bool = False
    structured_output: bool = False
    images: bool = False
    system_prompt: bool = False
    append_system_prompt: bool = False
    allowed_tools: bool = False
    disallowed_tools: bool = False
    tool_list: bool = False
    """`init.tools` names the tools that its model is offered."""
    dry_run: bool = True
    """The agent changes nothing when it is told so. Where it cannot be told, `confine` sees to it."""
    supervised: bool = True
    """What the tier `supervised` asks about is asked about, or not done."""
    effort: bool = False
    """How much the model thinks can be chosen."""
    mode: bool = False
    """It has modes of its own to choose from, where the tier does not decide."""
    confine: bool = False
    """It can be run in a sandbox of ours."""
    sandbox: tuple[str, ...] = ()
    exit_codes: bool = False
    diffs: bool = False
    cost: bool = False
    notes: dict[str, str] = {}


CAPABILITY_OF_OPTION: dict[str, str] = {
    "fork": "fork", "max_turns": "max_turns", "max_budget_usd": "max_budget", "allowed_tools": "allowed_tools",
    "disallowed_tools": "disallowed_tools", "system_prompt": "system_prompt",
    "append_system_prompt": "append_system_prompt", "mcp_servers": "mcp_servers", "tools": "mcp_servers",
    "output_schema": "structured_output", "images": "images", "resume": "resume", "effort": "effort", "mode": "mode",
}  # fmt: skip
"""Option → the capability that a driver needs for it."""
_DEFAULTS = Options()


def require(options: Options, capabilities: Capabilities, *, agent: str, driver: str) -> None:
    """Refuse what this driver cannot do, before anything is started."""
    for option, capability in CAPABILITY_OF_OPTION.items():
        if getattr(options, option) != getattr(_DEFAULTS, option) and not getattr(capabilities, capability):
            note = capabilities.notes.get(capability, "")
            raise NotSupported(f"{agent} ({driver}) does not support {option}{': ' + note if note else ''}")
    if options.can_use_tool is not None and capabilities.permissions == "none":
        note = capabilities.notes.get("permissions", "")
        raise NotSupported(f"{agent} ({driver}) cannot ask for permission{': ' + note if note else ''}")
    if options.sandbox is not None and options.sandbox not in capabilities.sandbox:
        offered = ", ".join(mode for mode in capabilities.sandbox if mode not in _REFUSED_WITH.get(options.confine, ()))
        ours = "; confine='workspace' or 'read-only' works with it" if capabilities.confine else ""
        raise NotSupported(
            f"{agent} ({driver}) has no sandbox mode {options.sandbox!r}; it offers: {offered or 'none'}{ours}"
        )
    if options.confine != "off" and not capabilities.confine:
        raise NotSupported(
            f"{agent} ({driver}) cannot be confined: it does not say where it keeps its own files. "
            "Run Stagedoor itself in a container, or leave confine off"
        )
    if options.sandbox in _REFUSED_WITH.get(options.confine, ()):
        raise NotSupported(
            f"sandbox={options.sandbox!r} and confine={options.confine!r} contradict each other: leave one of them out"
        )
    _require_tier(options, capabilities, f"{agent} ({driver})")


_REFUSED_WITH: dict[str, tuple[str, ...]] = {
    "workspace": ("fullAccess",),
    "read-only": ("workspaceWrite", "fullAccess"),
}
"""Sandbox modes that promise more room than the confinement leaves."""


def _require_tier(options: Options, capabilities: Capabilities, who: str) -> None:
    """A tier is a promise: where nobody can keep it, nothing is started."""
    if options.tier == "dry-run" or options.sandbox == "readOnly":
        if not capabilities.dry_run and options.confine == "off":
            named = "tier='dry-run'" if options.tier == "dry-run" else "sandbox='readOnly'"
            how = "add confine='read-only', and the system sees to it" if capabilities.confine else "use another agent"
            raise NotSupported(f"{who} cannot be told to change nothing, so {named} cannot be promised: {how}")
        return
    if not capabilities.supervised and (options.approval or options.tier) not in ("autonomous", "autoAll"):
        named = f"approval={options.approval!r}" if options.approval else f"tier={options.tier!r}"
        limit = " with confine='workspace'" if capabilities.confine else ""
        note = capabilities.notes.get("supervised", "it does not say what it asks about")
        raise NotSupported(
            f"{who} may act without asking ({note}), so {named} cannot be promised: use tier='autonomous'{limit}, or "
            f"tier='dry-run'{' with confine=' + repr('read-only') if capabilities.confine else ''}"
        )


def as_json(capabilities: Capabilities) -> dict[str, Any]:
    """As ``init`` carries them."""
    return cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(capabilities)))
