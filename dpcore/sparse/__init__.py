"""Kind sparse: heavy nodes of codes, labels and paths that nobody lists.

Floor 4: imports from floors 0 to 3. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "domain": ("CodeDomain", "NOTATIONS", "SparseDomain"),
    "labels": ("LabelDomain", "PathDomain"),
    "paths": ("last_labels",),
    "pruning": ("Pruning",),
    "question": ("SparseQuestion",),
    "released": ("ReleasedSparse",),
    "workload": ("SparseWorkload",),
}
