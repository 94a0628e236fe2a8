"""Rows bounded per privacy unit: ids of units, runs of their rows, the keyed choice of what stays.

Floor 4: imports from floors 0 to 3. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "unit_ids": ("NEEDED", "UnitIds", "Units", "check_unit_types"),
    "unit_rows": ("MOST_SHARDS", "SHARDS", "TreeBounding", "WAITING_ROWS"),
    "unit_values": ("declared_values",),
}
