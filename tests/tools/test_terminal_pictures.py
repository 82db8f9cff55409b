"""The pictures show what the commands print today. ``python -m tools.terminal_pictures`` draws them again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stagedoor.testing.clis import find_cli
from tools import terminal_pictures

ALONE = [name for name, shot in terminal_pictures.SHOTS.items() if not shot.needs_clis]
AGAIN = "the output has changed; draw the pictures again: python -m tools.terminal_pictures"
WITH_CLIS = [name for name, shot in terminal_pictures.SHOTS.items() if shot.needs_clis]


def words(svg: str) -> str:
    """What is compared: the words, whatever the counts and versions are."""
    text: str = terminal_pictures.words_in(svg)
    return re.sub(r"[─ ]+", " ", re.sub(r"\d+", "0", text))


def gist(svg: str) -> list[str]:
    """Who is there, with which drivers: not every ability of every driver, which is a table of its own."""
    return [line.partition(";")[0] for line in words(svg).splitlines() if line[:1] in (" ", "✓", "✗", "·")]


def stored(name: str) -> str:
    path: Path = terminal_pictures.IMAGES / f"{name}.svg"
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ALONE)
def test_a_picture_is_of_today(name: str) -> None:
    assert words(stored(name)) == words(terminal_pictures.picture(name)), AGAIN


@pytest.mark.live
@pytest.mark.parametrize("name", WITH_CLIS)
def test_a_picture_of_the_clis_is_of_today(name: str) -> None:
    missing = [agent for agent in terminal_pictures.AGENTS if find_cli(agent) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: run `make clis`")
    assert gist(stored(name)) == gist(terminal_pictures.picture(name)), AGAIN


def test_the_pictures_hold_nothing_of_this_machine_and_load_nothing() -> None:
    for name in terminal_pictures.SHOTS:
        svg = stored(name)
        assert not re.search(r"/(root|work|home|tmp|usr)/|@font-face|url\((?!#)", svg), name
        assert set(re.findall(r"https?://[^\"' )]+", svg)) <= {
            "http://www.w3.org/2000/svg",
            "https://www.textualize.io",
        }


SCREENS = {
    "plain": ("one\r\ntwo\r\n", ["one", "two"]),
    "painted over": ("working\r\x1b[2Kdone\r\n", ["done"]),
    "a live region that went": ("kept\r\nstatus\r\x1b[2K\x1b[1A\x1b[2Knew", ["new"]),
    "colours stay": ("\x1b[32mok\x1b[0m fine", ["\x1b[0m\x1b[32mok\x1b[0m fine"]),
    "the cursor is hidden and shown": ("\x1b[?25lx\x1b[?25h", ["x"]),
}


@pytest.mark.parametrize("name", SCREENS)
def test_screen(name: str) -> None:
    raw, lines = SCREENS[name]
    assert terminal_pictures.screen(raw) == lines
