"""Private choices before trees are counted: keys, bounds of units and of values."""
