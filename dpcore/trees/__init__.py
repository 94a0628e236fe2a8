"""Shapes of trees, chunks, least squares, consistency, and what every forest offers.

Floor 2: imports from floors 0 and 1. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "chunks": (
        "CHUNK_LEAVES",
        "Chunk",
        "Chunking",
        "IrregularChunking",
        "SPINE_LEAVES",
        "UniformChunking",
        "branch_index",
    ),
    "closest_cdf": ("closest_cdf_l1", "closest_cdf_l2"),
    "consistency": ("consistent_counts", "root_count", "split_counts"),
    "exact_sums": ("LeafSums", "level_sums", "saturated_sums", "split_words", "words_total"),
    "forest": (
        "Forest",
        "LevelSolution",
        "Measurements",
        "PrefixSolution",
        "RootSolutions",
        "SPINE",
        "level_solutions",
    ),
    "irregular": ("IrregularTree",),
    "irregular_consistency": ("split_among_children",),
    "least_squares": (
        "EstimationWeights",
        "PrefixWeights",
        "estimate_down",
        "estimate_up",
        "estimation_weights",
        "prefix_weights",
        "weighted_variance",
    ),
    "linear_forest": ("Known", "LinearForest"),
    "shape": ("Shape",),
    "shrunk": ("rising_counts",),
    "uniform": ("MAX_LEAVES", "UniformTree"),
    "whole_trees": ("SingleChunkTrees",),
}
