"""The tables of a release, which are public, written to tables of others."""
