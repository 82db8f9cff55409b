"""Policies from YAML and TOML files. A file with one mistake counts for nothing: the error says where it is."""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import Any, Literal, cast, get_args

import msgspec

from stagedoor.errors import PolicyError
from stagedoor.unified.events import Operation, Risk, ToolName
from stagedoor.written import Mistakes, Where, hint, yaml_tree

from .policy import Policy
from .rules import Action, Rule

Format = Literal["yaml", "toml"]
_POLICY_KEYS = ("version", "name", "default", "auto_approve", "deny_patterns", "rules")
_RULE_KEYS = ("action", "name", "tool", "operation", "command", "path", "outside", "risk", "agent", "message")
_LISTS = ("tool", "operation", "command", "path", "risk", "agent", "auto_approve", "deny_patterns")
_CHOICES: dict[str, tuple[str, ...]] = {
    "action": get_args(Action),
    "default": get_args(Action),
    "operation": get_args(Operation),
    "risk": get_args(Risk),
}
_TOOLS: tuple[str, ...] = get_args(ToolName)
_SUFFIXES: dict[str, Format] = {".yaml": "yaml", ".yml": "yaml", ".toml": "toml"}


def load_policy(path: Path) -> Policy:
    """Raises :class:`PolicyError` when the file cannot be read or has a mistake."""
    suffix = _SUFFIXES.get(path.suffix.lower())
    if suffix is None:
        raise PolicyError(f"{path}: a policy file ends in .yaml, .yml or .toml")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PolicyError(f"there is no policy file {path}") from None
    except (OSError, UnicodeDecodeError) as fault:
        why = fault.strerror if isinstance(fault, OSError) and fault.strerror else str(fault)
        raise PolicyError(f"{path}: the policy cannot be read: {why}") from fault
    return parse_policy(text, format=suffix, source=str(path))


def parse_policy(text: str, *, format: Format = "yaml", source: str = "policy") -> Policy:
    """Raises :class:`PolicyError` with every mistake on a line of its own."""
    tree, lines = yaml_tree(text, source, PolicyError) if format == "yaml" else _toml_tree(text, source)
    mistakes = Mistakes(lines)
    policy = _policy(tree, mistakes)
    if mistakes.found or policy is None:
        raise PolicyError("\n".join(f"{source}: {mistake}" for mistake in mistakes.found))
    return policy


def _policy(tree: object, mistakes: Mistakes) -> Policy | None:
    if not isinstance(tree, dict):
        mistakes.add((), "a policy is a table of settings and rules, which is missing")
        return None
    settings = _settings(cast("dict[object, object]", tree), _POLICY_KEYS, (), mistakes)
    if settings.pop("version", 1) != 1:
        mistakes.add(("version",), "unknown version", "; this Stagedoor reads version 1")
    rules: list[Rule] = []
    listed = settings.pop("rules", [])
    if not isinstance(listed, list):
        mistakes.add(("rules",), "'rules' must be a list")
        listed = []
    for number, entry in enumerate(cast("list[object]", listed)):
        rule = _rule(entry, ("rules", number), mistakes)
        if rule is not None:
            rules.append(rule)
    if mistakes.found:
        return None
    return Policy(rules=tuple(rules), **cast("dict[str, Any]", settings))


def _rule(entry: object, where: Where, mistakes: Mistakes) -> Rule | None:
    if not isinstance(entry, dict):
        mistakes.add(where, "a rule is a table with an action", "; begin it with 'action: allow', 'deny' or 'ask'")
        return None
    before = len(mistakes.found)
    settings = _settings(cast("dict[object, object]", entry), _RULE_KEYS, where, mistakes)
    if "action" not in settings and len(mistakes.found) == before:
        mistakes.add(where, "a rule without 'action'", "; say allow, deny or ask")
    if len(mistakes.found) > before:
        return None
    return Rule(**cast("dict[str, Any]", settings))


def _settings(
    table: dict[object, object], known: tuple[str, ...], where: Where, mistakes: Mistakes
) -> dict[str, object]:
    settings: dict[str, object] = {}
    for written, value in table.items():
        key = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(written)).lower().replace("-", "_")
        at = (*where, str(written))
        if key not in known:
            mistakes.add(at, f"unknown key '{written}'", hint(key, known))
        elif key in settings:
            mistakes.add(at, f"'{written}' is said twice")
        else:
            settings[key] = _value(key, value, at, mistakes)
    return settings


def _value(key: str, value: object, at: Where, mistakes: Mistakes) -> object:
    if key == "rules" or key == "version":
        return value
    if key == "outside":
        if not isinstance(value, bool):
            mistakes.add(at, "'outside' must be true or false")
        return value
    if key in _LISTS:
        entries = cast("list[object]", value) if isinstance(value, list) else [value]
        if not entries:
            mistakes.add(at, f"'{key}' is an empty list, which would match nothing")
        return tuple(_word(key, entry, at, mistakes) for entry in entries)
    return _word(key, value, at, mistakes)


def _word(key: str, value: object, at: Where, mistakes: Mistakes) -> str:
    if not isinstance(value, str) or (not value.strip() and key not in ("name", "message")):
        mistakes.add(at, f"'{key}' must be text, not {value!r}")
        return ""
    choices = _CHOICES.get(key, ())
    if choices and value not in choices:
        mistakes.add(at, f"unknown {key} '{value}'", hint(value, choices) or f"; use one of {', '.join(choices)}")
    elif key in ("tool", "auto_approve") and value.lower() not in _TOOLS:
        close = difflib.get_close_matches(value.lower(), _TOOLS, 1, 0.8)
        # A name in another style is an agent's own (`Bash`, `mcp__server__tool`); a near miss of ours is a mistake.
        if close and value.islower() and "*" not in value:
            mistakes.add(at, f"unknown tool '{value}'", f"; did you mean '{close[0]}'?")
    return value


def _toml_tree(text: str, source: str) -> tuple[object, dict[Where, int]]:
    try:
        tree: object = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as fault:
        raise PolicyError(f"{source}: this is not TOML: {fault}") from fault
    lines: dict[Where, int] = {}
    where: Where = ()
    rule = -1
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*\[\[\s*\"?rules\"?\s*\]\]", line):
            rule += 1
            where = ("rules", rule)
            lines[where] = number
        elif match := re.match(r"""\s*["']?([\w-]+)["']?\s*=""", line):
            lines.setdefault((*where, match.group(1)), number)
    return tree, lines


def rule_tree(rule: Rule) -> dict[str, object]:
    """A rule as plain values, the way a person would write it: one entry is no list."""
    tree = cast("dict[str, object]", msgspec.to_builtins(rule))
    plain: dict[str, object] = {}
    for key in _RULE_KEYS:
        if key in tree:
            value = tree[key]
            entries = cast("list[object]", value) if isinstance(value, list | tuple) else None
            plain[key] = value if entries is None else entries[0] if len(entries) == 1 else list(entries)
    return plain
