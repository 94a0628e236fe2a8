"""How accurate CDFs, ranges, quantiles and nodes are, beside released packages and papers.

Run as ``python -m benchmarks.accuracy``.
"""
