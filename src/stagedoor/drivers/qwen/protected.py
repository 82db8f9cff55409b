"""The files from which Qwen Code runs something by itself. ``QWEN.md`` is text for the model."""

PROTECTED = {
    pattern: "Qwen Code runs hooks, tool servers and commands from it at the next start"
    for pattern in (".qwen/**", ".mcp.json", ".agents/skills/**", "~/.qwen/**")
}
