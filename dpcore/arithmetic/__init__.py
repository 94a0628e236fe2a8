"""Floating-point functions that give the same bits on every processor."""
