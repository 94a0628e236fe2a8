"""Bounds of a column's values that nobody knows, chosen privately before trees are counted.

Floor 8: imports from floors 0 to 7. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "candidates": ("LARGEST_INTEGER", "LARGEST_NUMBER", "candidate_bounds"),
    "plan": ("ValueBoundsPlan", "least_tolerated"),
    "question": ("ReleasedValueBounds", "ValueBoundsQuestion"),
}
