"""Trees whose levels are uniform, measured linearly: plans, forests, errors, intervals."""
