"""Matrix mechanisms: weighted sums of cells, measured with Gaussian noise.

Floor 3: imports from floors 0 and 2. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "forest": ("FactorisedForest", "errors_of"),
    "plan": ("FactorisedPlan",),
    "planner": ("MOST_LEAVES", "MOST_OPTIMAL", "plan_strategy", "told_tree"),
    "read": ("Read",),
    "strategies": ("strategy_from_spec",),
    "widths": ("NormalWidths",),
}
