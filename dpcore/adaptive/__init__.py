"""Adaptive trees: nodes of few rows are not split, but measured again."""
