"""Budgets, sensitivities, conversions between measures of privacy, group privacy.

Floor 2: imports from floors 0 and 1. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "budget": ("Budget", "Measure", "Neighbors", "amount_text"),
    "conversion": ("calibrated_rho", "zcdp_epsilon", "zcdp_rho"),
    "decimal_rank": ("decimal_rank", "four_digits"),
    "group": ("GroupPrivacy", "rounded_down"),
    "least_epsilon": ("least_epsilon",),
    "loss": ("certified_delta",),
    "selection": ("SelectionLaw",),
    "sensitivity": (
        "amount_factor",
        "distance_sensitivity",
        "distinct_sensitivity",
        "split_sensitivity",
        "excess_sensitivity",
        "level_law",
        "level_sensitivity",
        "noise_law",
        "periods_sensitivity",
        "prefix_sensitivity",
        "rank_sensitivity",
        "sketch_sensitivity",
        "sum_sensitivity",
        "tail_sensitivity",
        "weighted_periods_sensitivity",
    ),
    "spending": ("MovedCounts", "Spending", "moved_of_levels"),
    "unit": ("MOST_ROWS", "NullUnits", "PrivacyUnit", "SUBSTITUTE_ROW", "UnitType"),
}
