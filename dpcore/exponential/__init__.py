"""Quantiles by the exponential mechanism, one after the other down a tree of quantiles.

Floor 7: imports from floors 0 to 6. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "better": ("is_better",),
    "choice": ("flipped", "weighed"),
    "margins": ("rank_errors", "root_mean_square"),
    "mechanism": ("ExponentialMechanism",),
    "plan": ("SLACK",),
    "question": (
        "ExponentialQuestion",
        "INTERVAL_WORDS",
        "WORDS",
        "choice_entries",
        "exponential_question_from_spec",
    ),
    "rate": ("choice_rate",),
    "released": ("ReleasedQuantiles",),
    "weights": ("FLOOR", "cached_weights"),
    "workload": ("ExponentialWorkload",),
}
