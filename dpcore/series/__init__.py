"""A series of releases over periods: a temporal tree, each node of which is measured once.

Floor 5: imports from floors 1 to 4. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "question": ("STATE", "SeriesQuestion", "series_question_from_spec"),
    "released": ("own_period",),
    "workload": ("Series", "SeriesWorkload"),
    "words": ("run_in_words", "run_numbers"),
}
