"""Budgets, sensitivities, conversions between measures of privacy, composition."""
