"""Errors of counts repaired to nonnegative integers, by simulation, and plans for these counts.

Floor 4: imports from floors 0 to 3. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "error": ("CountError", "assumed_rows", "can_be_simulated", "count_error"),
    "planner": ("plan_for_counts",),
    "readings": ("objective_reading", "reference_histograms"),
    "references": ("Distribution", "rows_below"),
}
