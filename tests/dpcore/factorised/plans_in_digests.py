"""Digests of plans and estimates of strategies, one line each.

    python -m tests.dpcore.factorised.plans_in_digests

With ``lapack`` it prints digests of what LAPACK and BLAS give for the same matrices, which show
that an emulated processor is another one.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator

import numpy as np

from dptrees.dpcore.arithmetic.matrices import rough_factor
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.factorised.optimum import Read, prefix_gram
from dptrees.dpcore.factorised.strategies import MatrixStrategy, ToeplitzStrategy, plan_strategy

READS = (
    Read(kind="cdf"),
    Read(kind="centred"),
    Read(kind="quantiles", shares=(0.1, 0.5)),
    Read(kind="ranges"),
    Read(kind="ranges", widths=(3,)),
)
# The steps of 300 cells are rounded to fewer bits.
SIZES = (3, 40, 43, 150, 300)


def digest(*values: Floats) -> str:
    return hashlib.sha256(
        b"".join(np.ascontiguousarray(each).tobytes() for each in values)
    ).hexdigest()[:16]


def figures(strategy: MatrixStrategy) -> Iterator[Floats]:
    """All that is computed of a strategy after the plan."""
    cells, rng = strategy.leaves, np.random.default_rng(1)
    yield strategy.estimated(rng.integers(-(10**9), 10**9, (3, cells)))
    yield strategy.coefficients(np.linspace(0.0, 1.0, cells))
    yield strategy.prefix_variances
    yield strategy.total_covariances
    starts = np.arange(cells // 2)
    yield strategy.range_variances(starts, starts + 1 + starts % 7)


def lines() -> Iterator[str]:
    for cells in SIZES:
        for read in READS:
            strategy = plan_strategy(cells, read)
            spec = json.dumps(strategy.spec()).encode()
            yield f"{cells} {read.kind} {hashlib.sha256(spec).hexdigest()[:16]}"
            yield f"{cells} {read.kind} figures {digest(*figures(strategy))}"
    yield f"toeplitz {digest(*figures(ToeplitzStrategy.from_size(5000)))}"


def lapack_digests() -> Iterator[str]:
    for cells in (150, 400):
        yield f"{cells} {digest(*rough_factor(prefix_gram(cells)))}"


if __name__ == "__main__":
    print(*(lapack_digests() if "lapack" in sys.argv else lines()), sep="\n")
