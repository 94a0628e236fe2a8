"""Floating-point functions that give the same bits on every processor.

Floor 0: imports from dptrees.dpcore.arrays alone. `FACE` lists the package's public API, by module;
all else is private and may change (tests/test_rooms.py checks both).
"""

FACE = {
    "angles": ("cos", "sin", "sinc", "sine_square", "within_half_turn"),
    "convolutions": ("integer_series_product", "later_terms", "series_product"),
    "dual": ("Dual",),
    "elementary": (
        "cube_root",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log1p",
        "log2",
        "log_add_exp",
        "power",
        "rounded_power",
        "sinh",
        "tanh",
    ),
    "interpolation": ("interpolated",),
    "normal": (
        "erfc",
        "erfcx",
        "log_normal_cdf",
        "normal_cdf",
        "normal_quantile",
        "normal_quantiles",
    ),
    "path_roots": ("path_root_diagonal",),
    "products": ("integer_product", "product"),
    "square_roots": (
        "Corrected",
        "cholesky_factor",
        "decided_rounding",
        "rough_factor",
        "rounded_root_diagonal",
        "square_root",
    ),
    "sums": (
        "binary_exponent",
        "decimal_exponent",
        "dot",
        "hypotenuse",
        "integer_power",
        "ordered_sum",
        "power_of_ten",
        "row_dots",
    ),
    "triangular": ("inverse_upper", "solved_lower", "solved_upper"),
}
