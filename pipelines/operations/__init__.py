"""What operators are told of runs and ledgers: metrics, and the lineage of a release."""
