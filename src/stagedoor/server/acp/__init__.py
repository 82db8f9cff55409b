"""``/acp`` and ``stagedoor acp``: every agent in every editor that speaks the Agent Client Protocol."""
