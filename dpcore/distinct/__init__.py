"""Numbers of different values of a column, for each key: exact on workers, noise drawn once.

Floor 5: imports from floors 0 to 4. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "domain": ("DistinctDomain",),
    "question": ("DistinctQuestion", "distinct_question_from_spec"),
    "released": ("ReleasedDistinct",),
    "workload": ("DistinctWorkload",),
}
