"""Measured levels: the mechanisms of uniform trees, trees of any shape and thresholds."""
