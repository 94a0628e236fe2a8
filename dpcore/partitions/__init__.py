"""Partitions that grow where rows are (Holland et al.): plans, growth, estimates, sampling.

Floor 3: imports from floors 1 and 2. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "tree": ("GrownTree",),
}
