"""Floating-point functions that give the same bits on every processor.

Floor 0: imports from dpcore.arrays alone. FACE is what others may hold this room to, by module; all
else is its own, and may change freely (a test keeps both).
"""

FACE = {
    "angles": ("cos", "sin", "sinc"),
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
    "sums": (
        "binary_exponent",
        "decimal_exponent",
        "dot",
        "hypotenuse",
        "integer_power",
        "power_of_ten",
        "row_dots",
    ),
}
