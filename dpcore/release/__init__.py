"""A whole release: how its trees share a budget, what it guarantees, and its answers."""
