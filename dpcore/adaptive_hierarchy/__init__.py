"""Kind adaptive_hierarchy: public universes of labels whose sparse nodes are not split.

Floor 5: imports from floors 0 to 4. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "entry": ("adaptive_levels_of",),
    "planner": ("modelled_errors",),
    "question": ("AdaptiveHierarchyQuestion", "adaptive_hierarchy_question_from_spec"),
    "released": ("ReleasedAdaptiveHierarchy",),
    "workload": ("ADAPTIVE", "AdaptiveHierarchyWorkload"),
}
