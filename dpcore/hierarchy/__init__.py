"""Kind hierarchy: public universes of labels, and errors relative to counts.

Floor 6: imports from floors 0 to 5. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "calendar": ("CALENDAR_LEVELS", "check_calendar", "universe_from_calendar"),
    "domain": ("HierarchyDomain", "POLICIES"),
    "leaves": (
        "MAX_DIGITS",
        "universe_from_code_blocks",
        "universe_from_codes",
        "universe_from_columns",
        "universe_from_parents",
        "universe_from_paths",
    ),
    "level_labels": ("read_labels",),
    "question": ("HierarchyQuestion", "hierarchy_question_from_spec"),
    "released": ("ReleasedHierarchy",),
    "universe": ("OTHER", "Universe", "check_level_names", "is_parted"),
    "universe_table": ("leaf_picture", "parted_universe", "universe_from_table", "universe_tables"),
    "workload": ("HierarchyWorkload",),
}
