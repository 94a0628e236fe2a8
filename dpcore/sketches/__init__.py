"""Sketches: counts of many codes in few cells, by keyed hash functions."""
