"""Sketches: counts of many codes in few cells, by keyed hash functions.

Floor 2: imports from floors 0 and 1. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "estimators": ("Estimator", "estimates", "estimators_of"),
    "hashing": ("Codes", "SketchHashes"),
    "prefixes": ("PrefixSketches",),
    "row_error": ("ErrorMoments", "RowError"),
    "shape": ("SketchKind", "SketchShape"),
    "table": ("from_bytes", "to_bytes"),
}
