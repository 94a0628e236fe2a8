"""Digests of what functions that the product relies on give, one line each.

    python -m tests.processors.kept_functions [forbidden]

The arguments are fixed. With ``forbidden`` it prints results of functions that the lint forbids,
which show that an emulated processor is another one.
"""

from __future__ import annotations

import hashlib
import io
import math
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Functions = dict[str, Callable[[], Any]]

LENGTH = 20_011  # no multiple of what a processor takes at once
_random = np.random.default_rng(20261123)
X = _random.normal(0, 3, LENGTH) * 2.0 ** _random.integers(-12, 12, LENGTH)
POSITIVE = np.abs(X) + 1e-3
TIES = np.round(X * 4) / 4 + 0.0
ZEROS = np.where(_random.random(LENGTH) < 0.3, -0.0, np.maximum(X, 0.0))
INTEGERS = _random.integers(-(2**62), 2**62, LENGTH)
SMALL = _random.integers(0, 40, LENGTH)
MATRIX = X[:20_000].reshape(125, 160)
CUBE = X[:19_380].reshape(17, 30, 38)
WORDS = np.array([f"w{each}" for each in SMALL])
STARTS = np.flatnonzero(_random.random(LENGTH) < 0.02)
LENGTHS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 128, 129, 255, 257, 1000, 8191, 8193)


def _at(kind: Any, values: Any) -> Any:
    total = np.zeros(40)
    kind.at(total, SMALL, values)
    return total


NUMPY: Functions = {
    "add": lambda: X + POSITIVE,
    "subtract": lambda: X - POSITIVE,
    "multiply": lambda: X * POSITIVE,
    "divide": lambda: X / POSITIVE,
    "multiply, then add": lambda: X * POSITIVE + X,
    "reciprocal": lambda: np.reciprocal(POSITIVE),
    "sqrt": lambda: np.sqrt(POSITIVE),
    "square": lambda: np.square(X),
    "** 2 of arrays": lambda: X**2,
    "floor division": lambda: X // 0.7,
    "remainder": lambda: X % 0.7,
    "divmod": lambda: np.stack(np.divmod(X, POSITIVE)),
    "divmod of integers": lambda: np.stack(np.divmod(INTEGERS, SMALL + 3)),
    "sum of every length": lambda: [X[:length].sum() for length in LENGTHS],
    "sum from every start": lambda: [X[start : start + 1001].sum() for start in range(33)],
    "sum of every other": lambda: [X[::step].sum() for step in (2, 3, 5, 16)],
    "sum backwards": lambda: X[::-1].sum(),
    "sum over rows": lambda: MATRIX.sum(axis=0),
    "sum over columns": lambda: MATRIX.sum(axis=1),
    "sum of a transpose": lambda: [MATRIX.T.sum(), *MATRIX.T.sum(axis=0)],
    "sum in the order of Fortran": lambda: np.asfortranarray(MATRIX).sum(axis=1),
    "sum over middle axes": lambda: [*CUBE.sum(axis=1).ravel(), *CUBE.sum(axis=(0, 2))],
    "sum where": lambda: X.sum(where=X > 0),
    "sum of integers": lambda: INTEGERS.sum(),
    "add.reduce": lambda: np.add.reduce(MATRIX, axis=1),
    "add.reduceat": lambda: np.add.reduceat(X, STARTS),
    "add.reduceat over rows": lambda: np.add.reduceat(MATRIX, [0, 3, 4, 90], axis=0),
    "maximum.reduceat": lambda: np.maximum.reduceat(X, STARTS),
    "add.at": lambda: _at(np.add, X),
    "maximum.at": lambda: _at(np.maximum, X),
    "cumsum": lambda: np.cumsum(X),
    "cumsum over rows": lambda: np.cumsum(MATRIX, axis=0),
    "cumsum over columns": lambda: np.cumsum(MATRIX, axis=1),
    "cumprod": lambda: np.cumprod(1 + X[:3000] * 1e-6),
    "prod": lambda: [np.prod(1 + X * 1e-6), *np.prod(1 + MATRIX * 1e-6, axis=1)],
    "maximum.accumulate": lambda: np.maximum.accumulate(X),
    "bincount": lambda: np.bincount(SMALL, X),
    "mean": lambda: [X.mean(), *MATRIX.mean(axis=0), *MATRIX.mean(axis=1)],
    "average": lambda: [np.average(X, weights=POSITIVE), *np.average(MATRIX, axis=1)],
    "median": lambda: np.median(MATRIX, axis=1),
    "quantile": lambda: np.quantile(X, [0.1, 0.37, 0.9]),
    "var": lambda: [X.var(), *MATRIX.var(axis=0)],
    "outer": lambda: np.outer(X[:99], POSITIVE[:77]),
    "diff": lambda: np.diff(X),
    "linspace": lambda: np.linspace(0.1, 7.3, 333),
    "maximum and minimum": lambda: np.stack([np.maximum(X, ZEROS), np.minimum(ZEROS, X)]),
    "maximum with zero": lambda: np.stack([np.maximum(ZEROS, 0.0), np.maximum(0.0, ZEROS)]),
    "minimum with zero": lambda: np.stack([np.minimum(ZEROS, 0.0), np.minimum(0.0, ZEROS)]),
    "clip": lambda: np.clip(ZEROS, 0.0, 1.5),
    "max and min": lambda: [X.max(), X.min(), *MATRIX.max(axis=1), *MATRIX.min(axis=0)],
    "argmax and argmin": lambda: [TIES.argmax(), TIES.argmin(), *MATRIX.argmax(axis=1)],
    "round": lambda: [*np.round(X, 3), *np.round(X, -1)],
    "rint, floor, ceil, trunc": lambda: [f(X * 7) for f in (np.rint, np.floor, np.ceil, np.trunc)],
    "modf": lambda: np.stack(np.modf(X)),
    "frexp": lambda: np.stack(np.frexp(X)),
    "ldexp": lambda: np.ldexp(X, SMALL - 20),
    "nextafter": lambda: np.nextafter(X, POSITIVE),
    "absolute and sign": lambda: np.stack([np.abs(X), np.sign(X), -X]),
    "to integers": lambda: [(X * 1e6).astype(np.int64), POSITIVE.astype(np.uint64)],
    "from integers": lambda: [INTEGERS.astype(np.float64), INTEGERS.view(np.uint64) * 1.0],
    "sort": lambda: [np.sort(X), np.sort(INTEGERS), np.sort(TIES), np.sort(SMALL.astype(np.int32))],
    "sort of rows": lambda: [np.sort(MATRIX, axis=0), np.sort(MATRIX, axis=1)],
    "stable argsort": lambda: [np.argsort(each, kind="stable") for each in (TIES, SMALL, WORDS)],
    "stable argsort of rows": lambda: np.argsort(np.rint(MATRIX), axis=1, kind="stable"),
    "lexsort": lambda: np.lexsort((TIES, SMALL)),
    "unique": lambda: [
        part
        for each in (TIES, SMALL, INTEGERS)
        for part in np.unique(each, return_index=True, return_inverse=True, return_counts=True)
    ],
    "unique texts": lambda: [*np.unique(WORDS, return_inverse=True)[1]],
    "searchsorted": lambda: [
        np.searchsorted(np.sort(TIES), X, side=side) for side in ("left", "right")
    ],
    "comparisons": lambda: [X < POSITIVE, X == TIES, np.isclose(X, TIES), np.isnan(X / X)],
    "where": lambda: np.where(X > 0, X, ZEROS),
    "take_along_axis": lambda: np.take_along_axis(MATRIX, np.argsort(MATRIX, 1, "stable"), 1),
    "datetimes": lambda: (np.datetime64("2013-01-01") + SMALL).astype("datetime64[M]").astype(int),
}
PYTHON: Functions = {
    "fsum": lambda: math.fsum(X),
    "sqrt of Python": lambda: [math.sqrt(each) for each in POSITIVE.tolist()],
    "products of Python": lambda: [a * b + a for a, b in zip(X.tolist(), X[::-1], strict=True)],
    "quotients of Python": lambda: [a / b for a, b in zip(X.tolist(), POSITIVE, strict=True)],
    "remainders of Python": lambda: [a % 0.7 for a in X.tolist()],
    "round of Python": lambda: [round(each, 3) for each in X.tolist()],
    "quotients of integers": lambda: [int(a) / 977 for a in INTEGERS],
    "fractions": lambda: [float(Fraction(int(a), 10**17 + 1)) for a in INTEGERS[:2000]],
    "decimals": lambda: [float(Decimal(each) / 3) for each in X[:2000].tolist()],
    "texts of floats": lambda: [repr(each) for each in X.tolist()],
    "floats of texts": lambda: [float(f"{each:.15g}") for each in X.tolist()],
    "formats": lambda: [f"{each:.3f} {each:.6g} {each:e}" for each in X.tolist()],
    "powers of two": lambda: [2.0**each for each in range(-1000, 1000)],
    "ldexp of Python": lambda: [math.ldexp(each, 7) for each in X.tolist()],
    "fmod": lambda: [math.fmod(each, 0.7) for each in X.tolist()],
}


def _parquet() -> bytes:
    sink = io.BytesIO()
    table = pa.table({"x": X, "ties": TIES, "small": SMALL, "word": WORDS})
    pq.write_table(table, sink, compression="zstd", compression_level=1)
    return sink.getvalue()


_ARRAY, _TIES_ARRAY = pa.array(X), pa.array(TIES)
PYARROW: Functions = {
    "array_sort_indices": lambda: pc.array_sort_indices(_TIES_ARRAY).to_numpy(),
    "sort_indices": lambda: pc.sort_indices(pa.array(SMALL)).to_numpy(),
    "value_counts": lambda: repr(pc.value_counts(_TIES_ARRAY).to_pylist()),
    "unique of pyarrow": lambda: pc.unique(_TIES_ARRAY).to_numpy(),
    "floor": lambda: pc.floor(_ARRAY).to_numpy(),
    "max of pyarrow": lambda: [pc.max(_ARRAY).as_py(), pc.min_max(_ARRAY)["min"].as_py()],
    "cast to integers": lambda: pc.cast(pc.floor(_ARRAY), pa.int64()).to_numpy(),
    "cast to texts": lambda: repr(pc.cast(_ARRAY, pa.string()).to_pylist()),
    "cast to floats": lambda: pc.cast(pc.cast(_ARRAY, pa.string()), pa.float64()).to_numpy(),
    "cast of integers": lambda: pc.cast(pa.array(INTEGERS), pa.float64(), safe=False).to_numpy(),
    "comparison": lambda: repr(pc.less(_ARRAY, _TIES_ARRAY).to_pylist()),
    "if_else": lambda: pc.if_else(pc.less(_ARRAY, 0.5), _ARRAY, _TIES_ARRAY).to_numpy(),
    "index_in": lambda: pc.index_in(pa.array(WORDS), pa.array(["w3", "w7"])).fill_null(-1).tolist(),
    "dictionary": lambda: repr(pa.array(WORDS).dictionary_encode().indices.to_pylist()),
    "Parquet": _parquet,
}


def _ours() -> Functions:
    """All functions of dpcore/arithmetic on arrays, and on a few floats of Python."""
    from dptrees.dpcore.arithmetic import elementary, normal, sums
    from dptrees.dpcore.arithmetic import elementary as angles
    from dptrees.dpcore.arithmetic import sums as interpolation

    probability = np.clip(POSITIVE / 4000, 1e-300, 1 - 1e-16)
    onto: dict[Any, Any] = {
        elementary.exp: X,
        elementary.expm1: X,
        elementary.log: POSITIVE,
        elementary.log1p: POSITIVE,
        elementary.sinh: np.clip(X, -700, 700),
        elementary.tanh: X,
        angles.sin: X,
        angles.cos: X,
        normal.erfc: X,
        normal.erfcx: POSITIVE,
        normal.normal_cdf: X,
    }
    found: Functions = {
        f"own {function.__name__}": lambda function=function, given=given: [
            *function(given),
            *(function(each) for each in given[:300].tolist()),
        ]
        for function, given in onto.items()
    }
    one_by_one: dict[Any, Any] = {
        normal.log_normal_cdf: X,
        normal.normal_quantile: probability,
        sums.decimal_exponent: POSITIVE,
        sums.binary_exponent: POSITIVE,
    }
    found |= {
        f"own {function.__name__}": lambda function=function, given=given: [
            function(each) for each in given[:300].tolist()
        ]
        for function, given in one_by_one.items()
    }
    return found | {
        "own sinc": lambda: angles.sinc(X),
        "own power": lambda: elementary.power(POSITIVE, 0.37),
        "own log_add_exp": lambda: elementary.log_add_exp(X[:999]),
        "own dot": lambda: sums.dot(X, POSITIVE),
        "own row_dots": lambda: sums.row_dots(MATRIX, MATRIX[0]),
        "own hypotenuse": lambda: [sums.hypotenuse(a, b) for a, b in MATRIX[:, :2].tolist()],
        "own integer_power": lambda: sums.integer_power(X[:999], 5),
        "own interpolated": lambda: interpolation.interpolated(
            X, np.sort(POSITIVE)[::100], np.sort(X)[::100]
        ),
    }


# Of each group one shows that an environment has an effect.
FORBIDDEN: Functions = {
    "NumPy: exp": lambda: np.exp(X / 1000),
    "NumPy: tanh": lambda: np.tanh(X),
    "NumPy: argsort that is not stable": lambda: np.argsort(SMALL),
    "OpenBLAS: @": lambda: MATRIX @ MATRIX.T,
    "OpenBLAS: threads": lambda: np.tile(MATRIX, (4, 4)) @ np.tile(MATRIX, (4, 4)).T,
    "glibc: exp": lambda: [math.exp(each) for each in (X / 1000).tolist()],
    "glibc: pow": lambda: [each**0.37 for each in POSITIVE.tolist()],
    "glibc: x**2": lambda: [each**2 for each in X.tolist()],
    "pyarrow: SIMD level": lambda: pa.runtime_info().simd_level,
}


def digest(value: Any) -> str:
    """Return the first digits of a digest of arrays, numbers, strings or bytes."""
    digest = hashlib.sha256()
    _add(digest, value)
    return digest.hexdigest()[:16]


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, bytes | str):
        digest.update(value.encode() if isinstance(value, str) else value)
    elif isinstance(value, list) and not all(type(each) is float for each in value):
        for each in value:
            _add(digest, each)
    else:
        digest.update(np.ascontiguousarray(value).tobytes())


def lines(functions: Functions) -> Iterator[str]:
    """Yield a line for each function: its name and the digest of its results."""
    with np.errstate(all="ignore"):
        for name, function in functions.items():
            yield f"{digest(function())} {name}"


if __name__ == "__main__":
    chosen = FORBIDDEN if sys.argv[1:] else NUMPY | PYTHON | PYARROW | _ours()
    for line in lines(chosen):
        print(line)
