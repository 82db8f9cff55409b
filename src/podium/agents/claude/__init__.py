"""Claude Code: a complete native library over ``stream-json`` and the control channel."""
