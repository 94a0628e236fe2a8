"""The census blocks of one state: errors of all levels by method, of sparse blocks, and of sums.

    python -m benchmarks.census [BLOCKS.csv] [--releases 200]
    python -m benchmarks.census --adaptive [BLOCKS.csv] [--releases 20]
    python -m benchmarks.census --sums [BLOCKS.csv] [--releases 20]

The file has the columns GEOID (15 digits: state 2, county 3, tract 6, block group 1, block 3) and
pop, one row per block; without it the 25,181 blocks of Rhode Island are read from the folder
shared/data beside the project. One person more or fewer is a neighbor (add_remove). Every release
has a key and noise of its own. "predicted" is the error of the estimates, without data; "counts"
are the nonnegative integers that add up at every node.

- Methods: the whole budget on the blocks (flat noise, summed); a fifth of the budget on each level,
  a node with one child being measured once, with the budget of both (equal split, pooled); and the
  planner's split for these weights of the levels. Root mean square errors over the nodes of a
  level and the releases; in brackets the standard error over the releases. Then each plan beside
  the best of 500 random splits of the budget, by roots of weighted means of the levels' mean
  squared errors.
- Adaptive: all people, or one sample of them; trees whose sparse nodes are not split, with and
  without a right guess of the rows, beside the best plan that splits every node, and thresholds
  (planned for errors that forgive 0.99 of a count, with a delta of 10^-6).
- Sums: the bias of a block's count, and root mean square errors of sums over groups of blocks:
  of estimates, of the nearest integers of either sign, and of counts by both consistencies.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import SHARED_DATA, print_lines, public_noise, solved_chunk
from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.hierarchy_planner import is_worth_it, plan_adaptive_hierarchy
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import (
    NodeWeights,
    predicted_level_rmse,
    predicted_node_rmse,
    with_best_shares,
    with_shares,
)
from dptrees.dpcore.levels.relative_errors import RelativeObjective, threshold_candidate
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.privacy.sensitivity import GroupPrivacy
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.thresholds.forest import ThresholdForest, TreeThresholds
from dptrees.dpcore.trees.shapes import IrregularTree

LEVELS = ("state", "county", "tract", "block group", "block")
# The digits of a GEOID that name a node of each level.
DIGITS = (2, 5, 11, 12, 15)
EPSILON = Budget(measure=Measure.EPSILON, amount=Fraction(1))
RHO = Budget(measure=Measure.RHO, amount=Fraction(1, 2))
WEIGHTS = {
    "plan: all levels": (1, 1, 1, 1, 1),
    "plan: blocks": (0, 0, 0, 0, 1),
    "plan: state, county": (1, 1, 0, 0, 0),
    "plan: tracts": (0, 0, 1, 0, 0),
    "plan: 10:5:2:1:1": (10, 5, 2, 1, 1),
    "plan: 1:1:2:5:10": (1, 1, 2, 5, 10),
}
KINDS, SPLITS = ("estimates", "counts"), 500
RHODE_ISLAND = SHARED_DATA / "ri_2010_blocks.csv"


@dataclass(frozen=True, kw_only=True, eq=False)
class Blocks:
    """The blocks of one state.

    Attributes:
        tree: of state, county, tract, block group and block.
        counts: (blocks,) the people of each.
    """

    tree: IrregularTree
    counts: Integers

    @cached_property
    def truth(self) -> list[Integers]:
        """Per level, (n_l,) the exact counts."""
        return self.tree.level_counts(self.counts)


def read_blocks(path: Path) -> Blocks:
    """The blocks of a CSV file with the columns GEOID and pop, in any order.

    Raises:
        ValueError: blocks listed twice, or of several states, or of other digits.
    """
    with path.open(encoding="utf-8") as lines:
        rows = sorted((row["GEOID"], int(row["pop"])) for row in csv.DictReader(lines))
    if any(len(code) != DIGITS[-1] for code, _ in rows) or len(dict(rows)) < len(rows):
        raise ValueError(f"{path}: GEOID must be {DIGITS[-1]} digits, each once")
    codes, fanouts = np.array([int(code) for code, _ in rows]), list[Integers]()
    for upper, lower in zip(DIGITS[-2::-1], DIGITS[:0:-1], strict=True):
        codes, sizes = np.unique(codes // 10 ** (lower - upper), return_counts=True)
        fanouts.insert(0, sizes)
    if codes.size != 1:
        raise ValueError(f"{path}: blocks of {codes.size} states, the table is for one")
    tree = IrregularTree.from_fanouts(fanouts)
    return Blocks(tree=tree, counts=np.array([people for _, people in rows]))


class Method(NamedTuple):
    """A way to release the tree, and the errors of the levels that are predicted for it."""

    name: str
    forest: Any
    predicted: Sequence[float]


def planned(name: str, plan: IrregularPlan, **repair: bool) -> Method:
    """A plan that splits every node."""
    return Method(name, IrregularForest(plan, **repair), predicted_level_rmse(plan))


def errors(method: Method, blocks: Blocks, number: int) -> tuple[list[Any], list[Any]]:
    """Per level, the errors of the estimates and of the counts of one release."""
    noise = public_noise(number, method.name)
    levels, _, _ = solved_chunk(method.forest, method.forest.chunking[0], blocks.counts, noise)
    pairs = list(zip(levels, blocks.truth, strict=True))
    return [x.estimate[0] - true for x, true in pairs], [x.count[0] - true for x, true in pairs]


def squares(method: Method, blocks: Blocks, releases: int) -> Floats:
    """(releases, kinds, levels) the mean squared errors of the nodes of each level."""
    return np.array(
        [
            [[np.mean(np.square(level, dtype=float)) for level in kind] for kind in released]
            for released in (errors(method, blocks, number) for number in range(releases))
        ]
    )


# --- methods and splits of the budget ---


def methods(tree: IrregularTree, budget: Budget) -> list[Method]:
    """The references, and the planner's, one for each of the weights."""
    plan = IrregularPlan(tree=tree, unit=ADD_REMOVE_ROW, budget=budget)
    return [
        planned("flat noise, summed", with_shares(plan, [0, 0, 0, 0, 1])),
        planned("equal split, pooled", with_shares(plan, [Fraction(1, 5)] * 5)),
        *(
            planned(name, with_best_shares(plan, NodeWeights(levels=levels)))
            for name, levels in WEIGHTS.items()
        ),
    ]


def random_splits(levels: int, count: int) -> Floats:
    """(count, levels) shares of sum 1, evenly distributed over all; in every tenth split each level
    above the lowest is left out with probability 1/2."""
    stream = public_stream("splits of the census benchmark", levels, count)
    bits = stream.uint64(count * levels).reshape(count, levels)
    # The spacings of a Poisson process, over their sum, are even on the simplex.
    shares = -np.log(((bits >> np.uint64(12)).astype(np.float64) + 0.5) / 2.0**52)
    left_out = (bits & np.uint64(1)) == 1
    left_out[:, -1] = False
    left_out[np.arange(count) % 10 > 0] = False
    shares[left_out] = 0.0
    whole: Floats = shares / shares.sum(axis=1, keepdims=True)
    return whole


def level_variances(plan: IrregularPlan, splits: Floats) -> Floats:
    """(splits, levels) the predicted mean variance of each level under each split."""
    return np.array([predicted_level_rmse(with_shares(plan, split)) for split in splits]) ** 2


def root_cell(runs: Floats) -> str:
    """The root of the mean of (releases,) squares, and its standard error."""
    root = math.sqrt(runs.mean())
    error = runs.std(ddof=1) / math.sqrt(runs.size) / (2 * root) if root else 0.0
    return f"{root:.4g} ({error:.2g})"


def method_lines(blocks: Blocks, budget: Budget, releases: int) -> Iterator[str]:
    """Yield both tables of one budget."""
    every = methods(blocks.tree, budget)
    found = {each.name: squares(each, blocks, releases) for each in every}
    yield f"\n== {budget.measure.value} = {budget.amount}, add_remove ==\n"
    yield f"{'RMSE':<34}" + "".join(f"{level:<18}" for level in LEVELS)
    for each in every:
        rows = [("predicted", [f"{value:.4g}" for value in each.predicted])]
        for kind, name in enumerate(KINDS):
            rows.append((name, [root_cell(own) for own in found[each.name][:, kind].T]))
        for number, (name, cells) in enumerate(rows):
            head = "" if number else each.name
            yield f"{head:<23}{name:<11}" + "".join(f"{cell:<18}" for cell in cells)
    splits = random_splits(len(LEVELS), SPLITS)
    variances = level_variances(every[0].forest.plan, splits)
    heads = ("percent by level", "predicted", *KINDS, f"best of {len(splits)}", "percent by level")
    yield f"\n{'weighted RMSE':<21}" + "".join(f"{head:<19}" for head in heads)
    for each in every[2:]:
        levels, plan = np.array(WEIGHTS[each.name]), each.forest.plan
        weighted = np.sqrt(variances @ levels / levels.sum())
        best = int(np.argmin(weighted))
        shares = [
            " ".join(f"{100 * float(share):.3g}" for share in split)
            for split in ([x / budget.amount for x in plan.level_amounts], splits[best])
        ]
        weights = NodeWeights(levels=tuple(WEIGHTS[each.name]))
        own = found[each.name] @ (levels / levels.sum())
        cells = [
            shares[0],
            f"{predicted_node_rmse(plan, weights):.4g}",
            *(root_cell(kind) for kind in own.T),
            f"{weighted[best]:.4g}",
            shares[1],
        ]
        yield f"{each.name:<21}" + "".join(f"{cell:<19}" for cell in cells)


# --- sparse nodes that are not split ---


def adaptive_methods(plan: IrregularPlan, rows: int) -> Iterator[Method]:
    """Yield the methods of the table, for this number of people."""
    split = with_best_shares(plan)
    yield planned("planned", split)
    for counts in (True, False):
        for guess in (None, rows):
            found = plan_adaptive_hierarchy(split, None, counts=counts, guessed_rows=guess)
            name = ("adaptive" if guess is None else "adaptive, guess") + ", estimates" * (
                not counts
            )
            if guess and is_worth_it(found, split, None, counts=counts, guessed_rows=guess):
                name += " (chosen)"
            yield Method(name, AdaptiveForest(found.plan), found.level_errors)
    if plan.budget.measure is Measure.EPSILON:
        unit = GroupPrivacy(epsilon=plan.budget.amount, delta=Fraction(1, 10**6), unit=plan.unit)
        forgiving = RelativeObjective(metric="alpha_rmse", alpha=0.99)
        candidate: Any = threshold_candidate(plan.tree, unit, forgiving, root_bound=2 * rows)
        tree = TreeThresholds(tree=plan.tree, thresholds=candidate.plan, rows_at_most=2 * rows)
        yield Method("thresholds", ThresholdForest(tree), [math.nan] * len(LEVELS))


def adaptive_lines(blocks: Blocks, releases: int) -> Iterator[str]:
    """Yield the tables of samples and budgets."""
    random = np.random.default_rng(1)
    for part in (1.0, 0.1, 0.01, 0.001):
        own = Blocks(tree=blocks.tree, counts=random.binomial(blocks.counts, part))
        rows = int(own.counts.sum())
        for text in ("epsilon = 1", "epsilon = 0.1", "rho = 0.5", "rho = 0.005"):
            measure, _, amount = text.split()
            budget = Budget(measure=Measure(measure), amount=Fraction(amount))
            plan = IrregularPlan(tree=own.tree, unit=ADD_REMOVE_ROW, budget=budget)
            yield f"== {rows:,} people, {text} ==\n"
            yield f"{'':36}" + "".join(f"{level:>13}" for level in LEVELS)
            for method in adaptive_methods(plan, rows):
                released = [errors(method, own, number) for number in range(releases)]
                kinds = {"predicted": method.predicted}
                for kind, name in enumerate(KINDS):
                    levels = zip(*(each[kind] for each in released), strict=True)
                    kinds[name] = [math.sqrt(np.mean(np.square(x, dtype=float))) for x in levels]
                counted = zip(*(counts for _, counts in released), strict=True)
                kinds["|counts|"] = [float(np.mean(np.abs(x))) for x in counted]
                for number, (name, each) in enumerate(kinds.items()):
                    head = "" if number else method.name
                    yield f"{head:36}" + "".join(f"{x:13.4g}" for x in each) + f"  {name}"
            yield ""


# --- sums of counts ---


def sum_lines(blocks: Blocks, releases: int) -> Iterator[str]:
    """Yield the table of biases and of sums over groups of blocks."""
    counts = blocks.counts
    kinds = {
        "empty": np.flatnonzero(counts == 0),
        "1-10": np.flatnonzero((counts > 0) & (counts <= 10)),
        ">100": np.flatnonzero(counts > 100),
        "any": np.arange(len(counts)),
    }
    groups = {}
    for size in (10, 100, 1000):
        for kind, members in kinds.items():
            rng = np.random.default_rng(size)
            if len(members) >= size:
                chosen = [rng.choice(members, size, replace=False) for _ in range(200)]
                groups[f"{kind} {size}"] = chosen
        starts = np.random.default_rng(size).integers(0, max(1, len(counts) - size), 200)
        groups[f"run {size}"] = [np.arange(at, min(at + size, len(counts))) for at in starts]
    plan = with_best_shares(IrregularPlan(tree=blocks.tree, budget=EPSILON, unit=ADD_REMOVE_ROW))
    repairs = {
        "rounded": {"signed": True},
        "top_down": {},
        "smallest_first": {"smallest_first": True},
    }
    heads = ("bias: empty", "1-10", ">100", "RMSE", *groups)
    yield f"{'':<14}" + "".join(f"{head:>12}" for head in heads)
    found: dict[str, list[Any]] = {"estimates": []}
    for name, repair in repairs.items():
        method = planned("sums", plan, **repair)
        released = [errors(method, blocks, number) for number in range(releases)]
        found[name] = [own[-1] for _, own in released]
        found["estimates"] = [own[-1] for own, _ in released]
    for name, each in found.items():
        own = np.array(each, dtype=float)
        cells = [own[:, kinds[kind]].mean() for kind in ("empty", "1-10", ">100")]
        cells.append(math.sqrt(np.mean(own**2)))
        for members in groups.values():
            sums = [np.mean(own[:, group].sum(axis=1) ** 2) for group in members]
            cells.append(math.sqrt(np.mean(sums)))
        yield f"{name:<14}" + "".join(f"{cell:12.2f}" for cell in cells)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("blocks", type=Path, nargs="?", default=RHODE_ISLAND)
    parser.add_argument("--releases", type=int, help="200; of the other tables 20")
    parser.add_argument("--adaptive", action="store_true", help="sparse nodes that are not split")
    parser.add_argument("--sums", action="store_true", help="biases, and sums over blocks")
    given = parser.parse_args(arguments)
    blocks = read_blocks(given.blocks)
    if given.adaptive or given.sums:
        lines = adaptive_lines if given.adaptive else sum_lines
        print_lines(lines(blocks, given.releases or 20))
        return 0
    for budget in (EPSILON, RHO):
        print_lines(method_lines(blocks, budget, given.releases or 200))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
