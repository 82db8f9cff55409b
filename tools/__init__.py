"""Tools of this repository, not shipped: install the pinned CLIs, record them, write tables and draw the docs."""
