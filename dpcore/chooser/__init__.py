"""Which mechanism measures a tree where several are open: by a public guess, never by the data.

Floor 8: imports from floors 0 to 7. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "hierarchy": ("ADAPTIVE", "AdaptiveHierarchyWorkload"),
    "ordered": ("OrderedChoice",),
}
