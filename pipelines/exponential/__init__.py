"""Quantiles by the exponential mechanism: their configuration, their plan in words, their page."""
