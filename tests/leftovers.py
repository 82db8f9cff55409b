"""What a test leaves behind is its own fault, and nobody else's."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import command_lines, end_with_all_below, own_children

PATIENCE = 60.0
"""How long what was abandoned may take to be cleared away."""
MOUNT_POINTS = (".git", ".codex", ".agents", ".aws")
"""What Codex covers (a test of its sessions holds the two together): every test would pay for an import of it."""
FAILED = pytest.StashKey[bool]()


def note_failure(item: pytest.Item) -> None:
    item.stash[FAILED] = True
    if (file := item.getparent(pytest.Module)) is not None:
        file.stash[FAILED] = True


def has_failed(node: pytest.Item | pytest.Collector) -> bool:
    return FAILED in node.stash


def watch_children(node: pytest.Item | pytest.Collector) -> Iterator[None]:
    """Who was there before belongs to somebody else; whoever came must have gone at the end. Those who have not are
    ended, so that the next test, which may look for processes of its own, does not meet them."""
    before = own_children()
    yield
    until = time.monotonic() + PATIENCE
    while left := {pid: start for pid, start in own_children().items() if before.get(pid) != start}:
        if has_failed(node) or time.monotonic() > until:
            break
        time.sleep(0.02)
    if left:
        lines = command_lines()
        end_with_all_below(left)
        if not has_failed(node):
            names = [f"{pid}: {lines.get(pid, '')[:300]}" for pid in left]
            pytest.fail("\n".join(["processes were left running, and have been ended:", *names]), pytrace=False)


def clear_mount_points() -> None:
    """Codex's sandbox puts empty folders of these names into the temporary folder. If it is killed while it starts they
    stay there, and with a ``.git`` above them the folders of all tests would belong to one repository."""
    for name in MOUNT_POINTS:
        with contextlib.suppress(OSError):  # there is none, or it is somebody's, with something in it
            Path("/tmp", name).rmdir()


def let_go() -> None:
    """Of what the frames of a failed test hold. If a later collection did it, the test that runs by then would fail
    with the warnings."""
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        sys.__dict__.pop(name, None)
    complain = sys.unraisablehook
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.unraisablehook = lambda _: None
        try:
            gc.collect()
        finally:
            sys.unraisablehook = complain
