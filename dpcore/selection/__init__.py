"""Private partition selection: the keys of a release, selected before trees are made of them.

Floor 4: imports from floors 0 to 3. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "counter": ("KeyCounter", "merge_shard", "shard_partials"),
    "key_columns": ("KeyColumns", "TYPES"),
    "plan": ("SelectionPlan", "counted_once"),
    "question": ("ReleasedSelection", "SelectionQuestion"),
}
