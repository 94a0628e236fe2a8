"""Measured levels: the mechanisms of uniform trees, trees of any shape and thresholds.

Floor 5: imports from floors 0 to 4. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "candidate": ("Candidate", "Made", "WholeLevels"),
    "errors": ("errors_of",),
    "irregular": (
        "IrregularMechanism",
        "LEAST_SQUARES",
        "NONE",
        "SMALLEST_FIRST",
        "TOP_DOWN",
        "named_level_entries",
    ),
    "planner": ("budget_for_target", "plan_tree", "predicted_cdf_rmse", "predicted_error"),
    "relative_objective": ("METRICS", "RelativeObjective"),
    "relative_planner": ("noise_candidates", "threshold_candidate"),
    "thresholds": ("ThresholdMechanism",),
    "uniform": ("UniformMechanism",),
}
