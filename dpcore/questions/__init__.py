"""What a tree of a release is to all that stands above it.

Floor 3: imports from floors 1 and 2. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "parts": ("ChunkAnswer",),
    "question": (
        "ChunkedQuestion",
        "Intervals",
        "MovedCounts",
        "Question",
    ),
    "released": (
        "Answer",
        "ReadPart",
        "Released",
        "ReleasedTree",
        "named_level",
    ),
    "workload": (
        "Noise",
        "Share",
        "Terms",
        "Way",
        "Workload",
    ),
    "tables": (
        "CDF",
        "NODES",
        "NODES_SCHEMA",
        "nodes_table",
        "number_column",
        "spine_table",
        "tree_and_key",
    ),
}
