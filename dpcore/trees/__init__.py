"""Shapes of trees, chunks, least squares, consistency, and what every forest offers.

Floor 2: imports from floor 1. FACE is what others may hold this room to, by module; all else is its
own, and may change freely (a test keeps both).
"""

FACE = {
    "chunks": (
        "CHUNK_LEAVES",
        "Chunk",
        "Chunking",
    ),
    "consistency": (
        "consistent_counts",
        "root_count",
    ),
    "exact_sums": (
        "LeafSums",
        "level_sums",
        "saturated_sums",
        "words_of",
        "words_total",
    ),
    "forest": (
        "AnyChunk",
        "ChunkedForest",
        "LevelSolution",
        "Measurements",
        "RootSolutions",
        "SPINE",
    ),
    "irregular": ("IrregularTree",),
    "irregular_chunks": (
        "IrregularChunk",
        "IrregularChunking",
    ),
    "least_squares": (
        "EstimationWeights",
        "PrefixWeights",
        "estimate_down",
        "estimate_up",
        "estimation_weights",
        "prefix_weights",
    ),
    "shape": ("Shape",),
    "uniform": (
        "MAX_LEAVES",
        "Tree",
    ),
}
