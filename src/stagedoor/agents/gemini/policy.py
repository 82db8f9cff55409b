"""Policy files, written and checked by us. Pure.

Gemini CLI fails open: it prints a warning about a policy file it cannot read and runs *without* it, it does not even
mention a missing file, and it drops a single rule whose pattern it does not like. So nothing reaches it unchecked.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from enum import StrEnum
from typing import Any

import msgspec

from stagedoor.errors import LocalProtocolError

from .records import SHELL

TOOLS = (
    "activate_skill", "ask_user", "complete_task", "enter_plan_mode", "exit_plan_mode", "get_internal_docs", "glob",
    "google_web_search", "grep_search", "invoke_agent", "list_directory", "list_background_processes",
    "list_mcp_resources", "read_background_output", "read_file", "read_many_files", "read_mcp_resource", "replace",
    "run_shell_command", "save_memory", "search_file_content", "tracker_add_dependency", "tracker_create_task",
    "tracker_get_task", "tracker_list_tasks", "tracker_update_task", "tracker_visualize", "update_topic", "web_fetch",
    "write_file", "write_todos",
)  # fmt: skip
"""The CLI's own tools. A name that is nearly one of them is a mistake; any other may be an extension's."""

LONGEST_PATTERN = 2048
_NESTED_QUANTIFIER = re.compile(r"\([^)]*[*+?{].*\)[*+?{]")  # the CLI's own test, letter by letter
_NOT_IN_JAVASCRIPT = re.compile(r"(?<!\\)(?:\\\\)*(?:\((?:\?(?![:=!]|<[=!]))|\\[AZzGhHK]|[*+?}]\+)")


class Decision(StrEnum):
    ALLOW = "allow"
    DENY = "deny"
    ASK_USER = "ask_user"
    """Asks over ACP; a headless run refuses."""


class PolicyRule(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """What may be done with a tool. The highest ``priority`` that fits decides.

    ``tool_name`` is a name, several, or ``*``; ``mcp_name`` limits it to a server. ``command_prefix`` and
    ``command_regex`` look at a shell command, ``args_pattern`` at the arguments as JSON.
    """

    tool_name: str | tuple[str, ...]
    decision: Decision
    priority: int
    mcp_name: str | None = None
    command_prefix: str | tuple[str, ...] | None = None
    command_regex: str | None = None
    args_pattern: str | None = None
    modes: tuple[str, ...] | None = None
    subagent: str | None = None
    interactive: bool | None = None
    allow_redirection: bool | None = None
    deny_message: str | None = None


def allow(tool: str, priority: int = 500) -> PolicyRule:
    """A rule from the CLI's short form: ``write_file``, ``run_shell_command(git status)``."""
    return _short(tool, Decision.ALLOW, priority)


def deny(tool: str, priority: int = 900) -> PolicyRule:
    return _short(tool, Decision.DENY, priority)


def _short(tool: str, decision: Decision, priority: int) -> PolicyRule:
    name, bracket, rest = tool.partition("(")
    if not bracket:
        return PolicyRule(tool_name=tool, decision=decision, priority=priority)
    if not rest.endswith(")"):
        raise LocalProtocolError(f"{tool!r} is not a tool: write a name, or {SHELL}(command prefix)")
    return PolicyRule(tool_name=name, decision=decision, priority=priority, command_prefix=rest[:-1])


def policy_toml(rules: tuple[PolicyRule, ...]) -> bytes:
    """The policy file for ``rules``. Raises ``LocalProtocolError`` for one the CLI would drop or misread."""
    blocks: list[str] = []
    for number, rule in enumerate(rules, 1):
        check(rule, number)
        try:
            members: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(rule))
        except UnicodeEncodeError:
            raise LocalProtocolError(f"policy rule {number} contains an incomplete character: remove it") from None
        block = "\n".join(["[[rule]]", *(f"{key} = {_value(value)}" for key, value in members.items())])
        if tomllib.loads(block) != {"rule": [members]}:
            raise LocalProtocolError(f"policy rule {number} cannot be written as TOML: remove its control characters")
        blocks.append(block + "\n")
    return "\n".join(blocks).encode()


def check_policy(content: bytes, name: str) -> tuple[PolicyRule, ...]:
    """The rules of a policy file the caller wrote. Raises ``LocalProtocolError`` if the CLI would run without some."""
    try:
        document = tomllib.loads(content.decode())
        rules = msgspec.convert(document.get("rule", []), tuple[PolicyRule, ...])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise LocalProtocolError(f"{name} is not a Gemini policy file, the CLI would run without it: {error}") from None
    if unknown := set(document) - {"rule", "safety_checker"}:
        raise LocalProtocolError(
            f"{name} contains {', '.join(sorted(unknown))}: only rules are allowed, each begins with [[rule]]"
        )
    for number, rule in enumerate(rules, 1):
        check(rule, number)
    return rules


def check(rule: PolicyRule, number: int = 1) -> None:
    """Refuse a rule that the CLI would drop, misread, or take for something wider than it says."""

    def refuse(why: str) -> LocalProtocolError:
        return LocalProtocolError(f"policy rule {number}: {why}")

    names = rule.tool_name if isinstance(rule.tool_name, tuple) else (rule.tool_name,)
    if not names or "" in names:
        raise refuse('tool_name is empty; use "*" for every tool')
    for name in names:
        if "__" in name:
            raise refuse(f"{name!r}: name the MCP server in mcp_name, or write mcp_<server>_<tool>")
        if rule.mcp_name is None and not name.startswith("mcp_") and "*" not in name and name not in TOOLS:
            near = difflib.get_close_matches(name, TOOLS, n=1, cutoff=0.8)
            if near:
                raise refuse(f"unknown tool {name!r}: did you mean {near[0]!r}?")
    if not 0 <= rule.priority <= 999:
        raise refuse(f"priority {rule.priority} is not between 0 and 999")
    if unknown := set(rule.modes or ()) - {"default", "autoEdit", "yolo", "plan"}:
        raise refuse(f"unknown mode {', '.join(sorted(unknown))}; choose from default, autoEdit, yolo and plan")
    looks = [look for look in (rule.command_prefix, rule.command_regex, rule.args_pattern) if look is not None]
    if len(looks) > 1:
        raise refuse("give one of command_prefix, command_regex and args_pattern, not several")
    if looks and rule.args_pattern is None and rule.tool_name != SHELL:
        raise refuse(f"command_prefix and command_regex need tool_name={SHELL!r}")
    if rule.command_prefix is not None and not all(_several(rule.command_prefix)):
        raise refuse("command_prefix is empty and would fit every command; leave it out to mean that")
    for pattern in _patterns(rule):
        if why := _bad_pattern(pattern):
            raise refuse(f"the pattern {pattern!r} {why}; the CLI would drop the rule")


def _several(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _patterns(rule: PolicyRule) -> list[str]:
    """As the CLI builds them: it judges the whole, so that a long prefix can be too long as a pattern."""
    if rule.command_prefix is not None:
        return [
            re.sub(r'[-\[\]{}()*+?.,\\^$|#\s"]', r"\\\g<0>", '"command":' + msgspec.json.encode(prefix).decode()[:-1])
            + r'(?:[\s"]|\\")'
            for prefix in _several(rule.command_prefix)
        ]
    if rule.command_regex is not None:
        return [f'"command":"{rule.command_regex}']
    return [] if rule.args_pattern is None else [rule.args_pattern]


def _bad_pattern(pattern: str) -> str:
    if len(pattern) > LONGEST_PATTERN:
        return f"is longer than {LONGEST_PATTERN} characters"
    if _NESTED_QUANTIFIER.search(pattern):
        return "repeats a group that repeats"
    if _NOT_IN_JAVASCRIPT.search(pattern):
        return "means something else in JavaScript"
    try:
        re.compile(pattern)
    except re.error as error:
        return f"is not a regular expression ({error})"
    return ""


def _value(value: Any) -> str:
    """TOML strings, numbers, booleans and lists of strings are written as JSON writes them (save DEL)."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
