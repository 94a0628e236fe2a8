"""Kind table: wide tables, counted by every column and every pair of columns, to draw rows from.

Floor 9: imports from floors 0 to 8. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "domain": ("DEFAULT_CELLS", "TableDomain"),
    "question": ("TableQuestion", "table_question_from_spec"),
    "released": ("ReleasedTable",),
    "workload": ("TableWorkload",),
}
