"""A series of releases over periods: temporal nodes or weighted sums, each measured once.

Floor 8: imports from floors 0 to 7. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "accumulated": ("AccumulatedPeriods",),
    "lateness": ("Lateness",),
    "question": ("SeriesQuestion",),
    "released": ("own_period",),
    "runs": ("Series", "check_late_rows", "check_whole_units"),
    "separate": ("series_question_from_spec",),
    "spans": ("select_span", "with_span"),
    "temporal": ("Span", "mean_variance"),
    "window_tables": ("WindowTables",),
    "weighted": ("WeightedPeriods",),
    "whole_units": ("whole_units_cost",),
    "windows": ("Window",),
    "words": ("counted_in_words", "protected_period", "run_in_words", "run_numbers"),
    "workload": ("SeriesWorkload",),
}
