"""Codex CLI in unified words. ``agent`` holds the one value that the catalog reads."""
