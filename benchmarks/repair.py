"""People in empty leaves, by the rule that makes counts of estimates.

    python -m benchmarks.repair [--releases 5]

One row a setting, data set and rule: people in empty leaves, empty leaves with people, leaves of
people without any, the root mean square error of leaves, the mean relative error of leaves of ten
and more, and the bias of leaves of 1 to 3 and of more than 100. The estimates of a release are the
same for all rules (substitute, the plan for all levels alike, rounded Gaussian or geometric noise).
Rhode Island's blocks (2010) and Adult crossed by education, marital status, occupation and
relationship are read from shared/data beside the project; the other leaves are drawn.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.harness import SHARED_DATA
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import with_best_shares
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.trees.consistency import consistent_counts
from dptrees.dpcore.trees.estimation import estimate_down, estimate_up, estimation_weights
from dptrees.dpcore.trees.shapes import IrregularTree

DIGITS = (2, 5, 11, 12, 15)
CROSSED = {"education-num": 16, "marital-status": 7, "occupation": 15, "relationship": 6}
BUDGETS = ("rho=1/50", "rho=1/10", "rho=1/2", "rho=1", "rho=5", "epsilon=1/10", "epsilon=1")
HEAD = f"{'people':>9}{'found':>10}{'lost':>10}{'RMSE':>10}{'rel':>10}{'1-3':>10}{'>100':>10}"


def rhode_island() -> tuple[IrregularTree, Integers]:
    """Return the tree of the state's blocks, and the people of each."""
    with (SHARED_DATA / "ri_2010_blocks.csv").open(encoding="utf-8") as lines:
        rows = sorted((int(row["GEOID"]), int(row["pop"])) for row in csv.DictReader(lines))
    codes, fanouts = np.array([code for code, _ in rows]), list[Integers]()
    for upper, lower in zip(DIGITS[-2::-1], DIGITS[:0:-1], strict=True):
        codes, sizes = np.unique(codes // 10 ** (lower - upper), return_counts=True)
        fanouts.insert(0, sizes)
    return IrregularTree.from_fanouts(fanouts), np.array([people for _, people in rows])


def adult() -> tuple[IrregularTree, Integers]:
    """Return the tree of four crossed columns, and the rows of each combination."""
    with (SHARED_DATA / "adult.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    place, fanouts = np.zeros(len(rows), np.int64), list[list[int]]()
    for column, size in CROSSED.items():
        fanouts.append([size] * (len(fanouts[-1]) * fanouts[-1][0] if fanouts else 1))
        place = place * size + np.array([int(row[column]) for row in rows])
    tree = IrregularTree.from_fanouts(fanouts)
    return tree, np.bincount(place, minlength=tree.leaves)


def drawn(leaves: Callable[[Any, int], Any]) -> Callable[[], tuple[IrregularTree, Integers]]:
    """Return a tree of four levels of any fan-outs, with leaves that are drawn."""

    def made() -> tuple[IrregularTree, Integers]:
        random, nodes, fanouts = np.random.default_rng(1), 6, [[6]]
        for fewest, most in ((5, 30), (2, 8), (5, 60)):
            fanouts.append(random.integers(fewest, most, nodes).tolist())
            nodes = sum(fanouts[-1])
        return IrregularTree.from_fanouts(fanouts), leaves(random, nodes)

    return made


SETS: dict[str, Callable[[], tuple[IrregularTree, Integers]]] = {
    "Rhode Island": rhode_island,
    "Adult": adult,
    "Zipf": drawn(lambda random, n: np.minimum(random.zipf(1.5, n) - 1, 200_000)),
    "dense": drawn(lambda random, n: random.poisson(random.gamma(4, 50, n))),
    "few empty": drawn(lambda random, n: random.poisson(random.gamma(1.5, 6, n))),
    "small": drawn(lambda random, n: random.poisson(1.0, n)),
    "lognormal": drawn(lambda random, n: np.floor(np.exp(random.normal(1, 2, n))).astype(int)),
}


def estimates(tree: IrregularTree, counts: Integers, plan: IrregularPlan, seed: int) -> Any:
    """Return a of each level, and the estimates of one release."""
    random, truth = np.random.default_rng(seed), tree.level_counts(counts)
    leaves = np.repeat(plan.leaf_variances, tree.fanouts[-1])
    variances, noisy = [*plan.variances_above_leaves, leaves], list[Floats]()
    for exact, variance in zip(truth, variances, strict=True):
        spread = np.where(np.isfinite(variance), variance, 0.0)
        if plan.budget.measure is Measure.RHO:
            noise = np.rint(np.sqrt(spread) * random.standard_normal(exact.shape))
        else:
            stop = np.where(spread > 0, (np.sqrt(1 + 2 * spread) - 1) / np.fmax(spread, 1e-9), 1)
            noise = random.geometric(stop).astype(float) - random.geometric(stop)
        noisy.append(exact + noise)
    weights = estimation_weights(tree, variances)
    return weights.below, estimate_down(
        weights, estimate_up(weights, noisy), truth[0].astype(float)
    )


def measures(truth: Integers, counts: Integers) -> list[float]:
    """Return the columns of the table."""
    error, empty, large = counts - truth, truth == 0, truth >= 10
    few, many = error[(truth > 0) & (truth <= 3)], error[truth > 100]
    relative = np.abs(error[large]) / truth[large]
    means = [float(each.mean()) if each.size else np.nan for each in (relative, few, many)]
    root = float(np.sqrt(np.mean(np.square(error, dtype=float))))
    found = int((counts[empty] > 0).sum()), int((counts[~empty] == 0).sum())
    return [int(counts[empty].sum()), *found, root, *means]


def smallest_first(tree: IrregularTree, levels: list[Floats]) -> list[Integers]:
    """Take what there is too much of off the smallest children first, node by node: the rule that
    was ours before, but for the rounding."""
    counts = [np.rint(levels[0]).astype(np.int64)]
    for fanouts, values in zip(tree.fanouts, levels[1:], strict=True):
        nodes = zip(np.split(values, np.cumsum(fanouts)[:-1]), counts[-1], strict=True)
        below = []
        for children, total in nodes:
            order = np.argsort(children, kind="stable")
            filled = np.clip(np.cumsum(children[order]), 0, total)
            filled[-1] = total
            share = np.empty(len(children))
            share[order] = np.diff(filled, prepend=0)
            whole = np.floor(share + 1e-9)
            left = np.argsort(-(share - whole), kind="stable")[: round(float(total - whole.sum()))]
            whole[left] += 1
            below.append(whole)
        counts.append(np.concatenate(below).astype(np.int64))
    return counts


def table(releases: int) -> Iterator[str]:
    """Yield the rows."""
    for name, made in SETS.items():
        tree, truth = made()
        yield f"\n{name}: {int((truth == 0).sum()):,} of {tree.leaves:,} leaves are empty"
        yield f"{'':30}{HEAD}"
        for text in BUDGETS:
            measure, amount = text.split("=")
            budget = Budget(measure=Measure(measure), amount=Fraction(amount))
            plan = with_best_shares(
                IrregularPlan(tree=tree, unit=SUBSTITUTE_ROW, budget=budget, public_level=0)
            )
            found: dict[str, list[list[float]]] = {}
            for seed in range(releases):
                below, levels = estimates(tree, truth, plan, seed)
                top = np.rint(levels[0]).astype(np.int64)
                for rule in ("top_down", "fewest"):
                    counts = consistent_counts(tree, below, levels, top, fewest=rule == "fewest")
                    found.setdefault(rule, []).append(measures(truth, counts[-1]))
                found.setdefault("smallest_first", []).append(
                    measures(truth, smallest_first(tree, levels)[-1])
                )
            for rule, rows in found.items():
                cells = "".join(f"{x:10.3g}" for x in np.mean(rows, axis=0)[1:])
                yield f"{text:14}{rule:16}{np.mean([row[0] for row in rows]):9.0f}{cells}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--releases", type=int, default=5)
    for line in table(parser.parse_args().releases):
        print(line)
