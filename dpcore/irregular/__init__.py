"""Trees of any fan-outs, measured linearly: plans, forests, errors, intervals."""
