"""Hierarchies whose sparse nodes are not split: their plan in words, their page."""
