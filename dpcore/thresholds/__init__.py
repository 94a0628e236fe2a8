"""Counts that are known between thresholds, with relative errors (Ghazi et al.)."""
