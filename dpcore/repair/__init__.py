"""Errors of counts repaired to nonnegative integers, by simulation, and plans for them."""
