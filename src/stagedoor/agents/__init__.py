"""One folder per agent, each a complete native library in that agent's own words. None knows another."""
