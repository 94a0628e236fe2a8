"""Synthetic rows: how far a private generator is from its data, for stand-ins and baselines.

`python -m benchmarks.synthetic` writes its tables into docs/accuracy.md and
docs/synthetic-accuracy.md; tests/synthetic tests the measures by brute force. Numbers here are
floats and the noise is NumPy's: these generators are references to compare with, never a release.
"""
