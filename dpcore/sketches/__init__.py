"""Sketches: counts of many codes in few cells, by keyed hash functions.

Floor 2: imports from floors 0 and 1. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "estimators": ("SketchEstimator", "estimates", "kind_estimators"),
    "hashing": ("SketchHashes",),
    "prefixes": ("PrefixSketches",),
    "row_error": ("ErrorMoments", "RowError"),
    "shape": ("SketchKind", "SketchShape"),
    "table": ("from_bytes", "to_bytes"),
}
