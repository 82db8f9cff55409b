"""YAML with the line of every entry, and all mistakes in a file at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import cast

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
