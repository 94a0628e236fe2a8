"""Trees whose levels are uniform, measured linearly: plans, strategies, forest, widths.

Floor 3: imports from floors 0 to 2. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "bands": ("band_margin", "simultaneous_width"),
    "batch": ("plan_batch", "plans_batch"),
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
    "plan": (
        "Consistency",
        "Estimator",
        "Measured",
        "TreePlan",
        "check_estimator",
        "counted",
        "estimate_in_words",
        "level_entries",
        "moved_counts",
    ),
    "prefix_error": ("mean_prefix_variance",),
    "setting": ("TreeSetting",),
    "strategies": ("Fanouts", "TreeStrategy", "one_level", "search_strategies"),
    "widths": ("IntervalWidths", "interval_widths", "standard_width"),
}
