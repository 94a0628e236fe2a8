"""Adaptive trees: nodes of few rows are not split, but measured again with the rest of the budget.

Floor 6: imports from floors 0 to 5. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "candidate": ("AdaptiveCandidate", "AdaptiveTree"),
    "hierarchy_candidate": ("AdaptiveHierarchy",),
    "hierarchy_planner": ("modelled_errors", "predicted_rmse", "split_errors"),
    "mechanism": ("AdaptiveMechanism", "CONSISTENCIES"),
    "plan": ("AdaptivePlan",),
    "predicted_counts": ("adaptive_count_error",),
    "whole_levels": ("if_all_split", "most_undivided", "noise_if_all_split", "rows_of_adaptive"),
}
