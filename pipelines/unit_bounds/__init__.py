"""Bounds of a unit that are chosen privately: the first stage of a release, planned."""
