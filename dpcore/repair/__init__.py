"""What the repair to nonnegative integers does to errors, by simulation, and plans for its counts.

Floor 4: imports from floors 0 to 3. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "error": ("assumed_rows", "can_be_simulated", "count_error"),
    "planner": ("plan_for_counts",),
}
