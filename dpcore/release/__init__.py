"""A whole release: its plan, its guarantee in words, the registries, its answers."""
