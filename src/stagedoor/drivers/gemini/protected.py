"""The files from which Gemini CLI runs something by itself. ``GEMINI.md`` is text for the model."""

PROTECTED = {
    pattern: "Gemini CLI runs hooks, tool servers and commands from it at the next start"
    for pattern in (".gemini/**", ".agents/skills/**", "~/.gemini/**")
}
