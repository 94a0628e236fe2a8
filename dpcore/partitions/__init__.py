"""Partitions that grow where rows are (Holland et al.): plans, growth, estimates, sampling.

Floor 3: imports from floors 0 to 2. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "adaptive": ("AdaptivePartitionPlan",),
    "adaptive_planner": ("plan_adaptive",),
    "choices": ("PartitionChoices", "PartitionSetting", "SHARES"),
    "least_squares": ("TreeEstimate", "least_squares", "weighted_families"),
    "measurement": ("CodeCounts", "Measurement", "NodeNoise"),
    "mechanism": ("EstimatedTree", "Mechanism", "NodeVariances"),
    "mechanisms": ("mechanism_from_spec",),
    "plan": ("Estimation", "Holding", "LevelSketches", "PartitionPlan"),
    "planner": ("plan_partition", "plan_privtree"),
    "sketched": ("SketchedCounts",),
    "tree": ("GrownLevel", "GrownTree", "MOST_BITS", "Nodes", "children_of", "prefixes"),
}
