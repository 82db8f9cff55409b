"""OpenCode's permissions: ready-made sets, and how they are made to hold whatever the user's own settings say. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from stagedoor.errors import LocalProtocolError

from .commands import Action, Rule

Permission: TypeAlias = Action | Mapping[str, Action | Mapping[str, Action]]
"""An action for everything, or by permission (``bash``, ``edit``, ``*`` …), or by permission and pattern.

The last rule that matches wins. ``edit`` covers every tool that writes."""

KNOWN = (
    "read",
    "edit",
    "glob",
    "grep",
    "list",
    "bash",
    "task",
    "external_directory",
    "todowrite",
    "question",
    "webfetch",
    "websearch",
    "lsp",
    "doom_loop",
    "skill",
)

READ_ONLY: Mapping[str, Action] = {
    "*": "deny",
    "read": "allow",
    "glob": "allow",
    "grep": "allow",
    "list": "allow",
    "todowrite": "allow",
}
"""Nothing can be written or run. The agent ``plan`` does not promise that: it may still use the shell."""

SUPERVISED: Mapping[str, Action] = {
    "edit": "ask",
    "bash": "ask",
    "webfetch": "ask",
    "websearch": "ask",
    "external_directory": "ask",
    "doom_loop": "ask",
}
AUTONOMOUS: Mapping[str, Action] = {"*": "allow", "external_directory": "allow", "doom_loop": "allow"}


def spelled_out(permission: Permission) -> dict[str, Action | Mapping[str, Action]]:
    """The same with ``*`` written out for every known permission.

    OpenCode merges its configuration files member by member, so a ``bash: allow`` of the user's own would survive
    behind our ``*: deny``.
    """
    given: dict[str, Action | Mapping[str, Action]]
    given = {"*": permission} if isinstance(permission, str) else dict(permission)
    for_all = given.get("*")
    if not isinstance(for_all, str):
        return given
    whole: dict[str, Action | Mapping[str, Action]] = {"*": for_all}
    for name in KNOWN:
        if name not in given:
            whole[name] = for_all
    for name, value in given.items():
        if name != "*":
            whole[name] = value
    return whole


def rules_of(permission: Permission) -> tuple[Rule, ...]:
    """The same as the rules of a session, which come after every configuration."""
    rules: list[Rule] = []
    for name, value in spelled_out(permission).items():
        if isinstance(value, str):
            rules.append(Rule(name, "*", value))
        else:
            rules += [Rule(name, pattern, action) for pattern, action in value.items()]
    return tuple(rules)


def check(permission: Permission) -> None:
    """Raise ``LocalProtocolError`` for an action that there is not."""
    for rule in rules_of(permission):
        if rule.action not in ("allow", "ask", "deny"):
            raise LocalProtocolError(
                f"the permission for {rule.permission} is {rule.action!r}; it must be allow, ask or deny"
            )
