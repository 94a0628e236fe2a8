"""A series of releases over periods: a temporal tree, each node of which is measured once.

Floor 4: imports from floors 0 to 3. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "linear": ("leaf_variance",),
    "question": ("STATE", "SeriesQuestion", "series_question_from_spec"),
    "released": ("own_period",),
    "spans": ("of_span", "with_span"),
    "temporal": ("Span", "mean_variance"),
    "window_tables": ("WindowTables",),
    "windows": ("Window",),
    "words": ("run_in_words", "run_numbers"),
    "workload": ("Series", "SeriesWorkload"),
}
