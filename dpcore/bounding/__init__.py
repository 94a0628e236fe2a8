"""Contribution bounding: ids of privacy units, their rows and periods, the keyed choice of rows.

Floor 4: imports from floors 0 to 3. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "counted_units": ("CountedUnits",),
    "unit_families": ("mixed_families", "unit_families", "unit_family"),
    "unit_ids": ("NEEDED", "UnitIds", "Units", "check_unit_types", "has_ids", "value_ids"),
    "unit_rows": ("MOST_SHARDS", "SHARDS", "TreeBounding", "WAITING_ROWS", "planned_shards"),
    "unit_values": ("declared_values",),
}
