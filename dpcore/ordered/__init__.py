"""Kind ordered: domains of values, the planner, CDFs and quantiles.

Floor 6: imports from floors 0 to 5. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "candidates": ("candidates",),
    "domain": ("OrderedDomain",),
    "make": ("DOMAIN_KINDS", "DateDomain", "OrderedDomain", "make_domain"),
    "question": ("OrderedQuestion", "ordered_question_from_spec"),
    "released": ("ReleasedCdf",),
    "workload": ("OrderedWorkload",),
}
