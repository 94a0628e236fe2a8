"""How far off answers are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Literal

import numpy as np
from scipy.optimize import isotonic_regression

from benchmarks.accuracy.cases import QUANTILES, Answers, Case
from benchmarks.accuracy.sets import LEVELS
from dptrees.dpcore.arrays import Floats, Integers

RANGES = 2000
# Of a task: whether a release has a mean square error or a mean absolute one.
Norm = Literal["square", "absolute"]
TASKS: Mapping[str, Norm] = {
    "ranges": "square",
    "prefixes": "square",
    "nodes, all levels": "square",
    **{f"nodes, {level}": "square" for level in LEVELS},
    **{f"{m} quantiles, rank": "absolute" for m in QUANTILES},
    **{f"{m} quantiles, value": "absolute" for m in QUANTILES},
}


@cache
def draw_ranges(cells: int) -> tuple[Integers, Integers]:
    """Random ranges [start, stop) of cells, the same for every method."""
    rng = np.random.default_rng([17, cells])
    ends = np.sort(rng.integers(0, cells + 1, (2 * RANGES, 2)), axis=1)
    ends = ends[ends[:, 0] < ends[:, 1]][:RANGES]
    return ends[:, 0], ends[:, 1]


def measure_errors(case: Case, answers: Answers) -> dict[str, float]:
    """By task, the mean error of one release: squares of rows, rows, or thousandths of the domain.

    Only requested tasks are measured.
    """
    if case.data.levels:
        return node_errors(case, answers)
    found: dict[str, float] = {}
    truth = case.counts.cumsum()
    if answers.prefixes is not None and not case.quantile_count:
        error = np.concatenate([[0.0], answers.prefixes - truth])
        start, stop = draw_ranges(truth.size)
        found["ranges"] = float(np.mean((error[stop] - error[start]) ** 2))
        found["prefixes"] = float(np.mean(error[1:] ** 2))
    cells = answers.quantiles
    if not cells and answers.prefixes is not None:
        cells = cells_at(answers.prefixes, case.quantiles)
    for number, fractions in QUANTILES.items():
        if number in (case.quantile_count or number,) and all(each in cells for each in fractions):
            rank, value = quantile_errors(truth, fractions, [cells[each] for each in fractions])
            found[f"{number} quantiles, rank"] = rank
            found[f"{number} quantiles, value"] = value
    return found


def node_errors(case: Case, answers: Answers) -> dict[str, float]:
    """By level, the mean square error over its nodes, and the mean of these."""
    nodes = answers.nodes
    if not nodes:
        assert answers.prefixes is not None
        cells = np.diff(answers.prefixes, prepend=0.0)
        nodes = {name: np.add.reduceat(cells, starts) for name, starts in case.data.levels.items()}
    found = {
        f"nodes, {name}": float(np.mean((nodes[name] - np.add.reduceat(case.counts, starts)) ** 2))
        for name, starts in case.data.levels.items()
    }
    return {"nodes, all levels": float(np.mean([*found.values()])), **found}


def cells_at(prefixes: Floats, quantiles: Sequence[Fraction]) -> dict[Fraction, int]:
    """The cells of quantiles, by prefixes that need not rise: by the closest ones that do.

    >>> cells_at(np.array([1.0, 0.0, 4.0, 5.0]), [Fraction(1, 2)])
    {Fraction(1, 2): 2}
    """
    rising = np.asarray(isotonic_regression(prefixes).x).clip(0)
    ranks = np.array([float(each) for each in quantiles]) * rising[-1]
    cells = np.searchsorted(rising, ranks, side="left").clip(0, rising.size - 1)
    return dict(zip(quantiles, cells.tolist(), strict=True))


def quantile_errors(
    truth: Integers, quantiles: Sequence[Fraction], released: Sequence[int]
) -> tuple[float, float]:
    """Distances of requested ranks from the ranks of the released cells, in rows, and of these
    cells from the right ones, in thousandths of the domain: means.

    >>> quantile_errors(np.array([10, 10, 30, 40]), [Fraction(1, 2)], [1])
    (10.0, 250.0)
    """
    cells, ranks = np.asarray(released), np.array([float(each) for each in quantiles]) * truth[-1]
    before = np.concatenate([[0], truth])[cells]
    rank = np.maximum(0.0, np.maximum(before - ranks, ranks - truth[cells]))
    right = np.searchsorted(truth, ranks, side="left")
    value = np.abs(cells - right) * 1000 / truth.size
    return float(rank.mean()), float(value.mean())
