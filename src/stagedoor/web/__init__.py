"""The page: static modules that a browser loads as they are. ``server/page.py`` hands them out."""
