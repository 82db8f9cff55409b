"""Finding, sharing and running a server from the command line."""
