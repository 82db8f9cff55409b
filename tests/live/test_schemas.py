"""What the schemas of the installed CLIs name, we type or call without meaning: drift shows here as a difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.schemas import PRINTED, drift


@pytest.mark.parametrize("agent", PRINTED)
def test_every_word_of_the_schema_is_known(agent: str, real_cli: Callable[[str], Path]) -> None:
    assert drift(agent, str(real_cli(agent))) == []
