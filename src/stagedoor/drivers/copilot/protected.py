"""The files from which Copilot CLI runs something by itself. Instructions are text for the model."""

PROTECTED = {
    pattern: "Copilot CLI runs hooks, tool servers and language servers from it, some in the same session"
    for pattern in (
        ".github/hooks/**", ".github/copilot/**", ".github/agents/**", ".github/skills/**", ".github/extensions/**",
        ".github/lsp.json", ".github/mcp.json", ".mcp.json", "~/.copilot/**",
    )
}  # fmt: skip
