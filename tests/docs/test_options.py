"""docs/options.md is what the code says. ``STAGEDOOR_BLESS=1`` writes it."""

from __future__ import annotations

import os

from stagedoor.unified.options import OpenOptions, Options
from tools.options_page import PAGE, page


def test_the_page_of_options_is_the_code() -> None:
    if os.environ.get("STAGEDOOR_BLESS"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page(), "run python -m tools.options_page and read the diff"


def test_callers_may_write_every_option_and_no_other() -> None:
    assert tuple(OpenOptions.__annotations__) == Options.__struct_fields__
