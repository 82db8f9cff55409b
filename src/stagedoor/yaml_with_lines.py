"""YAML with the line of every entry, all mistakes in a file at once, and entries put in and taken out of its text."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import yaml

from .errors import StagedoorError

Where = tuple[str | int, ...]
"""The keys and numbers that lead to an entry."""
DEEPEST = 8


class Mistakes:
    """What is wrong, each with its line."""

    def __init__(self, lines: Mapping[Where, int]) -> None:
        self.messages: list[str] = []
        self._lines = lines

    def add(self, where: Where, problem: str, remedy: str = "") -> None:
        self.messages.append(f"{problem} on line {self.line(where)}{remedy}")

    def line(self, where: Where) -> int:
        """The line of an entry, or of what it stands in."""
        return next((self._lines[where[:n]] for n in range(len(where), 0, -1) if where[:n] in self._lines), 1)


def hint(word: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(names), 1, 0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def yaml_tree(text: str, source: str, fault: type[StagedoorError]) -> tuple[object, dict[Where, int]]:
    """The values and their lines. Raises ``fault`` when it is not YAML, or something is set twice."""
    try:
        node = yaml.SafeLoader(text).get_single_node()
        tree: object = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as wrong:
        mark = getattr(wrong, "problem_mark", None)
        line = f" on line {mark.line + 1}" if mark is not None else ""
        problem = getattr(wrong, "problem", None) or str(wrong)
        raise fault(f"{source}: not valid YAML: {problem}{line}") from wrong
    lines: dict[Where, int] = {}
    twice: list[str] = []
    if node is not None:
        _lines(node, (), lines, twice, 0)
    if twice:
        raise fault("\n".join(f"{source}: {mistake}" for mistake in twice))
    return tree, lines


def _lines(node: yaml.Node, where: Where, lines: dict[Where, int], twice: list[str], depth: int) -> None:
    lines.setdefault(where, node.start_mark.line + 1)
    if depth > DEEPEST:
        return
    if isinstance(node, yaml.MappingNode):
        names: set[str] = set()
        for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            name = str(key.value)
            line = key.start_mark.line + 1
            if name in names:  # YAML keeps the last one silently, which is a trap
                twice.append(f"'{name}' is set twice on line {line}")
            names.add(name)
            lines[(*where, name)] = line
            _lines(value, (*where, name), lines, twice, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(cast("list[yaml.Node]", node.value)):
            _lines(item, (*where, number), lines, twice, depth + 1)


# ------------------------------------------------------------------------------------ a text changed where it must be


def with_entry(text: str, section: str, name: str, entry: Mapping[str, Any], fault: type[StagedoorError]) -> str:
    """``text`` with ``section: {name: entry}`` added; every other line, comments too, stays as it is.

    Raises ``fault`` where that cannot be done, with the lines to write by hand.
    """
    before = _plain_tree(text, fault)
    key, value = _section(text, section)
    lines = text.splitlines(keepends=True)
    if key is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        changed = f"{text}{gap}{section}:\n{_written(name, entry, 2)}"
    elif isinstance(value, yaml.MappingNode) and value.flow_style:
        at = value.end_mark.index - 1
        comma = ", " if cast("list[object]", value.value) else ""
        changed = f"{text[:at].rstrip()}{comma}{json.dumps(name)}: {json.dumps(dict(entry))}{text[at:]}"
    else:
        at = key.start_mark.line + 1
        column = value.start_mark.column if isinstance(value, yaml.MappingNode) else key.start_mark.column + 2
        head = "".join(lines[:at])
        gap = "" if head.endswith("\n") else "\n"
        changed = f"{head}{gap}{_written(name, entry, column)}{''.join(lines[at:])}"
    expected: dict[str, Any] = {**before, section: {**(before.get(section) or {}), name: dict(entry)}}
    if _tree_or_none(changed) != expected:
        by_hand = f"{section}:\n{_written(name, entry, 2)}"
        raise fault(f"cannot add {section}.{name} to a file that is written like this; add these lines:\n{by_hand}")
    return changed


def without_entry(text: str, section: str, name: str, fault: type[StagedoorError]) -> str:
    """``text`` without ``section: {name: …}``; every other line stays. Raises ``fault`` where that cannot be done."""
    before = _plain_tree(text, fault)
    _, value = _section(text, section)
    pairs = cast("list[tuple[yaml.Node, yaml.Node]]", value.value) if isinstance(value, yaml.MappingNode) else []
    pair = next(((key, node) for key, node in pairs if str(key.value) == name), None)
    if value is None or pair is None:
        raise fault(f"there is no {section}.{name}")
    key, node = pair
    if isinstance(value, yaml.MappingNode) and value.flow_style:
        rest = text[node.end_mark.index :]
        after = rest.lstrip()
        head = text[: key.start_mark.index]
        changed = head + after[1:].lstrip() if after.startswith(",") else head.rstrip().removesuffix(",") + rest
    else:
        lines = text.splitlines(keepends=True)
        changed = "".join(lines[: key.start_mark.line]) + "".join(lines[_last_line(node) + 1 :])
    entries = {other: entry for other, entry in before[section].items() if other != name}
    expected: dict[str, Any] = {**before, section: entries or None}
    if _tree_or_none(changed) not in (expected, {**expected, section: entries}):
        raise fault(f"cannot take {section}.{name} out of a file that is written like this; remove it by hand")
    return changed


def _section(text: str, section: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    node = yaml.SafeLoader(text).get_single_node()
    pairs = cast("list[tuple[yaml.Node, yaml.Node]]", node.value) if isinstance(node, yaml.MappingNode) else []
    return next(((key, value) for key, value in pairs if str(key.value) == section), (None, None))


def _written(name: str, entry: Mapping[str, Any], column: int) -> str:
    """An entry as a block; its values on one line each, in the part of YAML that is JSON."""
    margin = " " * column
    rows = "".join(f"{margin}  {key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in entry.items())
    return f"{margin}{name}:\n{rows}"


def _last_line(node: yaml.Node) -> int:
    """The last line that is the node's own: a block ends where the next one begins, with what stands between."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        children = cast("list[Any]", node.value)
        leaves: list[yaml.Node] = []
        for child in children:
            leaves += cast("Iterable[yaml.Node]", child) if isinstance(child, tuple) else [child]
        return max((_last_line(leaf) for leaf in leaves), default=node.start_mark.line)
    end = node.end_mark
    return cast("int", end.line - 1 if end.column == 0 and end.line > node.start_mark.line else end.line)


def _plain_tree(text: str, fault: type[StagedoorError]) -> dict[str, Any]:
    tree, _ = yaml_tree(text, "the file", fault)
    if tree is not None and not isinstance(tree, dict):
        raise fault("the file must be a table with sections")
    return cast("dict[str, Any]", tree or {})


def _tree_or_none(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return None
