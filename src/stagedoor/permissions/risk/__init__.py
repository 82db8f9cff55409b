"""How much is at stake: the effects of a command or call, by program, as low, medium or high, with the reasons."""
