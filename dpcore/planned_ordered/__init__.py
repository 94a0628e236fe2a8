"""What the mechanism planned takes of an ordered domain: whole levels, or what is closer.

Floor 8: imports from floors 0 to 7. FACE is what others may hold this room to, by module; all else
is its own, and may change freely (a test keeps both).
"""

FACE = {
    "for_counts": ("CountsWorkload",),
    "for_estimates": ("EstimatesWorkload",),
    "guessed": ("GuessedWorkload",),
}
