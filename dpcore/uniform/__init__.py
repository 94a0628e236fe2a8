"""Trees whose levels are uniform, measured linearly: plans, strategies, forest, widths.

Floor 3: imports from floors 0 to 2. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "bands": ("band_margin", "simultaneous_width"),
    "batch": ("plan_batch",),
    "entry": ("counted", "estimate_in_words", "levels_of"),
    "errors": ("UniformErrors",),
    "forest": ("UniformForest",),
    "objectives": (
        "CDF",
        "CdfObjective",
        "CountObjective",
        "Guess",
        "NodeObjective",
        "Objective",
        "QuantileObjective",
        "RangeObjective",
    ),
    "plan": ("Consistency", "Estimator", "Measured", "TreePlan", "check_estimator", "moved_counts"),
    "prefix_error": ("mean_prefix_variance",),
    "setting": ("TreeSetting",),
    "strategies": ("Fanouts", "Strategy", "one_level", "search_strategies"),
    "widths": ("IntervalWidths", "interval_widths", "standard_width"),
}
