"""Adaptive trees: nodes of few rows are not split, and measured again with what is left.

Floor 4: imports from floors 0 to 3. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "entry": ("named_level_entries",),
    "mechanism": ("AdaptiveMechanism", "adaptive_mechanism_from_spec"),
    "plan": ("AdaptivePlan",),
    "planner": ("most_rows", "plan_adaptive"),
}
