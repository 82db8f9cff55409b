"""The files from which Kimi Code runs something by itself. ``AGENTS.md`` is text for the model."""

PROTECTED = {
    pattern: "Kimi Code runs hooks and tool servers from it at the next start"
    for pattern in (".kimi-code/**", ".mcp.json", "~/.kimi-code/**")
}
