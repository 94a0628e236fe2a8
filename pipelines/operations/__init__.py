"""What operators see of runs and ledgers: metrics, and the lineage of a release."""
