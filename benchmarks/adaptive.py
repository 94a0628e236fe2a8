"""Adaptive trees beside planned ones, on public shapes of data: errors, and coverage of intervals.

    python -m benchmarks.adaptive [--cells 4096] [--measure epsilon] [--releases 50]
    python -m benchmarks.adaptive --coverage [--cells 1024] [--measure epsilon] [--releases 100]

The first prints, of counts and of estimates, for each product of rows and budget, the root mean
square errors of random ranges and of prefixes, in rows times epsilon (or times the root of 2 rho):
geometric means over the shapes of data. The rules of `dpcore.adaptive.planner` were found with it.

The second prints the part of 95 % intervals that hold the truth, over all releases, shapes of data
and numbers of rows: of nodes of the drawn tree, of nodes inside one that was not split, of prefixes
at its edges and between them. "least" is of the shape and number of rows where the fewest hold.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction

import numpy as np

from benchmarks.harness import geometric_mean, print_lines, public_noise, solved_chunk
from dptrees.dpcore.adaptive.drawn_trees import DrawnLevel, DrawnPrefixes
from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.mechanism import (
    AdaptiveWidths,
    adaptive_widths,
    node_intervals,
    prefix_intervals,
)
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.planner import plan_adaptive
from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.levels.planner import plan_tree
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.trees.chunks import level_sums
from dptrees.dpcore.trees.forests import Forest
from dptrees.dpcore.uniform.plan import TreePlan, TreeSetting, UniformForest

CONFIDENCE = 0.95
KINDS = ("nodes of the drawn tree", "nodes inside", "prefixes at edges", "prefixes between")
PRODUCTS = (100, 1_000, 10_000, 100_000)
# So small that the noise is wide and its lattice does not show.
AMOUNTS = {Measure.EPSILON: Fraction(1, 10), Measure.RHO: Fraction(1, 200)}


def shares_of_cells(cells: int) -> Mapping[str, Floats]:
    """Public shapes of data: the part of the rows in each cell."""
    rng = np.random.default_rng(2013)
    place = (np.arange(cells) + 0.5) / cells
    bumps = sum(
        weight * np.exp(-(((place - middle) / width) ** 2) / 2) / width
        for middle, width, weight in ((0.2, 0.01, 0.5), (0.5, 0.05, 0.3), (0.8, 0.002, 0.2))
    )
    spikes = rng.pareto(0.8, cells) * (rng.random(cells) < 40 / cells) + 1e-3 / cells
    ages = np.exp(-(((place - 0.35) / 0.18) ** 2) / 2) * (1 + 2 * (np.arange(cells) % 10 == 0))
    shapes = {
        "gamma": place * np.exp(-place * 12),
        "normals": bumps,
        "zipf": 1 / (1.0 + np.arange(cells)) ** 1.1,
        "shuffled": rng.permutation(1 / (1.0 + np.arange(cells)) ** 1.1),
        "spikes": spikes,
        "heaped": ages,
        "uniform": np.ones(cells),
        "lognormal": np.exp(-((np.log(place) + 2.5) ** 2)) / place,
    }
    return {name: np.asarray(each / each.sum(), dtype=np.float64) for name, each in shapes.items()}


def plan_setting(cells: int, measure: Measure) -> TreeSetting:
    """Setting of trees of so many cells; each key is one release."""
    return TreeSetting(
        leaves=cells,
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=measure, amount=AMOUNTS[measure]),
        keyed=True,
    )


def draw_counts(shape: Floats, rows: int) -> Integers:
    """Draw (cells,) counts of rows with a shape, the same in each run."""
    return np.random.default_rng(17).multinomial(rows, shape).astype(np.int64)


def released_cells(forest: Forest, counts: Integers, read: str) -> Floats:
    """(releases, cells) what is read of each cell, for each release of the same counts."""
    noise, found = public_noise(0, "adaptive"), []
    for chunk in forest.chunking:
        # Alike trees of one chunk have noise of their own, but trees of two chunks would not.
        levels, _, _ = solved_chunk(forest, chunk, np.tile(counts, chunk.rows), noise)
        found.append(np.asarray(getattr(levels[-1], read), dtype=np.float64))
    return np.concatenate(found)


def budget_unit(budget: Budget) -> float:
    """Return what errors are multiplied by: epsilon, or the root of 2 rho."""
    amount = float(budget.amount)
    return amount if budget.measure is Measure.EPSILON else math.sqrt(2 * amount)


def measure_errors(
    plan: TreePlan | AdaptivePlan, counts: Integers, releases: int, read: str
) -> tuple[float, float]:
    """Measure the errors of 2,000 random ranges and of all prefixes over releases."""
    kind = AdaptiveForest if isinstance(plan, AdaptivePlan) else UniformForest
    forest = kind(plan, keys=releases, chunk_leaves=max(counts.size, 2**17))  # type: ignore[arg-type]
    cells, unit = released_cells(forest, counts, read), budget_unit(plan.budget)
    return unit * range_error(cells, counts), unit * prefix_error(cells, counts)


def range_error(cells: Floats, exact: Integers) -> float:
    """Root mean square over 2,000 ranges and all releases, (releases, cells) of counts."""
    prefixes = np.cumsum(np.pad(cells - exact, ((0, 0), (1, 0))), axis=1)
    ends = np.sort(np.random.default_rng(3).integers(0, exact.size + 1, (2, 2_000)), axis=0)
    return math.sqrt(float(np.mean(np.square(prefixes[:, ends[1]] - prefixes[:, ends[0]]))))


def prefix_error(cells: Floats, exact: Integers) -> float:
    """Root mean square over all prefixes and releases."""
    return math.sqrt(float(np.mean(np.square(np.cumsum(cells - exact, axis=1)))))


def error_lines(setting: TreeSetting, read: str, releases: int) -> Iterator[str]:
    """The table of what is read, counts or estimates."""
    heads = ("planned", "for counts", "counts, guess", "for estimates")
    titles = " ".join(f"{head:>14}" for head in heads)
    yield f"{read}: {setting.leaves} cells, {setting.budget.measure.value}, ranges / prefixes"
    yield f"{'rows x budget':>14} {titles}"
    for product in PRODUCTS:
        guess = product / float(setting.budget.amount)
        plans: list[TreePlan | AdaptivePlan] = [
            plan_tree(setting),
            plan_adaptive(setting, counts=True),
            plan_adaptive(setting, counts=True, guessed_rows=guess),
            plan_adaptive(setting, counts=False),
        ]
        rows, columns = round(product / budget_unit(setting.budget)), []
        for plan in plans:
            errors = [
                measure_errors(plan, draw_counts(shape, rows), releases, read)
                for shape in shares_of_cells(setting.leaves).values()
            ]
            ranges, prefixes = (geometric_mean(each) for each in zip(*errors, strict=True))
            columns.append(f"{ranges:6.2f} / {prefixes:5.2f}")
        yield f"{product:>14,} {' '.join(columns)}"


def intervals_held(
    plan: AdaptivePlan, widths: AdaptiveWidths, counts: Integers, number: int
) -> list[tuple[Flags, Flags]]:
    """Return which intervals of the nodes and of the prefixes of one release hold, and which of
    them are inside a node that was not split."""
    forest, noise = AdaptiveForest(plan), public_noise(number, "coverage")
    levels, prefixes, _ = solved_chunk(forest, forest.chunking[0], counts, noise)
    assert isinstance(prefixes, DrawnPrefixes)
    exact, found = level_sums(plan.tree, counts.reshape(1, -1)), []
    for level, true in zip(levels, exact, strict=True):
        assert isinstance(level, DrawnLevel)
        _, _, low, high = node_intervals(level, widths, np.inf)
        found.append(((low <= true) & (true <= high), level.inside))
    _, _, low, high = prefix_intervals(prefixes, widths, np.inf)
    true = np.cumsum(counts)[None]
    held, inside = (np.concatenate(each, axis=1) for each in zip(*found, strict=True))
    return [(held, inside), ((low <= true) & (true <= high), np.isnan(prefixes.variance))]


def coverage_lines(setting: TreeSetting, releases: int) -> Iterator[str]:
    """The tables of coverage, of trees for estimates and for counts."""
    measure = setting.budget.measure
    for counts in (False, True):
        plan = plan_adaptive(setting, counts=counts)
        widths = adaptive_widths(measure, CONFIDENCE, counts=counts)
        sums = []
        for shape in shares_of_cells(setting.leaves).values():
            for product in PRODUCTS:
                own = draw_counts(shape, round(product / float(setting.budget.amount)))
                kinds = [
                    [(holds[kept].sum(), kept.sum()) for kept in (~inside, inside)]
                    for number in range(releases)
                    for holds, inside in intervals_held(plan, widths, own, number)
                ]
                sums.append(np.reshape(kinds, (releases, 4, 2)).sum(axis=0))
        yield f"== for {'counts' if counts else 'estimates'}, {measure.value} =="
        total = np.sum(sums, axis=0)
        for place, name in enumerate(KINDS):
            parts = [each[place, 0] / each[place, 1] for each in sums if each[place, 1] > releases]
            yield f"{name:24} {total[place, 0] / total[place, 1]:.4f}  least {min(parts):.4f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, help="4,096; of coverage 1,024")
    parser.add_argument("--measure", choices=[each.value for each in Measure], default="epsilon")
    parser.add_argument("--releases", type=int, help="50; of coverage 100")
    parser.add_argument("--coverage", action="store_true", help="of intervals, alone")
    chosen = parser.parse_args()
    cells = chosen.cells or (1024 if chosen.coverage else 4096)
    setting = plan_setting(cells, Measure(chosen.measure))
    if chosen.coverage:
        print_lines(coverage_lines(setting, chosen.releases or 100))
        return
    for read in ("count", "estimate"):
        print_lines(error_lines(setting, read, chosen.releases or 50))


if __name__ == "__main__":
    main()
