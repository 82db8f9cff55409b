"""The judge against a real bash in a jail (``tools/shell_oracle.py``): what bash runs, the judge must have said.

What is checked of a line: understood ⇒ bash ran nothing but the commands that were said; low ⇒ nothing that acts ran
and no file changed; allowed by rules for some programs ⇒ only those ran; denied program ran ⇒ the line was denied.
``make fuzz SECONDS=3600`` tries lines for as long as one likes.
"""

from __future__ import annotations

import shutil
from typing import cast

import pytest
import yaml

from stagedoor.permissions.risk.judge import judge_command
from tools.shell_fuzz import SPELLINGS, TRICKS, explore, spelled
from tools.shell_oracle import FORBIDDEN, Disagreement, disagreement_with, jail

TEMPLATES = cast("list[str]", yaml.safe_load(TRICKS.read_text()))
LINES = [line for template in TEMPLATES for command in SPELLINGS for line in spelled(template, command)]
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def test_every_spelling_of_every_trick_is_more_than_low() -> None:
    assert len(LINES) > 2000
    assert [line for line in LINES if judge_command(line, cwd="/home/me/work").risk == "low"] == []


@pytest.mark.parametrize("part", range(4))
def test_tricks_that_run_a_forbidden_program(part: int) -> None:
    """One spelling of each: it really runs the program, and the rules and the judge are right about it."""
    wrong: list[Disagreement] = []
    idle: list[str] = []
    with jail() as place:
        for number, template in enumerate(TEMPLATES[part::4]):
            line = next(line for n in range(6) for line in spelled(template, SPELLINGS[(number + n) % 6]))
            ran = place.run(line)
            if FORBIDDEN not in {words[0] for words in ran.programs}:
                idle.append(line)
            if (found := disagreement_with(line, ran, place)) is not None:
                wrong.append(found)
    assert (wrong, idle) == ([], [])


@pytest.mark.parametrize("seed", range(4))
def test_lines_made_at_random(seed: int) -> None:
    """A fixed few hundred: whoever finds more by ``make fuzz`` adds a row to ``tricks.yaml``."""
    with jail() as place:
        assert list(explore(place, seed, seconds=600, count=80)) == []
