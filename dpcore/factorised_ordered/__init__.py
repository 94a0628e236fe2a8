"""Kind factorised: an ordered domain that is measured by a strategy past trees.

Floor 7: imports from floors 0 to 6. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "compared": ("tree_alike", "tree_rmse"),
    "workload": ("FactorisedWorkload",),
}
