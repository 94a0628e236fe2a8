"""What operators see of runs and ledgers: metrics."""
