"""Quantiles: errors of their ranks by each mechanism that is open, and how often intervals hold.

    python -m benchmarks.quantiles ranks [--quantiles 1 3 9] [--products 100 1000] [--rho]
    python -m benchmarks.quantiles intervals [--quantiles 1 9] [--plans tree]
    python -m benchmarks.quantiles hint [--quantiles 1 2 3 5 9] [--cells 256 4096] [--rho]

- ranks: the mean distance of the requested ranks from the ranks of the released cells, in rows
  times epsilon (.1; or a rho of 1/200; 4,096 cells), by what a configuration of
  `objective: quantiles` gets, with `optimize_for: quantiles`, with the number of rows as a guess,
  by the exponential mechanism, and by a tree for counts.
- intervals: which part of the 95 % intervals of a tree's quantiles hold the quantile of the rows,
  and their median width in rows times epsilon.
- hint: the error of ranks with `optimize_for: quantiles` over the error of the tree that a
  configuration of `objective: quantiles` gets: as the plan predicts it, and as measured.

Each cell is a geometric mean (of .01 more) over shapes with its standard error over releases, or
for intervals the mean and the least of a shape. Rules were chosen on the families of the first
table; the second table's, held out, took no part.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.exponential.quantiles import chosen_quantiles
from dptrees.dpcore.noise.randomness import RandomStream, ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.ordered.question import Totals, chunk_quantiles
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import ChunkLayout, Setting
from dptrees.pipelines.kinds.ordered import OrderedTree

CELLS, EPSILON, CONFIDENCE, LEAST = 4096, Fraction(1, 10), 0.95, 0.01
SETTING = Setting(
    unit=ADD_REMOVE_ROW,
    budget=Budget(measure=Measure.EPSILON, amount=EPSILON),
    confidence=CONFIDENCE,
)
# Of a key that anyone can compute, so that figures repeat.
NOISE = NoiseSource(
    key=ReleaseKey(bytes(32)), release="quantiles", spec_digest=b"", global_digest=b""
)
PLANS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "quantiles": {"optimize_for": "quantiles"},
    "guess": {"guess": True},
    "exponential": {"mechanism": "exponential"},
    "tree": {"optimize_for": "counts"},
    "tree, guess": {"optimize_for": "counts", "guess": True},
    "whole levels": {"consistency": "top_down"},
}
# What a hint compares.
COMPARED = ("quantiles", "default")


def shapes(cells: int = CELLS) -> dict[str, dict[str, Floats]]:
    """The part of the rows in each cell: of families that rules were chosen on, and held out."""
    rng, cell = np.random.default_rng(20), np.arange(cells)
    x = (cell + 0.5) / cells

    def bump(middle: float, width: float) -> Floats:
        return np.asarray(np.exp(-(((x - middle) / width) ** 2) / 2) / width)

    def points(many: int, tail: float, rest: float) -> Floats:
        shape = np.full(cells, rest / cells)
        weights = rng.pareto(tail, many) + 0.1
        shape[rng.choice(cells, many, replace=False)] += (1 - rest) * weights / weights.sum()
        return shape

    tuned = {
        "smooth": bump(0.4, 0.1),
        "gamma": x * np.exp(-12 * x),
        "heavy-tailed": 1 / (1 + 50 * x) ** 3,
        "heaped": bump(0.35, 0.18) * (1 + 2 * (cell % 10 == 0)),
        "uniform": np.ones(cells),
        "spiky": points(40, 1.0, 0.1),
    }
    held = {
        "multimodal": 0.5 * bump(0.2, 0.01) + 0.3 * bump(0.5, 0.05) + 0.2 * bump(0.8, 0.002),
        "half": np.where(x < 0.5, 1.0, 1e-6),
        "Zipf": 1 / (1.0 + cell) ** 1.1,
        "sparse": points(100, 0.7, 0),
        "steps": np.repeat(rng.gamma(0.7, 1, 64), cells // 64),
        "lognormal": np.exp(-((np.log(x) + 2.5) ** 2)) / x,
    }
    return {
        line: {name: each / each.sum() for name, each in found.items()}
        for line, found in (("tuned", tuned), ("held out", held))
    }


def even(number: int) -> tuple[float, ...]:
    """Evenly spaced quantiles."""
    return tuple(round(each / (number + 1), 6) for each in range(1, number + 1))


def workload(
    keys: Mapping[str, Any], quantiles: Sequence[float], rows: int = 0, cells: int = CELLS
) -> Any:
    """The workload of a configuration."""
    section: dict[str, Any] = {
        "name": "t",
        "domain": {"column": "x", "lower": 0, "upper": cells, "type": "integer"},
        "objective": "quantiles",
        "quantiles": [Decimal(str(each)) for each in quantiles],
        **keys,
    }
    if section.pop("guess", False):
        section["guess"] = {"rows": rows}
    return OrderedTree.model_validate(section).workload().under(SETTING.budget.measure, delta=False)


def question(keys: Mapping[str, Any], quantiles: Sequence[float], rows: int) -> Any:
    """The question of a configuration."""
    return workload(keys, quantiles, rows).planned(SETTING)


def released(tree: Any, exact: Integers, releases: int) -> tuple[Integers, Integers, Integers]:
    """(releases, quantiles) cells, and the first and last cells of their intervals."""
    if tree.mechanism.kind == "exponential":
        streams = (RandomStream(number.to_bytes(32, "big")) for number in range(releases))
        cells = np.stack([chosen_quantiles(exact, tree.plan, each).cells for each in streams])
        return cells, cells, cells
    mechanism = tree.mechanism
    forest = mechanism.forest(ChunkLayout(keys=releases, chunk_leaves=2**17))
    rule = mechanism.intervals(forest, mechanism.widths(CONFIDENCE))
    found = []
    for chunk in forest.chunking:
        counts = np.tile(exact, chunk.rows)
        measured = forest.measure("t", chunk, counts, NOISE)
        roots, totals = forest.chunk_roots(chunk, measured), forest.chunk_totals(chunk, counts)
        solved, _ = forest.solve_spine("t", chunk.key, roots, totals, NOISE)
        levels, prefixes = forest.solve(chunk, measured, solved)
        solved = solved.with_counts(levels[0])
        placed = chunk_quantiles(
            tree.quantiles,
            prefixes.count,
            Totals(count=solved.total_count, before_count=solved.before_count),
            first_leaf=0,
            leaves=len(exact),
            ends=rule.differences(prefixes, solved),
        )
        found.append(placed)
    return tuple(  # type: ignore[return-value]
        np.concatenate([getattr(each, name) for each in found]) for name in ("cell", "low", "high")
    )


def rank_errors(cells: Integers, quantiles: Sequence[float], exact: Integers) -> Floats:
    """(releases,) mean distance of the requested ranks from the ranks of cells."""
    upto = np.cumsum(exact)
    ranks = np.array(quantiles) * upto[-1]
    away = np.maximum(np.maximum((upto - exact)[cells] - ranks, ranks - upto[cells]), 0)
    return np.asarray(away.mean(axis=1))


def tables(chosen: argparse.Namespace) -> Iterator[str]:
    """The lines of the tables, in Markdown."""
    plans = {name: PLANS[name] for name in chosen.plans or PLANS}
    cell = rank_cell if chosen.table == "ranks" else interval_cell
    for line, found in shapes().items():
        heads = (f"{line}: rows x epsilon", *(f"{each:,}" for each in chosen.products))
        yield f"| quantiles | {' | '.join(heads)} |"
        yield "|---:|---" + "|---" * len(chosen.products) + "|"
        for number in chosen.quantiles:
            for name, keys in plans.items():
                cells = (
                    cell(keys, even(number), each, found, chosen.releases)
                    for each in chosen.products
                )
                yield f"| {number} | {name} | {' | '.join(cells)} |"


def rows_by_cell(shape: Floats, product: int) -> Integers:
    """Rows of a shape, the same in each run."""
    rows = round(product / EPSILON)
    return np.random.default_rng([17, product]).multinomial(rows, shape).astype(np.int64)


def rank_cell(
    keys: Any, quantiles: Sequence[float], product: int, found: Mapping[str, Floats], releases: int
) -> str:
    """The geometric mean of the errors, and its standard error in percent."""
    means, errors = [], []
    for shape in found.values():
        exact = rows_by_cell(shape, product)
        cells = released(question(keys, quantiles, int(exact.sum())), exact, releases)[0]
        each = float(EPSILON) * rank_errors(cells, quantiles, exact) + LEAST
        means.append(float(each.mean()))
        errors.append(float(each.std(ddof=1)) / math.sqrt(releases) / means[-1])
    error = math.sqrt(math.fsum(each * each for each in errors)) / len(errors)
    return f"{math.exp(np.log(means).mean()):.2f} ({100 * error:.0f} %)"


def interval_cell(
    keys: Any, quantiles: Sequence[float], product: int, found: Mapping[str, Floats], releases: int
) -> str:
    """The part that holds, its standard error, the least of a shape, and the median width."""
    held, widths = [], []
    for shape in found.values():
        exact = rows_by_cell(shape, product)
        _, low, high = released(question(keys, quantiles, int(exact.sum())), exact, releases)
        upto = np.cumsum(exact)
        true = np.searchsorted(upto, [max(1, math.ceil(q * upto[-1] - 1e-9)) for q in quantiles])
        held.append(((low <= true) & (true <= high)).mean(axis=1))
        widths.append(np.median((upto[high] - (upto - exact)[low]) * float(EPSILON)))
    error = math.sqrt(math.fsum(float(each.var(ddof=1)) / releases for each in held)) / len(held)
    parts = [float(each.mean()) for each in held]
    return (
        f"{np.mean(parts):.3f} ({error:.3f}), least {min(parts):.3f}; "
        f"{math.exp(np.log(np.maximum(LEAST, widths)).mean()):.1f}"
    )


def hints(chosen: argparse.Namespace) -> Iterator[str]:
    """The lines of a table in Markdown: predicted ratios of errors, and measured ones."""
    heads = ("cells", "quantiles", "predicted", "from", *(f"{each:,}" for each in chosen.products))
    yield f"| {' | '.join(heads)} |"
    yield "|---:" * len(heads) + "|"
    for cells in chosen.cells:
        found = shapes(cells)["held out"].values()
        for number in chosen.quantiles:
            plans = [workload(PLANS[name], even(number), cells=cells) for name in COMPARED]
            trees = [each.planned(SETTING) for each in plans]
            alone, tree = (each.predicted(own) for each, own in zip(plans, trees, strict=True))
            least = float(EPSILON) * trees[0].plan.least_rows
            exacts = [[rows_by_cell(shape, each) for shape in found] for each in chosen.products]
            ratios = (measured_ratio(trees, even(number), each, chosen.releases) for each in exacts)
            heads = (f"{cells:,}", str(number), f"{alone / tree:.2f}", f"{least:.0f}", *ratios)
            yield f"| {' | '.join(heads)} |"


def measured_ratio(
    trees: Sequence[Any], quantiles: Sequence[float], exacts: Sequence[Integers], releases: int
) -> str:
    """The mean error over data sets by one tree over that by another, its standard error, and of
    how many data sets the first is no further off."""
    errors = np.array(
        [
            [rank_errors(released(each, exact, releases)[0], quantiles, exact) for exact in exacts]
            for each in trees
        ]
    )
    means = errors.mean(axis=2)
    alone, tree = means.sum(axis=1)
    spread = errors.var(axis=2, ddof=1).sum(axis=1) / releases
    if not (alone and tree):
        return f"{alone:.2g} and {tree:.2g} rows"
    error = alone / tree * math.sqrt(spread[0] / alone**2 + spread[1] / tree**2)
    closer = int((means[0] <= means[1]).sum())
    return f"{alone / tree:.2f} ({error:.2f}), {closer} of {len(exacts)}"


def main() -> None:
    """Print a table."""
    global SETTING
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=("ranks", "intervals", "hint"))
    parser.add_argument("--quantiles", type=int, nargs="+", default=[1, 3, 9])
    parser.add_argument("--products", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--cells", type=int, nargs="+", default=[256, CELLS])
    parser.add_argument("--plans", nargs="+", choices=list(PLANS))
    parser.add_argument("--releases", type=int, default=8)
    parser.add_argument("--rho", action="store_true")
    chosen = parser.parse_args()
    if chosen.rho:
        budget = Budget(measure=Measure.RHO, amount=EPSILON * EPSILON / 2)
        SETTING = replace(SETTING, budget=budget)
    for line in hints(chosen) if chosen.table == "hint" else tables(chosen):
        print(line, flush=True)


if __name__ == "__main__":
    main()
