"""Matrix mechanisms: weighted sums of cells, measured with Gaussian noise.

Floor 4: imports from floors 0 to 3. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "forest": ("errors_of",),
    "mechanism": ("FactorisedMechanism", "factorised_mechanism_from_spec"),
    "plan": ("FactorisedPlan",),
    "planner": ("MOST_LEAVES", "MOST_OPTIMAL", "plan_strategy", "told_tree"),
    "read": ("Read",),
}
