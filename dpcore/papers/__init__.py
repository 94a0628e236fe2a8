"""Mechanisms, estimates and formulas of the papers."""
