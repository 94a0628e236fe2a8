"""The choice among mechanisms for a tree, by a public guess and never by the data.

Floor 8: imports from floors 0 to 7. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "choice": ("MechanismChoice",),
    "ordered": ("OrderedChoice",),
}
