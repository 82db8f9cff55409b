"""The benchmarks: each a ratio against a peer or a physical limit, both measured in one run."""
