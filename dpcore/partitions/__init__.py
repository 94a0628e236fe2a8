"""Partitions that grow where rows are (Holland et al.): plans, growth, estimates, sampling.

Floor 3: imports from floors 0 to 2. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "adaptive": ("AdaptivePartitionPlan",),
    "adaptive_planner": ("plan_adaptive",),
    "choices": ("PartitionChoices", "PartitionSetting", "SHARES"),
    "closest": ("plan_closest", "privhp_choice", "privhp_choices"),
    "least_squares": ("GrownEstimate", "least_squares", "weighted_families"),
    "measurement": (
        "CodeCounts",
        "Measurement",
        "NodeNoise",
        "SummedMeasurement",
        "measured_variance",
    ),
    "mechanism": ("EstimatedTree", "LevelVariances", "PartitionMechanism"),
    "mechanisms": ("mechanism_from_spec",),
    "plan": ("Estimation", "Holding", "LevelSketches", "PartitionPlan"),
    "planner": ("plan_partition", "plan_privtree"),
    "sketched": ("SketchedCounts",),
    "tree": ("GrownLevel", "GrownTree", "MOST_BITS", "Nodes", "descendant_nodes", "prefixes"),
}
