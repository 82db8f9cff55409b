"""One vocabulary for every agent, one grammar that fixes its order, and one dictionary per agent. Pure."""
