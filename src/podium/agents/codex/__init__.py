"""Codex CLI, complete: ``codex exec --json`` and ``codex app-server``, in its own words."""
