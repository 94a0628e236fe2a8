"""Quantiles by the exponential mechanism, one after the other down a tree of quantiles.

Floor 7: imports from floors 0 to 6. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "better": ("is_better",),
    "margins": ("rank_errors", "root_mean_square"),
    "mechanism": ("ExponentialMechanism",),
    "question": (
        "ExponentialQuestion",
        "INTERVAL_WORDS",
        "WORDS",
        "choices_of",
        "exponential_question_from_spec",
    ),
    "released": ("ReleasedQuantiles",),
    "workload": ("ExponentialWorkload",),
}
