"""Secrets by reference: what travels is where a secret lies, and who needs it reads it there."""
