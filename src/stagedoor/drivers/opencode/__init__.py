"""OpenCode's three drivers: ``serve``, ``run`` and ``acp``."""
