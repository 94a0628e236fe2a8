"""What is chosen privately before trees are counted: keys, bounds of units and of values."""
