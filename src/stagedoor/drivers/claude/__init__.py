"""Claude Code as an agent: its dictionary, its rights, how it is opened, what it stores."""
