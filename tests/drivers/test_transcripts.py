"""An agent's own record, taken from one machine and put on another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stagedoor.drivers import transcripts
from stagedoor.drivers.transcripts import Transcript, TranscriptFile, TranscriptTooLarge
from stagedoor.errors import BadRequest

MOST = 1000


def _kept_in(folder: Path) -> Transcript:
    return Transcript(lambda cwd, env: folder, ("{id}.jsonl", "{id}/**"))


def _open_descriptors() -> set[str]:
    return set(os.listdir("/dev/fd"))  # noqa: PTH208


def test_a_transcript_with_folders_goes_to_another_machine(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "s1/subagents/deep").mkdir(parents=True)
    (one / "s1.jsonl").write_bytes(b"first\n")
    (one / "s1/subagents/deep/a.jsonl").write_bytes(b"inner\n")
    (one / "s1/link").symlink_to(one / "s1.jsonl")
    os.mkfifo(one / "s1/pipe")
    before = _open_descriptors()
    files = _kept_in(one).collect("s1", "", {}, most=MOST)
    assert _open_descriptors() <= before
    assert files == (
        TranscriptFile("s1.jsonl", b"first\n"),
        TranscriptFile("s1/subagents/deep/a.jsonl", b"inner\n"),
    )
    _kept_in(two).restore("s1", "", {}, files, most=MOST)
    assert _kept_in(two).collect("s1", "", {}, most=MOST) == files


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("s1/../../x", b"", BadRequest),
        ("s2.jsonl", b"", BadRequest),
        ("s1/a\0b", b"", BadRequest),
        ("/s1.jsonl", b"", BadRequest),
        ("s1/large", bytes(MOST), TranscriptTooLarge),
    ],
)
def test_nothing_is_put_there_unless_all_of_it_may_be(
    tmp_path: Path, name: str, content: bytes, fault: type[BadRequest]
) -> None:
    files = (TranscriptFile("s1.jsonl", b"first\n"), TranscriptFile(name, content))
    with pytest.raises(fault):
        _kept_in(tmp_path / "home").restore("s1", "", {}, files, most=MOST)
    assert list(tmp_path.iterdir()) == []


def test_too_many_files_are_not_put_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "MOST_FILES", 2)
    files = [TranscriptFile(f"s1/{number}", b"") for number in range(3)]
    with pytest.raises(TranscriptTooLarge):
        _kept_in(tmp_path / "home").restore("s1", "", {}, files, most=MOST)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_made_behind_a_link(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    (home / "s1").symlink_to(elsewhere)
    with pytest.raises(BadRequest, match="link to another place"):
        _kept_in(home).restore("s1", "", {}, [TranscriptFile("s1/new/a.jsonl", b"x")], most=MOST)
    assert list(elsewhere.iterdir()) == []
