"""Kind hypercube: boxes of several columns, released as a partition that grows where rows are.

Floor 7: imports from floors 0 to 6. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "domain": ("HypercubeDomain", "cell_bits"),
    "question": ("HypercubeQuestion",),
    "released": ("ReleasedHypercube",),
    "workload": ("HypercubeWorkload", "PLANNERS"),
}
