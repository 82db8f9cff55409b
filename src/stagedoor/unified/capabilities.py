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
    dry_run: bool = True
    sandbox: tuple[str, ...] = ()
    exit_codes: bool = False
    diffs: bool = False
    cost: bool = False
    notes: dict[str, str] = {}


CAPABILITY_OF_OPTION: dict[str, str] = {
    "fork": "fork", "max_turns": "max_turns", "max_budget_usd": "max_budget", "allowed_tools": "allowed_tools",
    "disallowed_tools": "disallowed_tools", "system_prompt": "system_prompt",
    "append_system_prompt": "append_system_prompt", "mcp_servers": "mcp_servers", "output_schema": "structured_output",
    "images": "images", "resume": "resume",
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
        offered = ", ".join(capabilities.sandbox) or "none"
        raise NotSupported(f"{agent} ({driver}) has no sandbox mode {options.sandbox!r}; it offers: {offered}")


def as_json(capabilities: Capabilities) -> dict[str, Any]:
    """As ``init`` carries them."""
    return cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(capabilities)))
