"""The files from which Codex runs something by itself. ``AGENTS.md`` is text for the model."""

PROTECTED = {
    pattern: "Codex starts tool servers and hooks from it at the next start"
    for pattern in (".codex/**", ".agents/**", "~/.codex/**", "~/.agents/**")
}
