"""Trees of any fan-outs, measured linearly: their plans, errors and intervals."""
