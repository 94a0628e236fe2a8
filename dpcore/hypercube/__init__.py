"""Kind hypercube: boxes of several columns, released as a partition that grows where rows are.

Floor 7: imports from floors 0 to 6. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "domain": ("HypercubeDomain", "cell_bits"),
    "question": ("HypercubeQuestion",),
    "released": ("ReleasedHypercube",),
    "workload": ("HypercubeWorkload", "PLANNERS"),
}
