"""Bounds of a privacy unit that nobody knows, chosen privately before trees are counted with them.

Floor 8: imports from floors 0 to 7. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "plan": ("BoundPlan",),
    "question": ("BoundOf", "BoundQuestion", "ReleasedBound"),
    "sizes": ("candidate_sizes",),
}
