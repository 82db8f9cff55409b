"""docs/versions.md is what the code and the last ``make drift`` say. ``STAGEDOOR_BLESS=1`` writes it."""

from __future__ import annotations

import os

from tools.drift import PAGE, load, page


def test_the_page_of_versions_is_the_code() -> None:
    if os.environ.get("STAGEDOOR_BLESS"):
        PAGE.write_text(page(load()))
    assert PAGE.read_text() == page(load()), "run python -m tools.drift --page and read the diff"
