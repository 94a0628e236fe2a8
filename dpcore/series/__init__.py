"""A series of releases over periods: temporal nodes or weighted sums, each measured once."""
