"""Quantiles: how often their intervals hold, and when the exponential mechanism is closer.

    python -m benchmarks.quantiles exponential [--releases 8] [--write docs/quantiles.md]
    python -m benchmarks.quantiles intervals [--releases 160] [--write docs/quantiles.md]
    python -m benchmarks.quantiles choice [--releases 6] [--quantiles 9 15] [--held-out]

- exponential: which part of the 95 % intervals of a share of .3 holds the quantile of the rows, and
  their width in values, by the exponential mechanism, at epsilon 1 in 4,096 cells.
- intervals: 95 % intervals of trees on the shapes of `benchmarks.regret`, seven families of four
  shapes, at several numbers of rows times the budget. For each way of planning and each number of
  quantiles, over the shapes: the part of the intervals that hold the quantile of the rows, its mean
  and the least of a shape; and their width in values beside that of the intervals of before, which
  take the limits of prefixes as they are (geometric mean). Of 99 quantiles every tenth is looked
  at. The least part is of the releases divided by the quantiles, at least 20. Of 160 intervals its
  standard error is .017 at 95 %, so the least of 28 shapes would be .91 on the average if each
  shape held exactly as stated; intervals of one release are not independent, which makes it less.
- choice: the mean distance of ranks from the requested ones, in rows times epsilon, by the
  exponential mechanism and by a tree for counts: geometric means over two shapes of each family, or
  over two others that are held out. `dpcore.exponential.plan` decides by these.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.adaptive import AMOUNTS, PRODUCTS, budget_unit, released_cells
from benchmarks.harness import geometric_mean, print_lines, public_noise, solved_chunk
from benchmarks.regret import COUNTS, make_mechanism, make_shapes
from dptrees.dpcore.adaptive.mechanism import AdaptiveWidths
from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.exponential.quantiles import chosen_quantiles
from dptrees.dpcore.exponential.question import ExponentialWorkload
from dptrees.dpcore.factorised.mechanism import NormalWidths
from dptrees.dpcore.noise.randomness import RandomStream, ReleaseKey
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.ordered.question import QuantileCells, Totals, chunk_quantiles
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import ChunkLayout, Mechanism, ReleaseTerms, Share
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.uniform.intervals import IntervalWidths

CELLS, CONFIDENCE = 4096, 0.95
TERMS = ReleaseTerms(unit=ADD_REMOVE_ROW)
BUDGET = Budget(measure=Measure.EPSILON, amount=Fraction(1))
EPSILON = AMOUNTS[Measure.EPSILON]
INTERVAL_SHARE = Fraction(3, 10)
# Of the tables: rows, quantiles, and rows times epsilon.
ROWS, NUMBERS = (1_000, 10_000), (1, 3, 9, 99)
CHOICES = (100, 300, 1_000, 3_000, 10_000, 100_000)
# So small an error that quotients below it mean nothing, in rows times epsilon.
LEAST = 0.01
QUANTILES = {"objective": "quantiles"}
WHOLE = {**QUANTILES, "consistency": "top_down"}
PLANS: Mapping[Measure, Mapping[str, Mapping[str, object]]] = {
    Measure.EPSILON: {
        "whole levels": WHOLE,
        "adaptive, for counts": {**QUANTILES, "optimize_for": "counts"},
        "adaptive": {"mechanism": "adaptive"},
    },
    Measure.RHO: {
        "whole levels": WHOLE,
        "adaptive": {"mechanism": "adaptive"},
        "matrix mechanism": {"mechanism": "factorised"},
    },
}


def even_quantiles(number: int) -> tuple[float, ...]:
    """Return a number of evenly spaced quantiles."""
    return tuple(round(each / (number + 1), 6) for each in range(1, number + 1))


# --- intervals of the exponential mechanism ---


def data(rows: int) -> dict[str, Integers]:
    """Histograms of some rows, by their names."""
    draws = np.random.default_rng(rows)
    gamma = draws.gamma(2, 300, rows)
    found = {
        "gamma": gamma,
        "60 % of rows in one cell": np.where(draws.random(rows) < 0.6, 700, gamma),
        "Zipf": draws.zipf(1.5, rows) - 1.0,
        "uniform": draws.uniform(0, CELLS, rows),
    }
    return {
        name: np.bincount(np.minimum(values, CELLS - 1).astype(np.int64), minlength=CELLS)
        for name, values in found.items()
    }


@functools.cache
def chosen_question(number: int) -> Question:
    """The quantiles, chosen by the exponential mechanism."""
    workload = ExponentialWorkload(
        name="tree",
        domain=IntegerDomain(column="value", lower=0, upper=CELLS),
        quantiles=even_quantiles(number),
        interval_share=INTERVAL_SHARE,
    )
    return workload.planned(Share(budget=BUDGET), TERMS)


def exponential_lines(releases: int) -> Iterator[str]:
    """The table of intervals of the exponential mechanism, in Markdown."""
    yield "| data | rows | a median's interval: held | values | three quantiles': held | values |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name in data(1):
        for rows in ROWS:
            counts, cells = data(rows)[name], []
            for number in NUMBERS[:2]:
                question = chosen_question(number)
                plan = ReleasePlan(
                    name="q", unit=ADD_REMOVE_ROW, budget=BUDGET, questions=(question,)
                )
                found = []
                for _ in range(5 * releases):
                    made = release_counts(plan, {"tree": counts}, ReleaseKey.generate())
                    assert made.quantiles is not None
                    found.append(made.quantiles.to_pylist())
                held = np.mean([_held(counts, each) for each in found])
                width = np.median([row["ci_high"] - row["ci_low"] + 1 for e in found for row in e])
                cells += [f"{100 * held:.1f} %", f"{width:,.0f}"]
            yield f"| {name} | {rows:,} | {' | '.join(cells)} |"


def _held(counts: Integers, rows: list[dict[str, float]]) -> float:
    """The share of the intervals that hold the quantile of the rows."""
    cells = true_cells(counts, [row["q"] for row in rows])
    pairs = zip(rows, cells.tolist(), strict=True)
    return float(np.mean([row["ci_low"] <= cell <= row["ci_high"] for row, cell in pairs]))


def true_cells(counts: Integers, quantiles: Iterator[float] | list[float]) -> Integers:
    """(quantiles,) cells of the exact quantiles."""
    upto = np.cumsum(counts)
    ranks = [max(1, math.ceil(each * upto[-1] - 1e-9)) for each in quantiles]
    return np.searchsorted(upto, ranks)


# --- intervals of trees ---


class Measured(NamedTuple):
    """The intervals of one shape: which hold, and their widths over the widths of before."""

    held: Flags
    ratio: Floats


def widths_of_before(widths: Any) -> Any:
    """The widths that a plan of an earlier version has."""
    if isinstance(widths, NormalWidths):
        return replace(widths, closer=False)
    assert isinstance(widths, (IntervalWidths, AdaptiveWidths))
    return replace(widths, quantile=None)


def measure_shape(
    mechanism: Mechanism[Any, Any], quantiles: tuple[float, ...], exact: Integers, releases: int
) -> Measured:
    """Measure the intervals of all quantiles, in some releases of the same counts."""
    cells, widths = exact.size, mechanism.widths(CONFIDENCE)
    forest = mechanism.forest(ChunkLayout(keys=releases, chunk_leaves=2**17))
    noise = public_noise(0, "intervals")
    rules = [mechanism.intervals(forest, each) for each in (widths, widths_of_before(widths))]
    true = true_cells(exact, [*quantiles])
    held, ratios = [], []
    for chunk in forest.chunking:
        counts = np.tile(exact, chunk.rows)
        levels, prefixes, solved = solved_chunk(forest, chunk, counts, noise)
        solved = solved.with_counts(levels[0])
        all_rows = Totals(count=solved.total_count, before_count=solved.before_count)
        now, before = (
            chunk_quantiles(
                quantiles,
                prefixes.count,
                all_rows,
                first_leaf=0,
                leaves=cells,
                ends=rule.differences(prefixes, solved),
            )
            for rule in rules
        )
        held.append((now.low <= true) & (true <= now.high))
        ratios.append(_width(now) / _width(before))
    return Measured(np.concatenate(held), np.concatenate(ratios))


def _width(cells: QuantileCells) -> Floats:
    return np.asarray(np.maximum(cells.high - cells.low, 0) + 1.0)


def interval_lines(
    measure: Measure, releases: int, plans: list[str], numbers: list[int]
) -> Iterator[str]:
    """The table of intervals of trees, in Markdown."""
    unit = budget_unit(Budget(measure=measure, amount=AMOUNTS[measure]))
    heads = ("plan", "quantiles", *(f"{each:,}" for each in PRODUCTS))
    yield f"| {' | '.join(heads)} |"
    yield "|---|---:" + "|---" * len(PRODUCTS) + "|"
    shapes = {
        (family, place): shape
        for family, each in make_shapes(CELLS).items()
        for place, shape in enumerate(each)
    }
    for name in plans:
        for number in numbers:
            every = even_quantiles(number)
            looked_at = every if number < 99 else every[4::10]
            mechanism = make_mechanism(PLANS[measure][name], every, CELLS, measure)
            row = []
            for product in PRODUCTS:
                rng = np.random.default_rng([17, product])
                found = {
                    key: measure_shape(
                        mechanism,
                        looked_at,
                        rng.multinomial(round(product / unit), shape).astype(np.int64),
                        max(20, releases // len(looked_at)),
                    )
                    for key, shape in shapes.items()
                }
                parts = {key: float(each.held.mean()) for key, each in found.items()}
                ratio = np.mean([np.log(each.ratio).mean() for each in found.values()])
                least = min(parts, key=lambda key: parts[key])
                row.append(
                    f"{np.mean(list(parts.values())):.3f}, {parts[least]:.3f} ({least[0]}); "
                    f"{math.exp(float(ratio)):.2f}"
                )
            yield f"| {name} | {number} | " + " | ".join(row) + " |"


# --- the exponential mechanism or a tree ---


def rank_error(cells: Integers, quantiles: tuple[float, ...], exact: Integers) -> float:
    """Mean distance of the requested ranks from the ranks of cells, (releases, quantiles)."""
    upto = np.cumsum(exact)
    ranks = np.array(quantiles) * upto[-1]
    return float(
        np.maximum(np.maximum((upto - exact)[cells] - ranks, ranks - upto[cells]), 0).mean()
    )


def exponential_error(quantiles: tuple[float, ...], exact: Integers, releases: int) -> float:
    """The error of the exponential mechanism."""
    plan = ExponentialPlan(
        cells=exact.size,
        unit=ADD_REMOVE_ROW,
        quantiles=tuple(Fraction(str(each)) for each in quantiles),
        budget=Budget(measure=Measure.EPSILON, amount=EPSILON),
    )
    streams = (RandomStream(number.to_bytes(32, "big")) for number in range(releases))
    cells = np.stack([chosen_quantiles(exact, plan, each).cells for each in streams])
    return rank_error(cells, quantiles, exact)


def tree_error(quantiles: tuple[float, ...], exact: Integers, releases: int) -> float:
    """The error of a tree that is planned for counts."""
    keys = {**QUANTILES, **COUNTS}
    mechanism = make_mechanism(keys, quantiles, exact.size, Measure.EPSILON)
    forest = mechanism.forest(ChunkLayout(keys=releases, chunk_leaves=2**17))
    below: Floats = np.cumsum(released_cells(forest, exact, "count"), axis=1)
    wanted = [np.maximum(1, each * below[:, -1:]) for each in quantiles]
    cells = np.stack([(below < each).sum(axis=1) for each in wanted], axis=1)
    return rank_error(cells.clip(0, exact.size - 1), quantiles, exact)


def choice_lines(numbers: list[int], releases: int, shapes: slice) -> Iterator[str]:
    """The table of both errors, in Markdown."""
    yield "| quantiles | rows x epsilon | exponential | tree for counts | quotient |"
    yield "|---:|---:|---:|---:|---:|"
    families = [shape for each in make_shapes(CELLS).values() for shape in each[shapes]]
    for number in numbers:
        quantiles = even_quantiles(number)
        for product in CHOICES:
            errors = []
            for shape in families:
                rng = np.random.default_rng([17, product])
                exact = rng.multinomial(round(product / EPSILON), shape).astype(np.int64)
                both = [
                    max(LEAST, float(EPSILON) * error(quantiles, exact, releases))
                    for error in (exponential_error, tree_error)
                ]
                errors.append(both)
            own, tree = (geometric_mean([each[place] for each in errors]) for place in (0, 1))
            yield f"| {number} | {product:,} | {own:.2f} | {tree:.2f} | {own / tree:.2f} |"


def main() -> None:
    """Print a table, or write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=("exponential", "intervals", "choice"))
    parser.add_argument("--measure", choices=[each.value for each in Measure], default="epsilon")
    parser.add_argument("--releases", type=int, help="of an entry, or of one quantile's intervals")
    parser.add_argument("--plans", nargs="+", help="some of the names in the first column")
    parser.add_argument("--quantiles", type=int, nargs="+")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page with the marks")
    chosen = parser.parse_args()
    if chosen.table == "exponential":
        print_lines(exponential_lines(chosen.releases or 8), chosen.write)
    elif chosen.table == "intervals":
        measure = Measure(chosen.measure)
        plans = chosen.plans or list(PLANS[measure])
        numbers = chosen.quantiles or [*NUMBERS]
        lines = interval_lines(measure, chosen.releases or 160, plans, numbers)
        print_lines(lines, chosen.write, "intervals")
    else:
        shapes = slice(2, 4) if chosen.held_out else slice(0, 2)
        print_lines(choice_lines(chosen.quantiles or [9, 15], chosen.releases or 6, shapes))


if __name__ == "__main__":
    main()
