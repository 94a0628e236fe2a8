"""How far off adaptive trees are, beside planned ones, on public shapes of data.

    python benchmarks/adaptive.py [--cells 4096] [--measure epsilon] [--releases 50]

prints, of counts and of estimates, for each product of rows and budget, the root mean square errors
of random ranges and of prefixes, in rows times epsilon (or times the root of 2 rho): geometric
means over the shapes of data. The rules of `dpcore.adaptive.planner` were found with it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.planner import plan_adaptive
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.levels.planner import plan_tree
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.trees.forest import Forest
from dptrees.dpcore.uniform.forest import UniformForest
from dptrees.dpcore.uniform.plan import TreePlan
from dptrees.dpcore.uniform.setting import TreeSetting

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


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Root mean square errors in rows times the budget: of ranges and of prefixes."""

    ranges: float
    prefixes: float


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
    noise = NoiseSource(
        key=ReleaseKey(bytes(32)), release="adaptive", spec_digest=b"", global_digest=b""
    )
    found = []
    for chunk in forest.chunking:
        exact = np.tile(counts, chunk.rows)
        # Alike trees of one chunk have noise of their own, but trees of two chunks would not.
        measured = forest.measure("t", chunk, exact, noise)
        roots, totals = forest.chunk_roots(chunk, measured), forest.chunk_totals(chunk, exact)
        solved, _ = forest.solve_spine("t", chunk.key, roots, totals, noise)
        levels, _ = forest.solve(chunk, measured, solved)
        found.append(np.asarray(getattr(levels[-1], read), dtype=np.float64))
    return np.concatenate(found)


def measure_errors(
    plan: TreePlan | AdaptivePlan, counts: Integers, releases: int, read: str = "count"
) -> Errors:
    """Measure the errors of all prefixes and of 2,000 random ranges over releases."""
    cells = counts.size
    kind = AdaptiveForest if isinstance(plan, AdaptivePlan) else UniformForest
    forest = kind(plan, keys=releases, chunk_leaves=max(cells, 2**17))  # type: ignore[arg-type]
    wrong = np.cumsum(released_cells(forest, counts, read) - counts, axis=1)
    prefixes = np.concatenate([np.zeros((releases, 1)), wrong], axis=1)
    ends = np.sort(np.random.default_rng(3).integers(0, cells + 1, (2, 2_000)), axis=0)
    ranges = prefixes[:, ends[1]] - prefixes[:, ends[0]]
    amount = float(plan.budget.amount)
    unit = amount if plan.budget.measure is Measure.EPSILON else math.sqrt(2 * amount)
    return Errors(
        ranges=unit * math.sqrt(float(np.mean(ranges**2.0))),
        prefixes=unit * math.sqrt(float(np.mean(wrong**2.0))),
    )


def geometric(errors: list[Errors]) -> Errors:
    """The geometric means."""
    return Errors(
        ranges=math.exp(np.mean([math.log(each.ranges) for each in errors])),
        prefixes=math.exp(np.mean([math.log(each.prefixes) for each in errors])),
    )


def over_shapes(plan: TreePlan | AdaptivePlan, product: int, releases: int, read: str) -> Errors:
    """Over all shapes of data of so many rows times the budget."""
    amount = float(plan.budget.amount)
    unit = amount if plan.budget.measure is Measure.EPSILON else math.sqrt(2 * amount)
    rows = round(product / unit)
    return geometric(
        [
            measure_errors(plan, draw_counts(shape, rows), releases, read)
            for shape in shares_of_cells(plan.tree.leaves).values()
        ]
    )


def lines(setting: TreeSetting, read: str, releases: int) -> Iterator[str]:
    """The table of what is read, counts or estimates."""
    heads = ("planned", "for counts", "counts, guess", "for estimates")
    titles = " ".join(f"{head:>14}" for head in heads)
    yield f"{read}: {setting.leaves} cells, {setting.budget.measure.value}, ranges / prefixes"
    yield f"{'rows x budget':>14} {titles}"
    for product in PRODUCTS:
        rows = product / float(setting.budget.amount)
        plans: list[TreePlan | AdaptivePlan] = [
            plan_tree(setting),
            plan_adaptive(setting, counts=True),
            plan_adaptive(setting, counts=True, guessed_rows=rows),
            plan_adaptive(setting, counts=False),
        ]
        found = [over_shapes(each, product, releases, read) for each in plans]
        columns = " ".join(f"{each.ranges:6.2f} / {each.prefixes:5.2f}" for each in found)
        yield f"{product:>14,} {columns}"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description="Errors of adaptive and of planned trees.")
    parser.add_argument("--cells", type=int, default=4096)
    parser.add_argument("--measure", choices=[each.value for each in Measure], default="epsilon")
    parser.add_argument("--releases", type=int, default=50)
    chosen = parser.parse_args()
    setting = plan_setting(chosen.cells, Measure(chosen.measure))
    for read in ("count", "estimate"):
        for line in lines(setting, read, chosen.releases):
            print(line, flush=True)


if __name__ == "__main__":
    main()
