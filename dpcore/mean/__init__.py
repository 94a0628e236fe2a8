"""The mean of a column alone, for each key: every row is split between the ends of the domain.

Floor 7: imports from floors 0 to 6. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "plan": ("FINEST",),
    "question": ("MeanQuestion", "mean_question_from_spec"),
    "released": ("ReleasedMean",),
    "workload": ("MeanWorkload",),
}
