"""Trees whose levels are uniform, measured linearly: their plans, errors and intervals."""
