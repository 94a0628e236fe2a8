"""Chosen bounds of values on public shapes: rows beyond them, and how wide the range is.

    python -m benchmarks.value_bounds

For each shape of a column and each n epsilon, both bounds of n rows are chosen `RUNS` times, each
with a share of 0.05 of the budget, from the default candidates (291 decimals from -10^12 to 10^12),
as a release of one tree of 64 cells does. The table has the tolerated rows, the mean part of the
rows that lie outside of the chosen range, and the median of its width divided by the width of the
narrowest range that leaves out as many rows on each side, which the exact rows give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.choices.value_bounds import ValueBoundsQuestion
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.pipelines.config.configuration import parse_configuration

RUNS = 200
ROWS = 10_000
SIZES = (1_000, 3_000, 10_000, 100_000)

CONFIG = """
release: values
input: {{format: csv, path: rows.csv}}
output: out/values
key_file: release.key
privacy: {{epsilon: {epsilon}, neighbors: add_remove}}
trees:
  - {{name: value, domain: {{column: value, lower: auto, upper: auto, cells: 64}}}}
"""
Draw = Callable[[np.random.Generator, int], Floats]

SHAPES: dict[str, Draw] = {
    "normal, mean 50, sd 10": lambda rng, n: rng.normal(50, 10, n),
    "normal, mean 0, sd 0.01": lambda rng, n: rng.normal(0, 0.01, n),
    "uniform from 0 to 1": lambda rng, n: rng.random(n),
    "lognormal (10, 1), incomes": lambda rng, n: rng.lognormal(10, 1, n),
    "Pareto 1.2, from 1": lambda rng, n: 1 + rng.pareto(1.2, n),
    "Cauchy": lambda rng, n: rng.standard_cauchy(n),
    "half 0, half exponential 100": lambda rng, n: np.where(
        rng.random(n) < 0.5, 0.0, rng.exponential(100, n)
    ),
    "heaped: 10, 20, 50, 100": lambda rng, n: rng.choice([10.0, 20.0, 50.0, 100.0], n),
    "ages, whole": lambda rng, n: np.floor(np.clip(rng.normal(40, 20, n), 0, 105)),
}


def make_question(epsilon: Fraction) -> ValueBoundsQuestion:
    """The choice that a release of one tree makes."""
    bounds = parse_configuration(CONFIG.format(epsilon=f"{float(epsilon):g}")).bounds
    assert bounds is not None
    (question,) = bounds.plan.questions
    assert isinstance(question, ValueBoundsQuestion)
    return question


def measured(question: ValueBoundsQuestion, values: Floats) -> tuple[float, float]:
    """The mean part of the rows outside, and the median excess of the width."""
    plan, ordered = question.plan, np.sort(values)
    counts = np.bincount(plan.cell_ids(values), minlength=plan.cells)
    outside, widths = [], []
    for run in range(RUNS):
        lower, upper = plan.chosen(counts, RandomStream(run.to_bytes(32, "big")))
        below, above = int((values < lower).sum()), int((values >= upper).sum())
        outside.append((below + above) / len(values))
        inside = ordered[below : len(ordered) - above]
        if len(inside) and inside[-1] > inside[0]:
            widths.append((upper - lower) / float(inside[-1] - inside[0]))
    return math.fsum(outside) / RUNS, float(np.median(widths)) if widths else math.nan


def lines() -> Iterator[str]:
    """The table, in Markdown."""
    heads = [f"n epsilon = {size:,}" for size in SIZES]
    yield f"| values | {' | '.join(heads)} |"
    yield f"|---|{'---:|' * len(SIZES)}"
    questions = [make_question(Fraction(size, ROWS)) for size in SIZES]
    tolerated = [f"{question.plan.tolerated / ROWS:.1%}" for question in questions]
    yield f"| tolerated beyond each bound | {' | '.join(tolerated)} |"
    for name, draw in SHAPES.items():
        values = draw(np.random.default_rng(1), ROWS)
        cells = [measured(question, values) for question in questions]
        yield f"| {name} | {' | '.join(f'{out:.1%}, {width:.2g}' for out, width in cells)} |"


if __name__ == "__main__":
    for line in lines():
        print(line)
