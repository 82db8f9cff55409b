"""REST: one table of operations, answered and described."""
