"""Exact checks of a configuration's rows: not private, for people with access to the raw data."""
