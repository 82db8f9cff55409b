"""Keys and tokens are read only from files that nobody else can have read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stagedoor.machine.private_file import NotPrivate, read_private

TIMES = 60


def private(path: Path) -> None:
    path.write_bytes(b"key")
    path.chmod(0o600)


def shared(path: Path) -> None:
    private(path)
    path.chmod(0o640)


def twice(path: Path) -> None:
    private(path)
    path.with_name("again").hardlink_to(path)


def linked(path: Path) -> None:
    private(path.with_name("target"))
    path.symlink_to(path.with_name("target"))


def next_descriptor() -> int:
    descriptor = os.open("/dev/null", os.O_RDONLY)
    os.close(descriptor)
    return descriptor


@pytest.mark.parametrize(
    ("make", "one_name", "kind"),
    [
        (private, True, None),
        (twice, True, NotPrivate),
        (twice, False, None),
        (shared, True, NotPrivate),
        (linked, True, OSError),
        (Path.mkdir, True, NotPrivate),
        (os.mkfifo, True, NotPrivate),
        (lambda path: None, True, FileNotFoundError),
    ],
    ids=["private", "second name", "second name allowed", "shared", "link", "folder", "pipe", "missing"],
)
def test_what_is_not_private_is_not_read_and_leaves_nothing_open(
    tmp_path: Path, make: Callable[[Path], object], one_name: bool, kind: type[OSError] | None
) -> None:
    path = tmp_path / "key"
    make(path)
    before = next_descriptor()
    for _ in range(TIMES):
        if kind is None:
            assert read_private(path, one_name=one_name) == b"key"
        else:
            with pytest.raises(kind):
                read_private(path, one_name=one_name)
    assert next_descriptor() < before + TIMES // 2
