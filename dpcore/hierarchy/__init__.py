"""Kind hierarchy: public universes of labels, and errors relative to counts.

Floor 4: imports from floors 0 to 3. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "calendar": ("CALENDAR_LEVELS", "check_calendar", "universe_from_calendar"),
    "domain": ("HierarchyDomain", "POLICIES", "hierarchy_domain_from_spec"),
    "entry": ("hierarchy_levels_of",),
    "leaves": (
        "MAX_DIGITS",
        "universe_from_code_blocks",
        "universe_from_codes",
        "universe_from_columns",
        "universe_from_parents",
        "universe_from_paths",
    ),
    "level_labels": ("read_labels",),
    "question": (
        "HierarchyQuestion",
        "LEAST_SQUARES",
        "NONE",
        "SMALLEST_FIRST",
        "hierarchy_question_from_spec",
    ),
    "relative_objective": ("METRICS", "RelativeObjective"),
    "released": ("ReleasedHierarchy",),
    "threshold_question": ("ThresholdQuestion", "threshold_question_from_spec"),
    "universe": ("OTHER", "Universe", "check_level_names", "is_parted"),
    "universe_question": ("UniverseQuestion",),
    "universe_table": (
        "leaf_picture",
        "parted_universe",
        "universe_from_table",
        "universe_tables",
    ),
    "workload": ("HierarchyWorkload", "predicted_hierarchy_error", "predicted_threshold_error"),
}
