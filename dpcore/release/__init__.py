"""A whole release: its plan, its guarantee in words, its answers, all in memory.

Floor 10: imports from floors 0 to 9. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "composition": ("Guarantee", "TreeRefused", "plan_release"),
    "guarantee": (
        "ARITHMETIC_VERSION",
        "CHECKSUM",
        "LATER_NUMBERS",
        "budget_text",
        "guarantee_in_words",
        "guarantee_numbers",
        "manifest_checksum",
        "plan_manifest",
        "stated_guarantee",
        "weak_guarantees",
    ),
    "in_memory": ("release_rows",),
    "kinds": ("ReadKeys", "ReadUniverse", "kind_named"),
    "plan": (
        "FORMAT_VERSION",
        "READ_FORMATS",
        "ReleasePlan",
        "UnitBounds",
        "plan_from_spec",
        "total_spending",
    ),
    "release": ("ReleaseReader",),
    "split": ("BudgetSplit",),
    "target": ("release_budget",),
    "totals": ("full_edge", "odd_totals"),
}
