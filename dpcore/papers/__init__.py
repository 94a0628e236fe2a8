"""Mechanisms, estimates and formulas of the papers.

Floor 4: imports from floors 0 to 3. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
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
