"""Four model APIs: thin faces over one script engine."""
