"""Counts between thresholds (Ghazi et al.): plans, rounds, calibration."""
