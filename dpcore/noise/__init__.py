"""Keyed streams of random bits and exact integer laws: noise that is drawn once."""
