"""How the server is configured: the values, every key of the file, and reading it."""
