"""Rows that lie in tables: their section of a configuration, and how stages read them."""
