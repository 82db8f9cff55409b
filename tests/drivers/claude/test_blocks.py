"""Every kind of block that a message is made of has a translation: a table cannot be checked by the type checker."""

from __future__ import annotations

from typing import get_args

from stagedoor.agents.claude import blocks
from stagedoor.drivers.claude.dictionary import BY_BLOCK


def test_every_kind_of_block_has_a_translation() -> None:
    assert set(BY_BLOCK) == set(get_args(blocks.Block))
