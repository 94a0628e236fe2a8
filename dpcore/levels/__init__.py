"""Mechanisms that measure whole levels of a tree, and the planners of their budgets."""
