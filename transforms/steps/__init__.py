"""The steps of a release on workers: count, bound, carry, draw, record and commit."""
