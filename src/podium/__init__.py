"""One stage for every coding agent."""

__version__ = "0.1.0"
