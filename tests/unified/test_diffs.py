"""A diff says exactly what is written: applied by git to what was there, it makes what is there."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest

from stagedoor.unified.diffs import diff_of, lines_of

ODD = ("\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
"""What Python takes for the end of a line, and git and editors do not."""
CASES = [
    ("one\ntwo\n", "one\n2\n"),
    ("one\r\ntwo\r\n", "one\r\n2\r\n"),
    ("one\r\n", "one\n"),
    ("one", "one\ntwo"),
    *((f"keep{odd}-gone\n", f"keep{odd}+new\n") for odd in ODD),
    *((f"x\n{odd}\n", f"x\n{odd}{odd}") for odd in ODD),
]


@pytest.mark.parametrize(("before", "after"), CASES)
def test_git_makes_of_it_what_was_said(before: str, after: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(before.encode())
    patch = diff_of("file", before, after).encode()
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=patch, cwd=tmp_path, check=True)
    assert file.read_bytes().decode() == after


def test_only_a_line_feed_ends_a_line() -> None:
    for first, second in itertools.product(("", *ODD), repeat=2):
        text = f"a{first}b\nc{second}"
        assert lines_of(text) == [f"a{first}b\n", f"c{second}"]
        assert diff_of("file", None, text).split("\n")[3:] == [
            f"+a{first}b", f"+c{second}", "\\ No newline at end of file", "",
        ]  # fmt: skip
