"""The census blocks of one state: predicted and measured errors of all levels, by method.

    python -m benchmarks.census [BLOCKS.csv] [--releases 200]

The file has the columns GEOID (15 digits: state 2, county 3, tract 6, block group 1, block 3) and
pop, one row per block; without it the 25,181 blocks of Rhode Island are read from the folder
shared/data beside the project, if it is there. One person more or fewer is a neighbor
(add_remove); epsilon is 1, then rho is 1/2. Every release has a key and noise of its own.

Methods:

    flat noise, summed     the whole budget on the blocks, upper levels are sums
    equal split, raw       a fifth of the budget on each level, every count as it was measured
    equal split, unpooled  the same measurements after least squares
    equal split, pooled    a node with one child is measured once, with the budget of both
    plan: ...              the planner's split for these weights of the levels, pooled

"predicted" is the exact error of the estimates, without data. "counts" are the nonnegative
integers that add up at every node. In brackets: the standard error of a figure over the releases.

    RMSE                   root of the mean of (x - truth)^2 over the level's nodes and the releases
    mean absolute error    mean of |x - truth|
    relative error         mean of |x - truth| / max(truth, 10), in percent

The last table compares each plan with the best of 500 random splits of the budget. Its errors are
roots of the mean of the levels' mean squared errors, weighted as the plan's name says.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.errors.relative import smoothed_relative_error
from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.irregular.node_weights import NodeWeights
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import (
    predicted_level_rmse,
    predicted_node_rmse,
    with_best_shares,
    with_shares,
)
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.randomness import ReleaseKey, public_stream
from dptrees.dpcore.noise.source import NoiseSource, add_noise, combine_digests, counts_digest
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.sensitivity import noise_law
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.trees.consistency import consistent_counts, root_count
from dptrees.dpcore.trees.irregular import IrregularTree
from dptrees.dpcore.trees.least_squares import (
    EstimationWeights,
    estimate_down,
    estimate_up,
    estimation_weights,
)
from dptrees.dpcore.trees.uniform import UniformTree

LEVELS = ("state", "county", "tract", "block group", "block")
# The digits of a GEOID that name a node of each level.
DIGITS = (2, 5, 11, 12, 15)
BUDGETS = (
    Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    Budget(measure=Measure.RHO, amount=Fraction(1, 2)),
)
WEIGHTS = {
    "plan: all levels": (1, 1, 1, 1, 1),
    "plan: blocks": (0, 0, 0, 0, 1),
    "plan: state, county": (1, 1, 0, 0, 0),
    "plan: tracts": (0, 0, 1, 0, 0),
    "plan: 10:5:2:1:1": (10, 5, 2, 1, 1),
    "plan: 1:1:2:5:10": (1, 1, 2, 5, 10),
}
KINDS = ("estimates", "counts")
METRICS = ("RMSE", "mean absolute error", "relative error, percent")
KAPPA = 10.0
SPLITS = 500
TREE = "blocks"
RHODE_ISLAND = Path(__file__).resolve().parents[2] / "shared" / "data" / "ri_2010_blocks.csv"


# --- the blocks ---


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
        ValueError: no such file; columns or values that are missing or not such; blocks listed
            twice, or of several states.
    """
    try:
        options = pa.csv.ConvertOptions(
            include_columns=["GEOID", "pop"],
            column_types={"GEOID": pa.string(), "pop": pa.int64()},
        )
        table = pa.csv.read_csv(path, convert_options=options)
    except OSError:
        raise ValueError(f"{path}: no such file, or it cannot be read") from None
    except (pa.ArrowInvalid, KeyError):
        raise ValueError(f"{path}: not a CSV of GEOID and pop, an integer") from None
    are_codes = pc.match_substring_regex(table["GEOID"], r"^[0-9]{15}$")
    if table.num_rows == 0 or not pc.all(are_codes).as_py():
        raise ValueError(f"{path}: GEOID must be 15 digits, of at least one block")
    if table["pop"].null_count or pc.min(table["pop"]).as_py() < 0:
        raise ValueError(f"{path}: pop must be at least 0 for each block")
    codes, counts = table["GEOID"].cast(pa.int64()).to_numpy(), table["pop"].to_numpy()
    order = np.argsort(codes)
    return Blocks(tree=_tree_of_codes(path, codes[order]), counts=counts[order])


def _tree_of_codes(path: Path, codes: Integers) -> IrregularTree:
    if not np.all(codes[1:] > codes[:-1]):
        raise ValueError(f"{path}: a GEOID occurs more than once")
    fanouts: list[Integers] = []
    for upper, lower in zip(DIGITS[-2::-1], DIGITS[:0:-1], strict=True):
        codes, sizes = np.unique(codes // 10 ** (lower - upper), return_counts=True)
        fanouts.insert(0, sizes)
    if codes.size > 1:
        raise ValueError(f"{path}: blocks of {codes.size} states, the table is for one")
    return IrregularTree.from_fanouts(fanouts)


# --- the methods ---


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """What one release says of every node.

    Attributes:
        estimates: per level, (n_l,).
        counts: per level, (n_l,) nonnegative integers that add up; None where a method has none.
    """

    estimates: Sequence[Floats]
    counts: Sequence[Integers] | None


@dataclass(frozen=True, kw_only=True)
class PlannedMethod:
    """A plan, released in chunks as a pipeline does."""

    name: str
    plan: IrregularPlan

    @property
    def predicted(self) -> tuple[float, ...]:
        """Per level the RMSE of the estimates."""
        return predicted_level_rmse(self.plan)

    @cached_property
    def forest(self) -> IrregularForest:
        """The forest of one tree."""
        return IrregularForest(self.plan)

    def release(self, blocks: Blocks, noise: NoiseSource) -> Release:
        """One release, from all chunks."""
        forest, chunks = self.forest, list(self.forest.chunking)
        parts = [blocks.counts[chunk.start : chunk.start + chunk.leaves] for chunk in chunks]
        measured = [
            forest.measure(TREE, chunk, part, noise)
            for chunk, part in zip(chunks, parts, strict=True)
        ]
        roots = [forest.chunk_roots(*pair) for pair in zip(chunks, measured, strict=True)]
        totals = [
            chunk.tree.level_counts(part)[0] for chunk, part in zip(chunks, parts, strict=True)
        ]
        solutions, solved = forest.solve_spine(
            TREE, 0, np.concatenate(roots), np.concatenate(totals), noise
        )
        first = 0
        for chunk, measurements in zip(chunks, measured, strict=True):
            own = solutions.slice(first, first + chunk.units)
            solved = solved + forest.solve_chunk(chunk, measurements, own)
            first += chunk.units
        # Chunks come in the order of nodes.
        levels = [[part for part in solved if part.level == level] for level in range(len(LEVELS))]
        return Release(
            estimates=[np.concatenate([part.estimate[0] for part in level]) for level in levels],
            counts=[np.concatenate([part.count[0] for part in level]) for level in levels],
        )


@dataclass(frozen=True, kw_only=True)
class EqualSplit:
    """The same part of the budget on each level, every node measured, as published before."""

    name: str
    tree: IrregularTree
    budget: Budget
    estimated: bool

    @cached_property
    def law(self) -> NoiseLaw:
        """Noise law of every node."""
        return noise_law(self.budget.share(Fraction(1, len(LEVELS))), 1, 1)

    @cached_property
    def weights(self) -> EstimationWeights:
        """Weights of least squares."""
        return estimation_weights(cast(UniformTree, self.tree), [self.law.variance] * len(LEVELS))

    @property
    def predicted(self) -> tuple[float, ...]:
        """Per level the RMSE of the estimates."""
        if not self.estimated:
            return (math.sqrt(self.law.variance),) * len(LEVELS)
        variances = self.weights.variances(float(self.weights.below[0][0]))
        return tuple(math.sqrt(level.mean()) for level in variances)

    def release(self, blocks: Blocks, noise: NoiseSource) -> Release:
        """One release."""
        own = noise.for_counts(blocks.counts)
        measured = [
            add_noise(self.law, exact, own.stream(TREE, 0, 0, level))
            for level, exact in enumerate(blocks.truth)
        ]
        if not self.estimated:
            return Release(estimates=[y.astype(np.float64) for y in measured], counts=None)
        estimates = estimate_down(self.weights, estimate_up(self.weights, measured))
        root = root_count(estimates[0])
        return Release(
            estimates=estimates,
            counts=consistent_counts(self.tree, self.weights.below, estimates, root),
        )


Method = PlannedMethod | EqualSplit


def reference_methods(tree: IrregularTree, budget: Budget) -> list[Method]:
    """What the planner is compared with."""
    flat = IrregularPlan(
        tree=tree,
        unit=ADD_REMOVE_ROW,
        budget=budget,
        level_amounts=(*[Fraction(0)] * tree.height, budget.amount),
    )
    pooled = IrregularPlan(
        tree=tree,
        unit=ADD_REMOVE_ROW,
        budget=budget,
        level_amounts=(budget.amount / len(LEVELS),) * len(LEVELS),
    )
    return [
        PlannedMethod(name="flat noise, summed", plan=flat),
        EqualSplit(name="equal split, raw", tree=tree, budget=budget, estimated=False),
        EqualSplit(name="equal split, unpooled", tree=tree, budget=budget, estimated=True),
        PlannedMethod(name="equal split, pooled", plan=pooled),
    ]


def planned_methods(tree: IrregularTree, budget: Budget) -> list[PlannedMethod]:
    """The planner's, one for each of the weights."""
    return [
        PlannedMethod(
            name=name,
            plan=with_best_shares(
                IrregularPlan(tree=tree, budget=budget, unit=ADD_REMOVE_ROW),
                NodeWeights(levels=levels),
            ),
        )
        for name, levels in WEIGHTS.items()
    ]


# --- the errors ---


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over releases, or its root, and its standard error."""

    value: float
    standard_error: float

    @classmethod
    def of(cls, runs: Floats) -> Mean:
        """Return the mean of (releases,) values, with its standard error."""
        error = float(runs.std(ddof=1)) / math.sqrt(runs.size)
        return cls(value=float(runs.mean()), standard_error=error)

    def root(self) -> Mean:
        """The root, its error to first order."""
        root = math.sqrt(self.value)
        return Mean(value=root, standard_error=self.standard_error / (2 * root) if root else 0.0)


def measured_errors(method: Method, blocks: Blocks, budget: Budget, releases: int) -> Floats:
    """(releases, kinds, metrics, levels) the mean over each level's nodes of the squared, absolute
    and relative error; NaN where a method has no such counts."""
    truth = blocks.truth
    errors = np.full((releases, len(KINDS), len(METRICS), len(LEVELS)), np.nan)
    for number in range(releases):
        name = f"{method.name}, {budget.measure.value}"
        released = method.release(blocks, _noise_source(number, name, blocks))
        for kind, levels in enumerate((released.estimates, released.counts)):
            for level, found in enumerate(levels or ()):
                errors[number, kind, :, level] = _node_errors(found, truth[level])
    return errors


def _noise_source(number: int, release: str, blocks: Blocks) -> NoiseSource:
    # Anyone can compute these keys, which is of no use for a release: the figures repeat.
    key = ReleaseKey(hashlib.sha256(f"census benchmark {number}".encode()).digest())
    digest = counts_digest(key, release, TREE, 0, 0, blocks.counts)
    return NoiseSource(
        key=key,
        release=release,
        spec_digest=release.encode(),
        global_digest=combine_digests(digest),
    )


def _node_errors(found: npt.NDArray[Any], truth: Integers) -> tuple[float, float, float]:
    differences = (found - truth).astype(np.float64)
    relative = smoothed_relative_error(found[None], truth, KAPPA)
    squared, absolute = (differences**2).mean(), np.abs(differences).mean()
    return float(squared), float(absolute), 100 * float(relative.mean())


def level_mean(errors: Floats, kind: int, metric: int, level: int) -> Mean:
    """One figure of the tables, from `measured_errors`."""
    mean = Mean.of(errors[:, kind, metric, level])
    return mean.root() if metric == 0 else mean


def weighted_rmse(errors: Floats, kind: int, levels: Sequence[float]) -> Mean:
    """The root of the weighted mean of the levels' mean squared errors."""
    weights = np.array(levels, dtype=np.float64)
    return Mean.of(errors[:, kind, 0] @ (weights / weights.sum())).root()


# --- random splits ---


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


# --- the tables ---


def level_tables(methods: Sequence[Method], errors: Sequence[Floats]) -> list[str]:
    """A table for each metric, with a row for each method and kind."""
    lines = []
    for metric, title in enumerate(METRICS):
        rows = [[title, "", *(f"{name:>8}" for name in LEVELS)]]
        for method, own in zip(methods, errors, strict=True):
            kinds = [[kind, *_cells(own, number, metric)] for number, kind in enumerate(KINDS)]
            if metric == 0:
                kinds.insert(0, ["predicted", *(_figure(value) for value in method.predicted)])
            rows += [["" if number else method.name, *kind] for number, kind in enumerate(kinds)]
        lines += ["", *_aligned(rows)]
    return lines


def plan_table(
    methods: Sequence[PlannedMethod], errors: Sequence[Floats], splits: Floats
) -> list[str]:
    """Each plan beside the best of the random splits for the same weights."""
    variances = level_variances(methods[0].plan, splits)
    best_head = f"best of {len(splits)}"
    rows = [
        ["weighted RMSE", "percent by level", "predicted", *KINDS, best_head, "percent by level"]
    ]
    for method, own in zip(methods, errors, strict=True):
        levels = WEIGHTS[method.name]
        weighted = np.sqrt(variances @ np.array(levels) / sum(levels))
        best = int(np.argmin(weighted))
        shares = [float(each / method.plan.budget.amount) for each in method.plan.level_amounts]
        rows.append(
            [
                method.name,
                _percent(shares),
                _figure(predicted_node_rmse(method.plan, NodeWeights(levels=levels))),
                *(_cell(weighted_rmse(own, kind, levels)) for kind in range(len(KINDS))),
                _figure(weighted[best]),
                _percent(splits[best]),
            ]
        )
    return ["", *_aligned(rows)]


def agreement(methods: Sequence[Method], errors: Sequence[Floats]) -> str:
    """One sentence: how far what was measured lies from what was predicted."""
    deviations = []
    for method, own in zip(methods, errors, strict=True):
        for level, predicted in enumerate(method.predicted):
            mean = Mean.of(own[:, 0, 0, level])
            deviations.append(abs(mean.value - predicted**2) / mean.standard_error)
    beyond = sum(deviation > 2 for deviation in deviations)
    return (
        f"{len(deviations)} mean squared errors of estimates differ from the predicted ones by at "
        f"most {max(deviations):.1f} standard errors; {beyond} by more than 2."
    )


def _cells(errors: Floats, kind: int, metric: int) -> list[str]:
    if np.isnan(errors[:, kind]).any():
        return [f"{'-':>8}"] * len(LEVELS)
    return [_cell(level_mean(errors, kind, metric, level)) for level in range(len(LEVELS))]


def _cell(mean: Mean) -> str:
    return f"{_figure(mean.value)} ({_rounded(mean.standard_error, 2)})"


def _figure(value: float) -> str:
    return f"{_rounded(value, 4):>8}"


def _rounded(value: float, digits: int) -> str:
    """So many digits, or more before the point, but no more than 5 after it."""
    if not value > 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(float(f"{value:.{digits}g}")))
    return f"{value:.{max(0, min(5, decimals))}f}"


def _percent(shares: Sequence[float] | Floats) -> str:
    return " ".join(f"{100 * share:.3g}" for share in shares)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns, each as wide as its longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def compare(blocks: Blocks, budget: Budget, releases: int) -> list[str]:
    """All tables of one budget."""
    planned = planned_methods(blocks.tree, budget)
    methods = [*reference_methods(blocks.tree, budget), *planned]
    errors = [measured_errors(method, blocks, budget, releases) for method in methods]
    return [
        *level_tables(methods, errors),
        *plan_table(planned, errors[-len(planned) :], random_splits(len(LEVELS), SPLITS)),
        "",
        agreement(methods, errors),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("blocks", type=Path, nargs="?", help="CSV of GEOID and pop")
    parser.add_argument("--releases", type=int, default=200, help="of each method, at least 2")
    given = parser.parse_args(arguments)
    if given.releases < 2:
        parser.error("--releases must be at least 2")
    if given.blocks is None and not RHODE_ISLAND.exists():
        print("No file of blocks is named, and the one of Rhode Island is not beside the project.")
        return 0
    start = time.perf_counter()
    try:
        blocks = read_blocks(given.blocks or RHODE_ISLAND)
    except ValueError as error:
        parser.error(str(error))
    sizes = ", ".join(
        f"{name} {size:,}" for name, size in zip(LEVELS, blocks.tree.level_sizes, strict=True)
    )
    print(f"Nodes: {sizes}. People: {int(blocks.counts.sum()):,}. {given.releases} releases each.")
    for budget in BUDGETS:
        print(f"\n== {budget.measure.value} = {budget.amount}, add_remove ==")
        print("\n".join(compare(blocks, budget, given.releases)))
    print(f"\n{time.perf_counter() - start:.0f} seconds")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
