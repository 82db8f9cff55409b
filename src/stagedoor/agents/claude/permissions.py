"""Ready-made answers to the questions of ``can_use_tool``. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from .commands import Allow, Decision, Deny
from .requests import CanUseTool, PermissionUpdate, Rule


def allow_always(request: CanUseTool, destination: str = "session") -> Allow:
    """Allow this call and others like it, as Claude Code itself suggests, or every call of the tool if it does not.

    ``destination``: ``"session"``, or ``"localSettings"``, ``"projectSettings"``, ``"userSettings"`` to write it down.
    A suggested change of the permission mode is left out: it would allow more than was asked. The very same call is
    also remembered by us, so that the answer lasts where Claude Code is asked to take no rules (``delegate``).
    """
    updates = [
        msgspec.structs.replace(update, destination=destination)
        for update in request.suggestions()
        if update.type in ("addRules", "addDirectories")
    ]
    if not any(update.type == "addRules" for update in updates):
        rule = PermissionUpdate("addRules", destination, "allow", (Rule(request.tool_name),))
        updates = [rule, *updates]
    return Allow(updated_permissions=tuple(updates), remember=True)


class ClaudePermissionBehavior(enum.Enum):
    """The four answers a person can give, for a menu; :func:`decision` makes the answer of the choice."""

    allow = "allow"
    deny = "deny"
    allow_always = "allowAlways"
    deny_always = "denyAlways"


def decision(
    request: CanUseTool,
    behavior: ClaudePermissionBehavior,
    *,
    updated_input: Mapping[str, Any] | None = None,
    message: str = "",
) -> Decision:
    match behavior:
        case ClaudePermissionBehavior.allow:
            return Allow(updated_input)
        case ClaudePermissionBehavior.allow_always:
            return msgspec.structs.replace(allow_always(request), updated_input=updated_input)
        case ClaudePermissionBehavior.deny:
            return Deny(message)
        case ClaudePermissionBehavior.deny_always:
            return Deny(message, remember=True)


class AskedOption(msgspec.Struct, frozen=True):
    label: str
    description: str = ""


class AskedQuestion(msgspec.Struct, frozen=True, rename="camel"):
    """One question of ``AskUserQuestion``."""

    question: str
    header: str = ""
    multi_select: bool = False
    options: tuple[AskedOption, ...] = ()


def questions_in(request: CanUseTool) -> list[AskedQuestion]:
    """The questions the model asks the user with this call; empty when it is no ``AskUserQuestion``."""
    if request.tool_name != "AskUserQuestion":
        return []
    try:
        return msgspec.convert(request.input.get("questions", []), list[AskedQuestion])
    except msgspec.ValidationError:
        return []


def answer_questions(request: CanUseTool, answers: Mapping[str, str | Sequence[str]]) -> Allow:
    """Answer an ``AskUserQuestion``: from the question's text to the chosen label, or labels."""
    flat = {text: answer if isinstance(answer, str) else ", ".join(answer) for text, answer in answers.items()}
    return Allow({**request.input, "answers": flat})


def plan_in(request: CanUseTool) -> str | None:
    """The plan that an ``ExitPlanMode`` call asks to carry out; to allow the call is to approve the plan."""
    plan = request.input.get("plan") if request.tool_name == "ExitPlanMode" else None
    return plan if isinstance(plan, str) else None
