"""Bounds of values that are chosen privately, as a part of the first stage of a release."""
