"""Quantiles by the exponential mechanism, one after the other down a tree of quantiles."""
