"""Measured levels: the mechanisms of uniform trees, trees of any shape and thresholds.

Floor 5: imports from floors 0 to 4. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "candidate": ("COUNTED", "Candidate", "Made", "TreeWorkload", "WholeLevels"),
    "errors": ("estimate_errors",),
    "irregular": ("IrregularMechanism", "LEAST_SQUARES", "NONE", "SMALLEST_FIRST", "TOP_DOWN"),
    "irregular_candidate": ("IrregularLevels", "IrregularSetting", "Thresholds", "best_split"),
    "planner": ("budget_for_target", "plan_tree", "predicted_cdf_rmse", "predicted_error"),
    "relative_objective": ("METRICS", "RelativeObjective"),
    "thresholds": ("ThresholdMechanism",),
    "uniform": ("UniformMechanism",),
}
