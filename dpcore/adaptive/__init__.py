"""Adaptive trees: nodes of few rows are not split, and measured again with what is left.

Floor 6: imports from floors 0 to 5. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "candidate": ("AdaptiveTree",),
    "entry": ("named_level_entries",),
    "hierarchy_planner": (
        "Planned",
        "is_worth_it",
        "modelled_errors",
        "plan_adaptive_hierarchy",
        "predicted_rmse",
        "split_errors",
    ),
    "mechanism": ("AdaptiveMechanism",),
    "plan": ("AdaptivePlan",),
    "whole_levels": ("if_all_split", "most_undivided", "noise_if_all_split", "rows_of_adaptive"),
}
