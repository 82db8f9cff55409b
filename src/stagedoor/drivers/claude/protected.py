"""The files from which Claude Code runs something by itself: at its next start, at a prompt, or at a call.

``CLAUDE.md`` and ``.claude/rules`` are text for the model; what it does about it is judged call by call.
"""

PROTECTED = {
    pattern: "Claude Code runs hooks, tool servers and commands from it at the next start"
    for pattern in (".claude/**", ".claude-plugin/**", ".mcp.json", ".claude.json", "~/.claude/**", "~/.claude.json")
}
