"""How often intervals of adaptive trees hold, on public shapes of data.

    python -m benchmarks.adaptive_coverage [--cells 1024] [--measure epsilon] [--releases 100]

prints the part of 95 % intervals that hold the truth, over all releases, shapes of data
(`benchmarks.adaptive.shares_of_cells`) and numbers of rows: of nodes of the drawn tree, of nodes
inside one that was not split, of prefixes at its edges and between them. "least" is of the shape
and number of rows where the fewest hold.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from benchmarks.adaptive import PRODUCTS, draw_counts, plan_setting, shares_of_cells
from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.intervals import node_intervals, prefix_intervals
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.planner import plan_adaptive
from dptrees.dpcore.adaptive.roots import DrawnLevel, DrawnPrefixes
from dptrees.dpcore.adaptive.widths import AdaptiveWidths, adaptive_widths
from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.trees.exact_sums import level_sums

CONFIDENCE = 0.95
KINDS = ("nodes of the drawn tree", "nodes inside", "prefixes at edges", "prefixes between")
# Which intervals hold, and which of them are inside a node that was not split.
Held = tuple[Flags, Flags]


def held(plan: AdaptivePlan, widths: AdaptiveWidths, counts: Integers, number: int) -> list[Held]:
    """Return which intervals of the nodes and of the prefixes cover, in one release."""
    forest = AdaptiveForest(plan)
    key = ReleaseKey(number.to_bytes(32, "big"))
    noise = NoiseSource(key=key, release="coverage", spec_digest=b"", global_digest=b"")
    chunk = forest.chunking[0]
    measured = forest.measure("t", chunk, counts, noise)
    roots, totals = forest.chunk_roots(chunk, measured), forest.chunk_totals(chunk, counts)
    solutions, _ = forest.solve_spine("t", 0, roots, totals, noise)
    levels, prefixes = forest.solve(chunk, measured, solutions)
    assert isinstance(prefixes, DrawnPrefixes)
    exact, found = level_sums(plan.tree, counts.reshape(1, -1)), list[Held]()
    for level, true in zip(levels, exact, strict=True):
        assert isinstance(level, DrawnLevel)
        _, _, low, high = node_intervals(level, widths, np.inf)
        found.append(((low <= true) & (true <= high), level.inside))
    _, _, low, high = prefix_intervals(prefixes, widths, np.inf)
    true = np.cumsum(counts)[None]
    inside = np.isnan(prefixes.variance)
    return [
        tuple(np.concatenate(each, axis=1) for each in zip(*found, strict=True)),  # type: ignore[list-item]
        ((low <= true) & (true <= high), inside),
    ]


def lines(cells: int, measure: Measure, releases: int) -> Iterator[str]:
    """The tables, of trees for estimates and for counts."""
    setting = plan_setting(cells, measure)
    for counts in (False, True):
        plan = plan_adaptive(setting, counts=counts)
        widths = adaptive_widths(measure, CONFIDENCE, counts=counts)
        sums = []
        for shape in shares_of_cells(cells).values():
            for product in PRODUCTS:
                own = draw_counts(shape, round(product / float(setting.budget.amount)))
                of = [held(plan, widths, own, number) for number in range(releases)]
                kinds = [
                    [(holds[kept].sum(), kept.sum()) for kept in (~inside, inside)]
                    for holds, inside in (pair for each in of for pair in each)
                ]
                sums.append(np.reshape(kinds, (releases, 4, 2)).sum(axis=0))
        yield f"== for {'counts' if counts else 'estimates'}, {measure.value} =="
        total = np.sum(sums, axis=0)
        for place, name in enumerate(KINDS):
            parts = [each[place, 0] / each[place, 1] for each in sums if each[place, 1] > releases]
            yield f"{name:24} {total[place, 0] / total[place, 1]:.4f}  least {min(parts):.4f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="How often intervals of adaptive trees hold.")
    parser.add_argument("--cells", type=int, default=1024)
    parser.add_argument("--measure", choices=[each.value for each in Measure], default="epsilon")
    parser.add_argument("--releases", type=int, default=100)
    chosen = parser.parse_args()
    for line in lines(chosen.cells, Measure(chosen.measure), chosen.releases):
        print(line, flush=True)


if __name__ == "__main__":
    main()
