"""Trees of any fan-outs, measured linearly: modules named as in `uniform`.

Floor 3: imports from floors 0 to 2. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "as_measured": ("AsMeasuredForest", "measured_level_rmse"),
    "errors": ("IrregularErrors",),
    "forest": ("IrregularForest",),
    "node_weights": ("NodeWeights",),
    "plan": ("IrregularPlan", "Sensitivities", "level_sensitivities", "sum_sensitivities"),
    "planner": (
        "predicted_level_rmse",
        "predicted_node_rmse",
        "with_best_shares",
        "with_equal_shares",
    ),
    "variances": ("NodeVariances", "plan_errors"),
    "widths": ("IrregularWidths", "irregular_widths", "node_margins"),
}
