"""Matrix mechanisms: weighted sums of cells, measured with Gaussian noise.

Floor 6: imports from floors 0 to 5. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "candidate": ("WeightedSums",),
    "forest": ("compute_errors",),
    "mechanism": ("FactorizedMechanism",),
    "planner": ("MOST_LEAVES", "MOST_OPTIMAL"),
    "toeplitz": ("ToeplitzStrategy",),
}
