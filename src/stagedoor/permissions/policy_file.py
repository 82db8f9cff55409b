"""Policies from YAML and TOML files. A file with one mistake counts for nothing: the error says where it is."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, cast, get_args

import msgspec
import yaml

from stagedoor.errors import PolicyError
from stagedoor.unified.events import Operation, Risk, ToolName
from stagedoor.whole_file import replace_file
from stagedoor.yaml_with_lines import Mistakes, Where, hint, yaml_tree

from .policy import Policy
from .rules import Action, Rule


def format_policy(policy: Policy, *, format: Format = "yaml") -> str:
    """The inverse of :func:`stagedoor.permissions.policy_file.parse_policy`."""
    head: dict[str, object] = {}
    if policy.name:
        head["name"] = policy.name
    if policy.default is not None:
        head["default"] = policy.default
    if policy.auto_approve:
        head["auto_approve"] = list(policy.auto_approve)
    if policy.deny_patterns:
        head["deny_patterns"] = list(policy.deny_patterns)
    if format == "yaml":
        rules = {"rules": [rule_tree(rule) for rule in policy.rules]} if policy.rules else {}
        return _yaml({**head, **rules}) if head or rules else "rules: []\n"
    return "\n".join([_toml(head), *(f"[[rules]]\n{_toml(rule_tree(rule))}" for rule in policy.rules)])


def add_rule(text: str, rule: Rule, *, format: Format = "yaml") -> str:
    """The text with ``rule`` before its other rules; comments and layout stay where that is possible."""
    expected = parse_policy(text, format=format).with_rule(rule) if text.strip() else Policy(rules=(rule,))
    added = _inserted_yaml(text, rule) if format == "yaml" else _inserted_toml(text, rule)
    with suppress(PolicyError):
        if parse_policy(added, format=format) == expected:
            return added
    return format_policy(expected, format=format)


def remember_rule(path: Path, rule: Rule) -> None:
    """Put a rule into a policy file, which is made if it is not there. The file is replaced whole or not at all."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if text.strip() and rule in load_policy(path).rules:
        return
    added = add_rule(text, rule, format="toml" if path.suffix.lower() == ".toml" else "yaml")
    replace_file(path, added)


def _yaml(tree: object) -> str:
    text: str = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=1000)
    return text


def _inserted_yaml(text: str, rule: Rule) -> str:
    if not text.strip():
        return _yaml({"rules": [rule_tree(rule)]})
    lines = text.splitlines(keepends=True)
    at = next((n for n, line in enumerate(lines) if re.match(r"rules:\s*(#.*)?$", line)), None)
    if at is None:
        return text.rstrip("\n") + "\n" + _yaml({"rules": [rule_tree(rule)]})
    item = next((re.match(r"( *)- ", line) for line in lines[at + 1 :] if line.lstrip().startswith("- ")), None)
    indent = item.group(1) if item else "  "
    block = "".join(f"{indent}{line}\n" for line in _yaml([rule_tree(rule)]).splitlines())
    return "".join([*lines[: at + 1], block, *lines[at + 1 :]])


def _inserted_toml(text: str, rule: Rule) -> str:
    block = f"[[rules]]\n{_toml(rule_tree(rule))}"
    lines = text.splitlines(keepends=True)
    at = next((n for n, line in enumerate(lines) if re.match(r"\s*\[\[\s*rules\s*\]\]", line)), None)
    if at is None:
        return (text.rstrip("\n") + "\n\n" if text.strip() else "") + block
    return "".join([*lines[:at], block, "\n", *lines[at:]])


def _toml(table: dict[str, object]) -> str:
    # A JSON string is a TOML basic string, except that TOML wants the delete character escaped.
    return "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False).replace(chr(127), chr(92) + 'u007f')}\n"
        for key, value in table.items()
    )


Format = Literal["yaml", "toml"]
_POLICY_KEYS = ("version", "name", "default", "auto_approve", "deny_patterns", "rules")
_RULE_KEYS = ("action", "name", "tool", "operation", "command", "path", "folder", "input", "outside", "risk", "agent",
              "understood", "message")  # fmt: skip
_LISTS = ("tool", "operation", "command", "path", "folder", "risk", "agent", "auto_approve", "deny_patterns")
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
        raise PolicyError(f"policy file {path} not found") from None
    except (OSError, UnicodeDecodeError) as fault:
        why = fault.strerror if isinstance(fault, OSError) and fault.strerror else str(fault)
        raise PolicyError(f"{path}: cannot read the policy: {why}") from fault
    return parse_policy(text, format=suffix, source=str(path))


def parse_policy(text: str, *, format: Format = "yaml", source: str = "policy") -> Policy:
    """Raises :class:`PolicyError` with every mistake on a line of its own."""
    tree, lines = yaml_tree(text, source, PolicyError) if format == "yaml" else _toml_tree(text, source)
    mistakes = Mistakes(lines)
    policy = _policy(tree, mistakes)
    if mistakes.messages or policy is None:
        raise PolicyError("\n".join(f"{source}: {mistake}" for mistake in mistakes.messages))
    return policy


def _policy(tree: object, mistakes: Mistakes) -> Policy | None:
    if not isinstance(tree, dict):
        mistakes.add((), "a policy must be a table of settings and rules")
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
    if mistakes.messages:
        return None
    return Policy(rules=tuple(rules), **cast("dict[str, Any]", settings))


def _rule(entry: object, where: Where, mistakes: Mistakes) -> Rule | None:
    if not isinstance(entry, dict):
        mistakes.add(where, "a rule must be a table with an action", "; begin it with 'action: allow', 'deny' or 'ask'")
        return None
    before = len(mistakes.messages)
    settings = _settings(cast("dict[object, object]", entry), _RULE_KEYS, where, mistakes)
    if "action" not in settings and len(mistakes.messages) == before:
        mistakes.add(where, "a rule without 'action'", "; write allow, deny or ask")
    if len(mistakes.messages) > before:
        return None
    return Rule(**cast("dict[str, Any]", settings))


def _settings(
    table: dict[object, object], allowed_keys: tuple[str, ...], where: Where, mistakes: Mistakes
) -> dict[str, object]:
    settings: dict[str, object] = {}
    for written, value in table.items():
        key = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(written)).lower().replace("-", "_")
        at = (*where, str(written))
        if key not in allowed_keys:
            mistakes.add(at, f"unknown key '{written}'", hint(key, allowed_keys))
        elif key in settings:
            mistakes.add(at, f"'{written}' is set twice")
        else:
            settings[key] = _value(key, value, at, mistakes)
    return settings


def _value(key: str, value: object, at: Where, mistakes: Mistakes) -> object:
    if key == "rules" or key == "version":
        return value
    if key in ("outside", "understood"):
        if not isinstance(value, bool):
            mistakes.add(at, f"'{key}' must be true or false")
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
        raise PolicyError(f"{source}: not valid TOML: {fault}") from fault
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
