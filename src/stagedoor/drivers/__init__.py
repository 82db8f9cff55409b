"""How each agent is opened from unified options: one module per agent, with its drivers and what they can do."""
