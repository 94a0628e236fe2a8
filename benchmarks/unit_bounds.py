"""Chosen bounds of a unit against the best bound: how much larger the error of a release is.

Run as ``python -m benchmarks.unit_bounds``. The law of the chosen bound is exact, so nothing is
drawn but the populations. The error with a bound t is that of an average prefix: the root of the
squares of its noise (c t, c as a plan predicts it for a tree of 200 cells) and of what it loses of
the rows that are left out (B(t) / sqrt(3), where values do not depend on the unit). The mean error
of the chosen bound is divided by the error of the best bound of all, which is known from the exact
counts and has the whole budget. The share was chosen on the first populations and not on the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.harness import print_lines
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.pipelines.config.configuration import Configuration, parse_configuration

AT_MOST = 10_000
EPSILONS, SHARES = (1, 0.1), (0.05, 0.1, 0.15, 0.2)
CONFIG = """
release: bounds
input: {{format: csv, path: rows.csv}}
output: out/bounds
key_file: release.key
privacy: {{epsilon: {epsilon}, neighbors: add_remove, unit: unit, max_rows: {bound}}}
trees:
  - {{name: value, domain: {{column: value, type: integer, lower: 0, upper: 1000, cells: 200}}}}
"""
Draw = Callable[[np.random.Generator, int], Any]
Populations = dict[str, tuple[int, Draw]]

TUNED: Populations = {
    "lognormal (2, 1.5)": (20_000, lambda rng, n: rng.lognormal(2, 1.5, n)),
    "lognormal (3, 1), few units": (2_000, lambda rng, n: rng.lognormal(3, 1, n)),
    "zipf 2": (20_000, lambda rng, n: rng.zipf(2.0, n)),
    "zipf 2.5, few units": (1_000, lambda rng, n: rng.zipf(2.5, n)),
    "geometric, mean 50, many units": (200_000, lambda rng, n: rng.geometric(0.02, n)),
    "95 % mean 2, 5 % mean 100": (
        20_000,
        lambda rng, n: np.where(
            rng.random(n) < 0.95, rng.geometric(0.5, n), rng.geometric(0.01, n)
        ),
    ),
    "Pareto 1.2 to 200": (20_000, lambda rng, n: np.minimum(rng.pareto(1.2, n) + 1, 200)),
    "20 each": (5_000, lambda rng, n: np.full(n, 20)),
}
HELD_OUT: Populations = {
    "visits of patients (half one, half gamma)": (
        8_000,
        lambda rng, n: np.where(rng.random(n) < 0.5, 1, rng.gamma(0.7, 9, n)),
    ),
    "rides of commuters (binomial of 250 days)": (3_000, lambda rng, n: rng.binomial(250, 0.6, n)),
    "posts of authors (Yule 1.5), many units": (
        300_000,
        lambda rng, n: rng.geometric(np.exp(-rng.exponential(1 / 1.5, n))),
    ),
    "orders of customers (Burr 1, 1.4)": (
        40_000,
        lambda rng, n: 2 * (np.maximum(rng.random(n), 1e-9) ** (-1 / 1.4) - 1),
    ),
    "sensors (uniform in the logarithm, 1 to 1,000), few units": (
        700,
        lambda rng, n: 1000 ** rng.random(n),
    ),
    "flights of aircraft (a third idle, others 160)": (
        4_000,
        lambda rng, n: np.where(rng.random(n) < 0.33, rng.gamma(0.6, 60, n), rng.gamma(8, 20, n)),
    ),
}


def rows_of_units(name: str, draw: Draw, units: int) -> Integers:
    """How many rows each unit has."""
    drawn = draw(np.random.default_rng(sum(name.encode())), units)
    rows: Integers = np.maximum(1, np.ceil(np.minimum(drawn, 1e9))).astype(np.int64)
    return rows


def lost_rows(rows: Integers) -> Floats:
    """(AT_MOST + 1,) the rows that a bound of 0, 1, ... leaves out."""
    capped = np.minimum(rows, AT_MOST)
    with_more = len(rows) - np.cumsum(np.bincount(capped, minlength=AT_MOST + 1))
    beyond = float((rows - capped).sum())
    return np.append(np.cumsum(with_more[:-1][::-1])[::-1], 0) + beyond


def errors(lost: Floats, error: float) -> Floats:
    """(AT_MOST + 1,) the error with each bound, where that of one row is given."""
    found: Floats = np.hypot(lost / math.sqrt(3), error * np.arange(AT_MOST + 1))
    return found


@lru_cache
def configured(epsilon: float, bound: str) -> Configuration:
    """The release whose bound is chosen."""
    return parse_configuration(CONFIG.format(epsilon=epsilon, bound=bound))


def ratio(rows: Integers, epsilon: float, bound: str) -> float:
    """The mean error of the chosen bound, beside that of the best one with the whole budget."""
    chosen, lost = configured(epsilon, bound), lost_rows(rows)
    assert chosen.bounds is not None
    (question,) = chosen.bounds.plan.questions
    plan: Any = question.plan  # type: ignore[attr-defined]
    counts = np.bincount(plan.cell_ids(rows), minlength=question.dense_cells)
    law = np.array([float(each) for each in plan.probabilities(counts)])
    best = errors(lost, configured(epsilon, "1").error_of_one_row)[1:].min()
    mean = (law * errors(lost, chosen.error_of_one_row)[list(plan.sizes)]).sum()
    return float(mean / best)


def lines() -> Iterator[str]:
    """The lines of the table: a row for each population, and the mean and the worst of each set."""
    bounds = [f"{{fraction: {share}, at_most: {AT_MOST}}}" for share in SHARES]
    columns = [f"{epsilon}, {share}" for epsilon in EPSILONS for share in SHARES]
    yield f"| units (epsilon, share) | {' | '.join(columns)} |"
    yield "|---|" + "---:|" * len(columns)
    for name, populations in (("tuned on", TUNED), ("held out", HELD_OUT)):
        found = []
        for each, (units, draw) in populations.items():
            rows = rows_of_units(each, draw, units)
            found.append([ratio(rows, epsilon, to) for epsilon in EPSILONS for to in bounds])
            yield _line(f"{each} ({units:,})", found[-1])
        table = np.array(found)
        yield _line(f"**{name}: mean**", table.mean(axis=0).tolist())
        yield _line(f"**{name}: worst**", table.max(axis=0).tolist())


def _line(name: str, ratios: list[float]) -> str:
    return f"| {name} | {' | '.join(f'{each:.2f}' for each in ratios)} |"


if __name__ == "__main__":
    print_lines(__doc__, lines)
