"""Quantiles by the exponential mechanism: what asks for them, their plan in words, their page."""
