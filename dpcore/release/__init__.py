"""A whole release: its plan, its guarantee in words, its answers, all in memory.

Floor 7: imports from floors 1 to 6. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "composition": ("Guarantee", "TreeRefused", "plan_release"),
    "guarantee": (
        "CHECKSUM",
        "budget_text",
        "checksum_of",
        "guarantee_in_words",
        "guarantee_numbers",
        "manifest_of",
    ),
    "kinds": ("KINDS",),
    "plan": ("ReleasePlan", "plan_from_spec"),
    "release": ("Release",),
}
