"""Mechanisms, estimates and formulas as the papers have them.

Floor 4: imports from floors 0 to 3. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "estimator_errors": ("EstimatorErrors", "IndependentErrors"),
    "forest": ("PapersForest",),
    "mechanisms": (
        "LevelBudgets",
        "binary_mechanism",
        "histogram_mechanism",
        "independent_mechanism",
        "published_prefix_variance",
        "tree_mechanism",
    ),
}
