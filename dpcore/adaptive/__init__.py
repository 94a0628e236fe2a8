"""Adaptive trees: nodes of few rows are not split, and measured again with what is left.

Floor 4: imports from floors 0 to 3. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "drawn": ("DrawnTree",),
    "told_errors": ("told_of_nodes", "told_of_points"),
    "forest": ("AdaptiveForest",),
    "plan": ("AdaptivePlan", "adaptive_plan_from_spec"),
    "planner": ("most_rows", "plan_adaptive"),
    "roots": ("ENDED", "AdaptiveRoots", "DrawnLevel", "DrawnPrefixes"),
    "widths": ("AdaptiveWidths", "adaptive_widths"),
}
