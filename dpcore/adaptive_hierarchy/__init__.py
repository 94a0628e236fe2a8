"""Kind adaptive_hierarchy: public universes of labels whose sparse nodes are not split.

Floor 7: imports from floors 0 to 6. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "planner": ("modelled_errors", "predicted_rmse", "split_errors"),
    "workload": ("ADAPTIVE", "AdaptiveHierarchyWorkload"),
}
