"""Kind ordered: domains of values, the planner, CDFs and quantiles.

Floor 6: imports from floors 0 to 5. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "candidates": ("candidates",),
    "domain": ("OrderedDomain",),
    "make": (
        *("DOMAIN_KINDS", "CategoryDomain", "DateDomain", "IntegerDomain", "OrderedDomain"),
        "make_domain",
    ),
    "question": ("OrderedQuestion", "ordered_question_from_spec"),
    "released": ("ReleasedCdf",),
    "workload": ("OrderedWorkload",),
}
