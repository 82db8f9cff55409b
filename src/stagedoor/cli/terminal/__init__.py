"""What the commands show at a terminal, and how a person answers there."""
