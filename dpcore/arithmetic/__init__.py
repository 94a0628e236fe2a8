"""Floating-point functions that give the same bits on every processor.

Floor 0: imports from dpcore.arrays alone. FACE is what others may hold this room to, by module; all
else is its own, and may change freely (a test keeps both).
"""

FACE = {
    "angles": ("cos", "sin", "sinc", "within_half_turn"),
    "dual": ("Dual",),
    "elementary": (
        "exp",
        "expm1",
        "log",
        "log1p",
        "log_add_exp",
        "log_fraction",
        "power",
        "rounded_power",
        "sinh",
        "tanh",
    ),
    "interpolation": ("interpolated",),
    "normal": ("erfc", "erfcx", "log_normal_cdf", "normal_cdf", "normal_quantile"),
    "sums": (
        "binary_exponent",
        "decimal_exponent",
        "dot",
        "hypotenuse",
        "integer_power",
        "row_dots",
    ),
}
