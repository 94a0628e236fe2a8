"""Releases and series in folders, read back and queried."""
