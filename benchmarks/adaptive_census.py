"""The census blocks of one state, every node split or sparse ones not: errors of all levels.

    python -m benchmarks.adaptive_census [BLOCKS.csv] [--releases 20]

The file is that of benchmarks/census.py, and so is the tree. Of the people all are counted, or each
with a probability of 1/10, 1/100 or 1/1000: one sample of each, which every release is made of. One
person more or fewer is a neighbor (add_remove). Every release has a key and noise of its own.

    planned           the best plan that splits every node (mechanism: planned)
    adaptive          sparse nodes are not split; planned without a guess
    adaptive, guess   the same, planned with a guess of the rows that is right
    ... , estimates   the same, decided apart (for: estimates)
    thresholds        counts between thresholds (mechanism: thresholds), planned for errors that
                      forgive 0.99 of a count, with a delta of 10^-6 beside the same epsilon and a
                      public bound of twice the people; not under rho, and not predicted in rows

Printed are the root mean square errors over the nodes of each level and the releases, of counts and
of estimates, and the mean absolute errors of counts; `chosen` is what `mechanism: planned` takes
with the guess. "predicted" is the planner's model.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.census import LEVELS, RHODE_ISLAND, Blocks, read_blocks
from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.hierarchy_planner import Planned, is_worth_it, plan_adaptive_hierarchy
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import predicted_level_rmse, with_best_shares
from dptrees.dpcore.levels.relative_objective import RelativeObjective
from dptrees.dpcore.levels.relative_planner import threshold_candidate
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.group import GroupPrivacy
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.thresholds.forest import ThresholdForest, TreeThresholds
from dptrees.dpcore.thresholds.plan import ThresholdPlan
from dptrees.dpcore.trees.exact_sums import level_sums
from dptrees.dpcore.trees.forest import Forest, LevelSolution

BUDGETS = (
    Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    Budget(measure=Measure.EPSILON, amount=Fraction(1, 10)),
    Budget(measure=Measure.RHO, amount=Fraction(1, 2)),
    Budget(measure=Measure.RHO, amount=Fraction(1, 200)),
)
PARTS = (1.0, 0.1, 0.01, 0.001)
DELTA = Fraction(1, 10**6)
FORGIVING = RelativeObjective(metric="alpha_rmse", alpha=0.99)


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to release the tree, and the errors that are predicted for it."""

    name: str
    forest: Forest
    predicted: Sequence[float]


def methods(plan: IrregularPlan, rows: float) -> Iterator[Method]:
    """Yield the methods of the table, for this number of people."""
    split = with_best_shares(plan)
    yield Method(
        name="planned", forest=IrregularForest(split), predicted=predicted_level_rmse(split)
    )
    for counts in (True, False):
        for guess in (None, rows):
            found = plan_adaptive_hierarchy(split, None, counts=counts, guessed_rows=guess)
            yield Method(
                name=_name(found, split, counts, guess),
                forest=AdaptiveForest(found.plan),
                predicted=found.level_errors,
            )
    if plan.budget.measure is Measure.EPSILON:
        yield by_thresholds(plan, rows)


def by_thresholds(plan: IrregularPlan, rows: float) -> Method:
    """Counts between thresholds, at the epsilon of a plan."""
    unit = GroupPrivacy(epsilon=plan.budget.amount, delta=DELTA, unit=plan.unit)
    found = threshold_candidate(plan.tree, unit, FORGIVING, root_bound=2 * int(rows))
    assert found is not None and isinstance(found.plan, ThresholdPlan)
    tree = TreeThresholds(tree=plan.tree, thresholds=found.plan, rows_at_most=2 * int(rows))
    unknown = [float("nan")] * (plan.tree.height + 1)
    return Method(name="thresholds", forest=ThresholdForest(tree), predicted=unknown)


def _name(found: Planned, split: IrregularPlan, counts: bool, guess: float | None) -> str:
    name = "adaptive" if guess is None else "adaptive, guess"
    if not counts:
        name += ", estimates"
    if guess is not None and is_worth_it(found, split, None, counts=counts, guessed_rows=guess):
        name += " (chosen)"
    return name


def solved(forest: Forest, leaves: Integers, number: int) -> list[LevelSolution]:
    """All levels of one release."""
    key = ReleaseKey(number.to_bytes(32, "big"))
    noise = NoiseSource(key=key, release="census", spec_digest=b"", global_digest=b"")
    chunk = forest.chunking[0]
    measured = forest.measure("blocks", chunk, leaves, noise)
    roots, totals = forest.chunk_roots(chunk, measured), forest.chunk_totals(chunk, leaves)
    solutions, _ = forest.solve_spine("blocks", 0, roots, totals, noise)
    return forest.solve(chunk, measured, solutions)[0]


def errors(forest: Forest, blocks: Blocks, releases: int) -> dict[str, Floats]:
    """The errors of each level, by what they are of."""
    exact, of = level_sums(blocks.tree, blocks.counts.reshape(1, -1)), list[Any]()
    for number in range(releases):
        levels = solved(forest, blocks.counts, number)
        pairs = [
            (own.count - true, own.estimate - true) for own, true in zip(levels, exact, strict=True)
        ]
        of.append(
            [[np.mean(c**2), np.mean(e**2), np.mean(np.abs(c))] for c, e in pairs],
        )
    counts, estimates, absolute = np.moveaxis(np.mean(of, axis=0), -1, 0)
    return {
        "counts": np.sqrt(counts),
        "estimates": np.sqrt(estimates),
        "|counts|": absolute,
    }


def tables(blocks: Blocks, releases: int) -> Iterator[str]:
    """The lines of all tables."""
    random = np.random.default_rng(1)
    for part in PARTS:
        own = Blocks(tree=blocks.tree, counts=random.binomial(blocks.counts, part))
        for budget in BUDGETS:
            rows = int(own.counts.sum())
            amount = f"{budget.measure.value} = {float(budget.amount):g}"
            yield f"== {rows:,} people, {amount} ==\n"
            yield f"{'':36}" + "".join(f"{level:>13}" for level in LEVELS)
            plan = IrregularPlan(tree=own.tree, unit=ADD_REMOVE_ROW, budget=budget)
            for method in methods(plan, rows):
                found = {"predicted": np.array(method.predicted)}
                for number, (name, each) in enumerate(
                    (found | errors(method.forest, own, releases)).items()
                ):
                    line = f"{'' if number else method.name:36}"
                    yield line + "".join(f"{value:13.4g}" for value in each) + f"  {name}"
            yield ""


def main(arguments: list[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Census blocks, with sparse nodes not split.")
    parser.add_argument("blocks", type=Path, nargs="?", default=RHODE_ISLAND)
    parser.add_argument("--releases", type=int, default=20)
    chosen = parser.parse_args(arguments)
    for line in tables(read_blocks(chosen.blocks), chosen.releases):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
