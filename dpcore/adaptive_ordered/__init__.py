"""Kind adaptive: CDFs and quantiles of trees that are divided only where rows are.

Floor 7: imports from floors 0 to 6. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "whole_levels": ("if_all_split", "most_undivided", "noise_if_all_split", "rows_of_adaptive"),
    "workload": ("AdaptiveWorkload",),
}
