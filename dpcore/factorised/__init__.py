"""Matrix mechanisms: weighted sums of cells, measured with Gaussian noise.

Floor 6: imports from floors 0 to 5. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "candidate": ("WeightedSums",),
    "forest": ("errors_of",),
    "mechanism": ("FactorisedMechanism",),
    "plan": ("FactorisedPlan",),
    "planner": ("MOST_LEAVES", "MOST_OPTIMAL"),
}
