"""The files from which OpenCode runs something by itself. ``AGENTS.md`` is text for the model.

It looks for them in the folder and in all above it, and starts what a project has in ``node_modules/.bin``.
"""

PROTECTED = {
    pattern: "OpenCode runs plugins, tools and tool servers from it at the next start"
    for pattern in (
        ".opencode/**",
        "opencode.json",
        "opencode.jsonc",
        "node_modules/.bin/**",
        "~/.opencode/**",
        "~/.config/opencode/**",
        ".config/opencode/**",
    )
}
