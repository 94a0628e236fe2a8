"""Arithmetic that gives the same bits on every processor, enforced on the source text.

IEEE 754 rounds + - * / and sqrt exactly, so they are the same everywhere. The functions exp, log,
sin and pow of NumPy and of the C library, the matrix products of BLAS, LAPACK, Fourier transforms,
and sorts that are not stable differ between processors in their last bits or in the order of ties.
No module of the three packages uses them: dpcore/arithmetic has functions made of the exact
operations. Each rule is shown to fail on a
planted source; `tests/processors` measures what the rules rely on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
PACKAGES = ("dpcore", "transforms", "pipelines")
# Exact, or rounded correctly from arguments that are floats, or about integers.
MATH = {
    *("ceil", "comb", "copysign", "e", "fabs", "factorial", "floor", "fmod", "frexp", "fsum"),
    *("gcd", "inf", "isclose", "isfinite", "isinf", "isnan", "isqrt", "lcm", "ldexp", "modf"),
    *("nan", "nextafter", "perm", "pi", "prod", "sqrt", "tau", "trunc", "ulp"),
}
# What NumPy computes without functions, matrix products or an order that a processor chooses:
# tests/processors/test_kept_functions.py runs the arithmetic ones on all emulated processors.
NUMPY = {
    *("abs", "absolute", "add", "all", "allclose", "any", "append", "arange", "argmax", "argmin"),
    *("argsort", "argwhere", "array", "array_equal", "asarray", "ascontiguousarray", "average"),
    *("bincount", "bitwise_and", "bitwise_or", "bitwise_xor", "bool_", "broadcast"),
    *("broadcast_shapes", "broadcast_to", "ceil", "clip", "column_stack", "concatenate"),
    *("copyto", "count_nonzero", "cumprod", "cumsum", "datetime64", "datetime_as_string", "diag"),
    *("diag_indices", "diff", "divide", "divmod", "dtype", "empty", "empty_like", "equal"),
    *("errstate", "expand_dims", "eye", "finfo", "flatnonzero", "flip", "float16", "float32"),
    *("float64", "floating", "floor", "floor_divide", "fmax", "fmin", "frexp", "frombuffer"),
    *("fromiter", "full", "full_like", "generic", "greater", "greater_equal", "hstack", "iinfo"),
    *("inf", "int16", "int32", "int64", "int8", "integer", "intp", "isclose", "isfinite", "isin"),
    *("isinf", "isnan", "isneginf", "issubdtype", "ix_", "ldexp", "less", "less_equal"),
    *("lexsort", "linspace", "logical_and", "logical_not", "logical_or", "max", "maximum"),
    *("mean", "median", "min", "min_scalar_type", "minimum", "modf", "moveaxis", "multiply"),
    *("nan", "nan_to_num", "nanmax", "nanmin", "ndarray", "ndim", "negative", "newaxis"),
    *("nextafter", "nonzero", "not_equal", "ones", "ones_like", "outer", "packbits", "pad", "pi"),
    *("prod", "quantile", "ravel", "reciprocal", "remainder", "repeat", "reshape", "rint"),
    *("roll", "round", "searchsorted", "shape", "sign", "signbit", "signedinteger", "sort"),
    *("split", "sqrt", "square", "stack", "subtract", "sum", "swapaxes", "take"),
    *("take_along_axis", "tile", "timedelta64", "transpose", "tri", "tril", "triu"),
    *("triu_indices", "trunc", "typing", "uint16", "uint32", "uint64", "uint8", "union1d"),
    *("unique", "unpackbits", "unravel_index", "unsignedinteger", "vstack", "where", "zeros"),
    "zeros_like",
}
# Of pyarrow.compute: comparisons, selections, strings, casts and exact numbers.
PYARROW_COMPUTE = {
    *("all", "and_", "any", "array_sort_indices", "ascii_lower", "ascii_ltrim"),
    *("binary_join_element_wise", "binary_length", "cast", "CastOptions", "coalesce", "count"),
    *("equal", "extract_regex", "fill_null", "floor", "greater", "greater_equal", "if_else"),
    *("index", "index_in", "invert", "is_in", "is_null", "is_valid", "less", "less_equal"),
    *("list_flatten", "list_value_length", "match_substring", "match_substring_regex", "max"),
    *("min", "not_equal", "or_", "replace_substring", "replace_substring_regex"),
    *("replace_with_mask", "run_end_decode", "sort_indices", "split_pattern", "starts_with"),
    *("string_is_ascii", "struct_field", "unique", "utf8_rpad", "utf8_slice_codeunits"),
    *("utf8_trim_whitespace", "value_counts"),
}
ALLOWED = {"math": MATH, "numpy": NUMPY, "pyarrow.compute": PYARROW_COMPUTE}
# Of Python itself, and by others: logarithms, transforms and root finding.
FORBIDDEN_MODULES = {
    "cmath": "complex numbers",
    "dp_accounting": "computes with SciPy and Fourier transforms",
    "numpy.fft": "Fourier transforms",
    "numpy.linalg": "LAPACK",
    "scipy": "is compiled with functions of the C library",
    "statistics": "logarithms (NormalDist) and sums that changed with Python 3.12",
}
FORBIDDEN_METHODS = {
    "argpartition": "its order of ties follows from the processor",
    "dot": "a matrix product of BLAS",
}
UFUNC_METHODS = {"accumulate", "at", "outer", "reduce", "reduceat"}
WHOLE = "whole numbers or fractions"
EXACT_PRODUCTS = "every product and every sum of products is a whole number below 2^53"
CORRECTED = "a start that is corrected to more digits than are kept"
# By file: why what the rules forbid is the same on every processor all the same.
_REVIEWED: tuple[tuple[str, dict[str, str]], ...] = (
    ("dpcore/arithmetic/elementary.py", dict.fromkeys(["(-1.0) ** n"], "a sign, of whole n")),
    (
        "dpcore/arithmetic/sums.py",
        dict.fromkeys(
            ["numpy.complex128", "numpy.fft", "numpy.fft.irfft", "numpy.fft.rfft"],
            "errors of the transforms stay below a half, and results are rounded to whole numbers",
        ),
    ),
    (
        "dpcore/arithmetic/elementary.py",
        {"Decimal(x) ** Decimal(y)": "decimal arithmetic, in whole numbers"},
    ),
    (
        "dpcore/arithmetic/matrices.py",
        dict.fromkeys(
            [
                "slices[i] @ slices[level - i].T",
                "a.astype(np.float64) @ b.astype(np.float64)",
                "a @ b",
                "left[i] @ right[level - i]",
            ],
            EXACT_PRODUCTS,
        ),
    ),
    (
        "dpcore/arithmetic/matrices.py",
        {
            **dict.fromkeys(
                [
                    *("numpy.linalg", "numpy.linalg.cholesky", "numpy.linalg.eigh"),
                    *("numpy.linalg.inv", "vectors * vectors @ roots"),
                    "inverse[rows, :rows.stop] @ left[:rows.stop]",
                    "halfway[below, upto] @ inverse[part, upto].T",
                    "start[rows, upto] @ change[upto, upto]",
                    "result[half:, half:] @ matrix[half:, :half]",
                    "across @ result[:half, :half]",
                    "first[rows] @ second[:, :rows.stop]",
                    *("vectors * _roots(values) @ vectors.T", "factor @ factor.T"),
                    *("gram_residual(matrix, start) @ vectors", "vectors @ left"),
                ],
                CORRECTED,
            ),
            "2.0 ** float(np.frexp(np.abs(matrix).max())[1] - _START_BITS)": "a whole power of two",
        },
    ),
    (
        "dpcore/bounding/runs.py",
        {
            "np.argsort(first)": "sorted again by both halves if equal ones differ in the second",
            "np.argsort(words)": "of equal words only whole numbers are summed",
        },
    ),
    ("dpcore/exponential/choice.py", dict.fromkeys(["STEPS ** LEVELS", "STEPS ** turn"], WHOLE)),
    (
        "dpcore/factorised/strategies.py",
        dict.fromkeys(["FANOUT ** (below + 1)", "FANOUT ** below"], WHOLE),
    ),
    ("dpcore/noise/laws.py", dict.fromkeys(["_MAX_SCALE ** power", "_MIN_SCALE ** power"], WHOLE)),
    (
        "dpcore/papers/plans.py",
        dict.fromkeys(
            [
                *("height ** power", "len(fanouts) ** power"),
                *("(fanout + 1) ** larger", "fanout ** (height - larger)"),
            ],
            WHOLE,
        ),
    ),
    (
        "dpcore/papers/ghazi.py",
        dict.fromkeys(
            ["(1 - 1 / self.ratio) ** (-2)", "self.ratio ** (i - 1)", "self.ratio ** i"], WHOLE
        ),
    ),
    (
        "dpcore/papers/rameshwar.py",
        dict.fromkeys(["(checked_leaves(leaves) - 1) ** 3", "fanout ** j"], WHOLE),
    ),
    (
        "dpcore/papers/rameshwar_optima.py",
        dict.fromkeys(
            [
                *("_SHARE_UNITS ** (2 * degree)", "root ** degree", "root ** (degree - 1)"),
                *("prime ** smaller", "prime ** (smaller + 1)", "base ** exponent"),
                *("root ** height", "height ** power", "prime ** np.arange(exponent + 1)"),
                *("len(fanouts) ** VARIANCE_POWER[measure]", "height ** 3", "count ** count"),
            ],
            WHOLE,
        ),
    ),
    (
        "dpcore/privacy/composition.py",
        dict.fromkeys(
            [
                *("numpy.complex128", "numpy.fft", "numpy.fft.irfft", "numpy.fft.rfft"),
                "np.fft.rfft(grid.weights, size) ** n",
            ],
            "the result, with a bound of its error, is rounded up to six digits",
        ),
    ),
    (
        "dpcore/repair/planner.py",
        dict.fromkeys(
            [
                "fanout ** (height - 1)",
                "(fanout + _NEARLY) ** height",
                "(fanout - 1 + _NEARLY) ** height",
            ],
            WHOLE,
        ),
    ),
    ("dpcore/thresholds/calibration.py", dict.fromkeys(["_DELTA_RATIO ** number"], WHOLE)),
    (
        "pipelines/proof/tables.py",
        dict.fromkeys(
            [
                f"dp_accounting.pld.privacy_loss_distribution{member}"
                for member in (
                    *("", ".identity", ".from_discrete_gaussian_mechanism"),
                    ".from_discrete_laplace_mechanism",
                )
            ],
            "printed to six digits by `dptrees verify`, and never written",
        ),
    ),
)
REVIEWED: dict[str, dict[str, str]] = {}
for _path, _reasons in _REVIEWED:
    REVIEWED.setdefault(_path, {}).update(_reasons)


def aliases(tree: ast.Module) -> dict[str, str]:
    """Return what imported names mean, as dotted names."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                known[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return known


def dotted(node: ast.AST, known: dict[str, str]) -> str | None:
    """Return the dotted name that an expression means; None if it is no imported name."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value, known)
        return None if owner is None else f"{owner}.{node.attr}"
    return None


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the dotted name of every import and every use of an imported name."""
    known = aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute | ast.Name) and (name := dotted(node, known)):
            yield node.lineno, name


def forbidden_name(name: str) -> str | None:
    """Return why a dotted name is forbidden, or None."""
    for module, why in FORBIDDEN_MODULES.items():
        if f"{name}.".startswith(f"{module}."):
            return f"{name}: {why}"
    for module, allowed in ALLOWED.items():
        if name.startswith(f"{module}.") and name != "pyarrow.compute":
            member = name.removeprefix(f"{module}.").split(".")[0]
            if member not in allowed:
                return f"{name}: is not reviewed to be the same on every processor"
    return None


def name_violations(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and sentence for what is imported or used."""
    for line, name in names(tree):
        if why := forbidden_name(name):
            yield line, name, why


def is_stable(call: ast.Call) -> bool:
    """Whether a call of a sort says that ties keep their order."""
    given = {each.arg: ast.unparse(each.value) for each in call.keywords}
    return given.get("kind") in ("'stable'", "'mergesort'") or given.get("stable") == "True"


def call_violations(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield calls of methods and functions that are forbidden, and sorts that are not stable."""
    known = aliases(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        text = ast.unparse(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else None
        if name in FORBIDDEN_METHODS and dotted(node.func, known) is None:
            yield node.lineno, text, f".{name}(): {FORBIDDEN_METHODS[name]}"
        elif name == "argsort" and not is_stable(node):
            yield node.lineno, text, 'argsort without kind="stable": ties follow the processor'
        elif isinstance(node.func, ast.Name) and node.func.id == "complex":
            yield node.lineno, text, "complex(): products of complex numbers"
        elif isinstance(node.func, ast.Name) and node.func.id == "pow" and len(node.args) == 2:
            yield node.lineno, text, "pow() of two arguments: a function of the C library"


def is_exact_power(node: ast.BinOp) -> bool:
    """Whether a power is exact for what its text shows.

    Whole numbers and fractions are raised exactly, and a power of two is exact as a float. An
    exponent of 2 is left to tests/processors/test_releases.py, which sees values: arrays are
    squared by a product, a float of Python is not.
    """
    base, exponent = node.left, node.right
    if isinstance(exponent, ast.Constant) and exponent.value == 2:
        return not isinstance(exponent.value, float)
    if isinstance(base, ast.Call) and ast.unparse(base.func) in ("Fraction", "int"):
        return is_whole(exponent)
    if not (isinstance(base, ast.Constant) and isinstance(base.value, int | float)):
        return False
    negative = isinstance(exponent, ast.UnaryOp) and isinstance(exponent.op, ast.USub)
    if base.value == 2:
        return is_whole(exponent)
    return isinstance(base.value, int) and is_whole(exponent) and not negative


def is_whole(exponent: ast.expr) -> bool:
    """Whether an exponent's text shows no division and no float."""
    inside = list(ast.walk(exponent))
    floats = any(isinstance(each, ast.Constant) and type(each.value) is float for each in inside)
    converted = any(isinstance(each, ast.Name) and each.id == "float" for each in inside)
    return not (floats or converted or any(isinstance(each, ast.Div) for each in inside))


def operator_violations(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield matrix products, complex constants and powers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, complex):
            yield node.lineno, ast.unparse(node), "a complex number"
        if not isinstance(node, ast.BinOp | ast.AugAssign):
            continue
        if isinstance(node.op, ast.MatMult):
            yield node.lineno, ast.unparse(node), "@: a matrix product of BLAS"
        elif isinstance(node.op, ast.Pow) and not (
            isinstance(node, ast.BinOp) and is_exact_power(node)
        ):
            yield node.lineno, ast.unparse(node), "**: pow of the C library if it is of floats"


def violations(path: str, source: str) -> list[str]:
    """Return every rule that the source of one module breaks."""
    return [
        f"{path}:{line}: {text}: {why}"
        for line, text, why in sorted(set(find_violations(ast.parse(source))))
        if text not in REVIEWED.get(path, {})
    ]


def find_violations(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield line, text and sentence of everything that breaks a rule, reviewed or not."""
    yield from name_violations(tree)
    yield from call_violations(tree)
    yield from operator_violations(tree)


def modules() -> list[str]:
    """Return the paths of all modules of the three packages."""
    return sorted(
        path.relative_to(PROJECT).as_posix()
        for package in PACKAGES
        for path in (PROJECT / package).rglob("*.py")
    )


def all_violations() -> list[str]:
    """Return what breaks a rule in the three packages."""
    return [
        each
        for path in modules()
        for each in violations(path, (PROJECT / path).read_text(encoding="utf-8"))
    ]


def test_arithmetic_is_the_same_on_every_processor() -> None:
    assert {f"{package}/__init__.py" for package in PACKAGES} <= set(modules())
    found = all_violations()
    assert not found, f"{len(found)} places:\n" + "\n".join(found)


def test_every_review_is_needed() -> None:
    """What is reviewed is still there: a review of other code would let anything pass."""
    unneeded = []
    for path, reviewed in REVIEWED.items():
        tree = ast.parse((PROJECT / path).read_text(encoding="utf-8"))
        used = {text for _, text, _ in find_violations(tree)}
        unneeded += [f"{path}: {text}" for text in reviewed if text not in used]
    assert not unneeded


OUTSIDE = "dpcore/trees/error_laws.py"
# What follows np., math. and pc.
NUMPY_CALLS = (
    *("exp(x)", "power(x, 3)", "float_power(x, 3)", "sin(x) + np.cosh(x)", "arctan2(x, y)"),
    *("cbrt(x)", "hypot(x, y)", "einsum('ij,j', x, y)", "dot(x, y)", "matmul(x, y)"),
    *("inner(x, y)", "tensordot(x, y)", "vdot(x, y)", "linalg.solve(x, y)", "fft.rfft(x)"),
    *("interp(x, a, b)", "convolve(x, y)", "correlate(x, y)", "geomspace(1, 2, 9)"),
    *("logspace(1, 2, 9)", "sinc(x)", "logaddexp.reduce(x)", "zeros(3, np.complex128)"),
    *("argpartition(x, 3)", "partition(x, 3)", "argsort(x)", "argsort(x, kind='quicksort')"),
)
MATH_CALLS = (
    *("exp(x)", "log2(x)", "pow(x, 2)", "erf(x)", "lgamma(x)", "hypot(x, y)", "dist(x, y)"),
    *("sumprod(x, y)", "fma(x, y, z)"),
)
COMPUTE_CALLS = ("sum(x)", "mean(x)", "exp(x)")
PLANTED = (
    *(f"import numpy as np\ny = np.{each}" for each in NUMPY_CALLS),
    *(f"import math\ny = math.{each}" for each in MATH_CALLS),
    *(f"import pyarrow.compute as pc\ny = pc.{each}" for each in COMPUTE_CALLS),
    *("import numpy as np\ny = list(map(np.log, x))", "import numpy\ny = numpy.expm1(x)"),
    *("from numpy import log1p", "from numpy import log1p as careful\ny = careful(x)"),
    *("from numpy.linalg import norm", "from numpy import linalg", "y = x.argsort()"),
    *("y = x.argsort(axis=0)", "y = x.argpartition(3)", "y = x.dot(z)", "y = x @ z", "x @= z"),
    *("y = 1j * x", "y = complex(1, x)", "y = x**0.5", "y = x**n", "y = 10**-3", "y = 10.0**3"),
    *("y = 2**0.5", "y = 2 ** (n / 2)", "y = 2.0 ** (0.5 * n)", "y = x**2.0", "y = 10 ** -n"),
    *("x **= 2", "y = pow(x, 0.5)", "from math import exp", "import cmath"),
    *("from statistics import NormalDist", "from scipy.special import ndtr"),
    *("from scipy import optimize", "import scipy.optimize"),
    "from dp_accounting.pld import privacy_loss_distribution",
    "import pyarrow.compute\ny = pyarrow.compute.variance(x)",
    "from pyarrow.compute import power",
)
ALLOWED_SOURCES = (
    "import numpy as np\ny = np.sqrt(x) * x + np.sum(x) / np.mean(x)",
    "import numpy as np\ny = np.add.reduceat(x, starts) - np.bincount(places, x)",
    "import numpy as np\ny = np.argsort(x, kind='stable')",
    "y = x.argsort(axis=1, kind='stable')",
    "import numpy as np\ny = np.outer(x, x) - np.square(x)",
    "import math\ny = math.sqrt(math.fsum(x)) + math.floor(z) + math.inf",
    "y = x * x",
    "y = 2**20 + 10**9 + 2.0**-53 + 5**0 + 2**n + Fraction(10) ** (n - 1)",
    "y = x**2",
    "y = pow(3, n, 7)",
    "head, _, tail = text.partition(':')",
    "from dptrees.dpcore.arithmetic.elementary import exp, log\ny = exp(x) + log(x)",
    "import pyarrow.compute as pc\ny = pc.floor(x)",
    '"""np.exp, x @ y and x**0.5 in a docstring."""',
)


def test_planted_violations_are_found() -> None:
    missed = [source for source in PLANTED if not violations(OUTSIDE, source)]
    assert not missed


def test_allowed_sources_pass() -> None:
    found = [each for source in ALLOWED_SOURCES for each in violations(OUTSIDE, source)]
    assert not found
    # What dpcore/arithmetic offers in place of NumPy's functions is not made of them.
    assert violations("dpcore/arithmetic/elementary.py", "import numpy as np\ny = np.exp(x)")
