"""Wide tables by their one-way and two-way counts: which pairs are measured, and a model of all.

Floor 8: imports from floors 0 to 7. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "measured": ("MeasuredTables", "PairTable"),
    "measuring": ("measure_tables",),
    "model": ("TableModel",),
    "plan": ("MarginalsPlan",),
    "shape": ("MOST_COLUMNS", "MOST_COUNTERS", "TableShape"),
}
