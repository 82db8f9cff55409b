"""Four model APIs: how each reads requests, names tools and streams answers."""
