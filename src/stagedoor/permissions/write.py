"""Policies as text: whole, or with one more rule put into a file a person has written."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import yaml

from stagedoor.errors import PolicyError
from stagedoor.whole_file import replace_file

from .load import Format, load_policy, parse_policy, rule_tree
from .policy import Policy
from .rules import Rule


def format_policy(policy: Policy, *, format: Format = "yaml") -> str:
    """The inverse of :func:`stagedoor.permissions.load.parse_policy`."""
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
    wanted = parse_policy(text, format=format).with_rule(rule) if text.strip() else Policy(rules=(rule,))
    added = _inserted_yaml(text, rule) if format == "yaml" else _inserted_toml(text, rule)
    with suppress(PolicyError):
        if parse_policy(added, format=format) == wanted:
            return added
    return format_policy(wanted, format=format)


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
