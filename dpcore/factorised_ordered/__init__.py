"""Kind factorised: an ordered domain that is measured by a strategy past trees.

Floor 6: imports from floors 0 to 5. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "compared": ("tree_alike", "tree_rmse"),
    "question": ("FactorisedQuestion", "factorised_question_from_spec"),
    "released": ("ReleasedFactorised",),
    "workload": ("FactorisedWorkload",),
}
