"""Contribution bounding: ids of privacy units, their rows, the keyed choice of rows."""
