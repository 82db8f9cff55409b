"""Which folders a person trusts, and what of a folder an agent would run."""
