"""Kind sparse: heavy nodes of codes, labels and paths that nobody lists.

Floor 4: imports from floors 0 to 3. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "domain": ("CodeDomain", "NOTATIONS", "SparseDomain"),
    "labels": ("LabelDomain", "PathDomain"),
    "paths": ("last_labels",),
    "question": ("SparseQuestion",),
    "released": ("ReleasedSparse",),
    "settling": ("Pruning",),
    "workload": ("SparseWorkload",),
}
