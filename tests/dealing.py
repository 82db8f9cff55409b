"""How the tests are dealt out to the workers of pytest-xdist (``--dist worksteal``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def deal(
    items: Sequence[Item], workers: int, *, group: Callable[[Item], str], seconds: Callable[[Item], float]
) -> list[Item]:
    """Each worker is given one part of the list, all parts as long, and steals from the end of the others' when it is
    done. So each part begins with what takes longest, the parts take about as long, and a group stays in one."""
    together: dict[str, list[Item]] = {}
    for item in items:
        together.setdefault(group(item), []).append(item)
    rooms = [(len(items) + part) // workers for part in range(workers)]
    parts: list[list[Item]] = [[] for _ in rooms]
    loads = [0.0] * workers
    quick: list[Item] = []
    for members in sorted(together.values(), key=lambda members: -seconds(members[0])):
        if seconds(members[0]) < 1:
            quick += members
            continue
        roomy = [part for part in range(workers) if len(parts[part]) + len(members) <= rooms[part]]
        lightest = min(roomy or range(workers), key=lambda part: loads[part])
        parts[lightest] += members
        loads[lightest] += sum(map(seconds, members))
    for part, room in zip(parts, rooms, strict=True):
        missing = max(room - len(part), 0)
        part += quick[:missing]
        del quick[:missing]
    return [item for part in parts for item in part] + quick
