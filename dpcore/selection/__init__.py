"""Which keys exist, released by private partition selection before trees are made of them.

Floor 4: imports from floors 0 to 3. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "key_columns": ("KeyColumns", "TYPES"),
    "plan": ("SelectionPlan", "counted_once"),
    "question": ("SelectionQuestion",),
    "released": ("ReleasedSelection",),
}
