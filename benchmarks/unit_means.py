"""A person's values in a mean or a total: rows bounded one by one, and other ways to bound a unit.

Run as ``python -m benchmarks.unit_means``. Values lie from 0 to 1, units have several rows, the
noise is Laplace's. Each way has the best bound in hindsight: it is chosen by half of the draws and
measured on the others. Printed is how many times closer than rows bounded one by one (today) it is:
root mean square error of the mean of all rows (or of its own estimand, where named).

    scaled      a unit counts its mean min(rows, t) times, in place of t of its rows
    sum         rows counted up to t, and the unit's sum of them, clipped to [0, C]; half of epsilon
                each
    middle      rows counted up to t; the sum of (value - 1/2) clipped to [-C, C]: the interval of
                the smallest worst case (Rameshwar and Tandon 2026), with a private number of rows
    units       the mean of the units' means, beside the mean of all rows, and beside itself
    total       the total of all rows: the unit's sum, clipped to [0, C], in place of t rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness import print_lines
from dptrees.dpcore.arrays import Floats, Integers

ROWS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "2 to 4 rows": lambda rng, n: rng.integers(2, 5, n),
    "20 each": lambda rng, n: np.full(n, 20),
    "lognormal (2, 1)": lambda rng, n: np.ceil(rng.lognormal(2, 1, n)),
    "geometric, mean 20": lambda rng, n: rng.geometric(0.05, n),
    "Pareto 1.2": lambda rng, n: np.minimum(np.ceil(rng.pareto(1.2, n) + 1e-3), 2000),
}
VALUES: dict[str, Callable[[np.random.Generator, Integers], Any]] = {
    "around the middle": lambda rng, rows: rng.beta(4, 4, rows.sum()),
    "far below the bound": lambda rng, rows: np.minimum(rng.lognormal(-3.5, 1, rows.sum()), 1),
    "alike in a unit": lambda rng, rows: np.clip(
        np.repeat(rng.beta(2, 5, len(rows)), rows) + rng.normal(0, 0.05, rows.sum()), 0, 1
    ),
    "less where rows are more": lambda rng, rows: (
        np.repeat(1 / (1 + rows / 10), rows) * rng.beta(4, 2, rows.sum())
    ),
}
SETTINGS = ((2_000, 1.0), (20_000, 0.1), (20_000, 1.0))
WAYS = ("scaled", "sum", "middle", "units", "units, own mean", "total")
DRAWS = 400


class Errors:
    """The least error of each way, over its bounds."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, float]] = {}

    def add(self, way: str, estimates: Floats, truth: float) -> None:
        """One bound more."""
        squares = np.square(estimates - truth)
        chosen, measured = (float(np.sqrt(each.mean())) for each in np.split(squares, 2))
        self._found[way] = min(self._found.get(way, (np.inf, 0.0)), (chosen, measured))

    def of(self, way: str) -> float:
        """The error on the other draws."""
        return self._found[way][1]


def measured(rows: Integers, values: Floats, epsilon: float, rng: np.random.Generator) -> Errors:
    """The errors of all ways on one set of rows."""
    units = np.repeat(np.arange(len(rows)), rows)
    mean, sums = float(values.mean()), np.bincount(units, values)
    means, place = sums / rows, np.lexsort((rng.random(len(units)), units))
    ranks = np.empty(len(units), np.int64)
    ranks[place] = np.arange(len(units)) - (np.cumsum(rows) - rows)[units]
    errors = Errors()

    def noise(scale: float) -> Floats:
        return rng.laplace(0, scale, DRAWS)

    def split(way: str, count: float, total: float, scale: float, truth: float) -> None:
        low, high = count - total + noise(scale), total + noise(scale)
        errors.add(way, np.clip(high / np.maximum(low + high, 1), 0, 1), truth)

    split("units", len(rows), means.sum(), 1 / epsilon, mean)
    split("units, own mean", len(rows), means.sum(), 1 / epsilon, float(means.mean()))
    for bound in np.unique(np.round(2 ** np.arange(0, 11, 0.5))):
        if bound > 2 * rows.max():
            break
        kept, counted = ranks < bound, np.minimum(rows, bound)
        split("today", kept.sum(), values[kept].sum(), bound / epsilon, mean)
        split("scaled", counted.sum(), (counted * means).sum(), bound / epsilon, mean)
        errors.add("total today", values[kept].sum() + noise(bound / epsilon), values.sum())
        count = np.maximum(counted.sum() + noise(2 * bound / epsilon), 1)
        for clip in bound * 0.5 ** np.arange(6):
            inside = np.minimum(counted * means, clip).sum() + noise(2 * clip / epsilon)
            errors.add("sum", np.clip(inside / count, 0, 1), mean)
            around = np.clip(counted * (means - 0.5), -clip, clip).sum()
            around = around + noise(2 * clip / epsilon)
            errors.add("middle", np.clip(around / count + 0.5, 0, 1), mean)
            errors.add("total", np.minimum(sums, clip).sum() + noise(clip / epsilon), values.sum())
    return errors


def lines() -> Iterator[str]:
    """The lines of the table; geometric means over the settings, and how many are 1.3 and more."""
    yield f"| rows of a unit, values | {' | '.join(WAYS)} |"
    yield "|---|" + "---:|" * len(WAYS)
    found, rng = [], np.random.default_rng(64)
    for rows_name, draw in ROWS.items():
        for values_name, fill in VALUES.items():
            ratios = []
            for units, epsilon in SETTINGS:
                rows = draw(rng, units).astype(np.int64)
                errors = measured(rows, fill(rng, rows), epsilon, rng)
                today, total = errors.of("today"), errors.of("total today")
                ratios.append([(total if w == "total" else today) / errors.of(w) for w in WAYS])
            found.extend(ratios)
            yield _line(f"{rows_name}, {values_name}", np.exp(np.log(ratios).mean(axis=0)))
    table = np.array(found)
    yield _line("**geometric mean**", np.exp(np.log(table).mean(axis=0)))
    yield _line("**part of settings with 1.3 and more**", (table >= 1.3).mean(axis=0))


def _line(name: str, numbers: Any) -> str:
    return f"| {name} | {' | '.join(f'{each:.2f}' for each in numbers)} |"


if __name__ == "__main__":
    print_lines(__doc__, lines)
