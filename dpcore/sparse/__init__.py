"""Kind sparse: heavy nodes of codes, labels and paths that nobody lists.

Floor 4: imports from floors 1 to 3. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "counter": (
        "SparseCounter",
        "merge_shard",
    ),
    "domain": (
        "CodeDomain",
        "NOTATIONS",
        "SparseDomain",
    ),
    "labels": (
        "LabelDomain",
        "PathDomain",
    ),
    "node_counts": ("NodeCounts",),
    "paths": ("last_labels",),
    "publication": (
        "publish_shard",
        "shard_digest",
    ),
    "question": (
        "SparseQuestion",
        "sparse_question_from_spec",
    ),
    "released": ("ReleasedSparse",),
    "settling": ("Pruning",),
    "workload": ("SparseWorkload",),
    "solution": (
        "shard_counts",
        "solve_sparse",
        "sparse_tables",
    ),
}
