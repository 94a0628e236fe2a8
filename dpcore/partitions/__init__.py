"""Partitions that grow where rows are (Holland et al.): plans, growth, estimates, sampling.

Floor 3: imports from floors 1 and 2. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "least_squares": ("TreeEstimate", "least_squares"),
    "measurement": ("CodeCounts", "Measurement", "NodeNoise", "noise_variance"),
    "mechanism": ("EstimatedTree", "Mechanism"),
    "plan": ("Estimation", "Holding", "LevelSketches", "PartitionPlan"),
    "planner": ("PartitionChoices", "PartitionSetting", "plan_partition"),
    "sketched": ("SketchedCounts",),
    "tree": ("GrownLevel", "GrownTree", "MOST_BITS", "Nodes", "children_of", "prefixes"),
}
