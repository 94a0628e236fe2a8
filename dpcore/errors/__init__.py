"""Laws of errors, intervals, and errors relative to counts.

Floor 2: imports from floors 0 and 1. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "intervals": (
        "QuantileMargin",
        "QuantileWidths",
        "clipped_intervals",
        "one_sided",
        "prefix_margin",
    ),
    "law": ("BLUR_VARIANCE", "ErrorLaw", "ROUNDING", "SMOOTHING", "law_cumulants"),
    "merged_law": (
        "LawTerms",
        "MergedLaw",
        "distinct",
        "group_widths",
        "joined",
        "power_sums",
        "sum_laws",
    ),
    "moments": ("NodeMoments", "blurred_excess", "noise_cumulant"),
    "relative": (
        "gaussian_alpha_rmse",
        "gaussian_smoothed_relative_error",
        "law_alpha_rmse",
        "law_smoothed_relative_error",
        "mixed_alpha_rmse",
        "mixed_smoothed_relative_error",
    ),
}
