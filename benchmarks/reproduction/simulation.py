"""Monte Carlo runs of a plan on many data sets at once, by the steps of a release.

Every run is a data set of its own with noise of its own: the trees are side by side in the forest,
as the trees of the keys of a group-by column are. A run of one data set has the bits that
`dpcore.release.released.release_counts` gives it. The release key is fixed, so that all figures
repeat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource, combine_digests, counts_digest
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.trees.chunks import UniformChunking
from dptrees.dpcore.trees.forests import LevelSolution, PrefixSolution
from dptrees.dpcore.uniform.plan import Consistency, TreePlan, UniformForest

# Public, and so of no use for a release: it makes the figures the same in every run.
KEY = ReleaseKey(bytes(range(32)))
TREE = "simulated"


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The mean of independent runs, and its standard error."""

    value: float
    standard_error: float

    @classmethod
    def of(cls, runs: Floats) -> Mean:
        """Return the mean of (runs,) values, with its standard error."""
        spread = float(runs.std(ddof=1)) / math.sqrt(runs.size)
        return cls(value=float(runs.mean()), standard_error=spread)

    def scaled(self, factor: float) -> Mean:
        """A multiple of it."""
        return Mean(value=self.value * factor, standard_error=self.standard_error * factor)

    def deviation(self, expected: float) -> float:
        """How many standard errors it lies above what was expected."""
        return (self.value - expected) / self.standard_error


@dataclass(frozen=True, kw_only=True, eq=False)
class Simulation:
    """What the runs released.

    Attributes:
        levels: per level, root first, (runs, n_l) estimates in rows.
        prefixes: (runs, K) estimates in rows.
        counts: (runs, K) the consistent integers of the same prefixes.
    """

    levels: tuple[Floats, ...]
    prefixes: Floats
    counts: Integers


def make_release_plan(
    plan: TreePlan, *, name: str, consistency: Consistency = Consistency.TOP_DOWN
) -> ReleasePlan:
    """The release of one tree over the integers 0, ..., K - 1."""
    domain = StepDomain(
        kind="integer",
        column="value",
        lower=0,
        upper=plan.tree.leaves,
        missing="first" if plan.public_total else "drop",
    )
    question = OrderedQuestion(
        name=TREE, domain=domain, mechanism=UniformMechanism(plan=plan, consistency=consistency)
    )
    return ReleasePlan(name=name, unit=plan.unit, budget=plan.budget, questions=(question,))


def simulate(
    plan: TreePlan, counts: Integers, *, name: str, consistency: Consistency = Consistency.TOP_DOWN
) -> Simulation:
    """Releases many data sets.

    Args:
        plan: of the tree, which fits one chunk.
        counts: (runs, K) exact counts of the leaves.
        name: of the runs; the same name, plan and counts give the same noise.
        consistency: which integers accompany the estimates.
    """
    release = make_release_plan(plan, name=name, consistency=consistency)
    noise = _noise_source(release, counts)
    forest = release.questions[0].forest
    # Each run is a data set of its own: none pays for another, as the trees of keys would.
    forest.chunking = UniformChunking(tree=plan.tree, keys=len(counts))
    solved = [_solve(forest, number, counts, noise) for number in range(len(forest.chunking))]
    levels = zip(*(levels for levels, _ in solved), strict=True)
    return Simulation(
        levels=tuple(np.concatenate([part.estimate for part in level]) for level in levels),
        prefixes=np.concatenate([prefixes.estimate for _, prefixes in solved]),
        counts=np.concatenate([prefixes.count for _, prefixes in solved]),
    )


def prefix_error(plan: TreePlan, *, runs: int, name: str, rows_per_leaf: float = 20.0) -> Mean:
    """The measured squared error of the estimated prefixes, mean over the K, in rows^2."""
    counts = poisson_counts(runs, plan.tree.leaves, rows_per_leaf)
    released = simulate(plan, counts, name=name).prefixes
    return Mean.of(((released - np.cumsum(counts, axis=1)) ** 2).mean(axis=1))


def poisson_counts(runs: int, leaves: int, rows_per_leaf: float) -> Integers:
    """(runs, K) data sets."""
    return np.random.default_rng(0).poisson(rows_per_leaf, (runs, leaves)).astype(np.int64)


def _noise_source(release: ReleasePlan, counts: Integers) -> NoiseSource:
    digest = counts_digest(KEY, release.name, TREE, 0, 0, counts.reshape(-1))
    return NoiseSource(
        key=KEY,
        release=release.name,
        spec_digest=release.digest,
        global_digest=combine_digests(digest),
    )


def _solve(
    forest: UniformForest, number: int, counts: Integers, noise: NoiseSource
) -> tuple[Sequence[LevelSolution], PrefixSolution]:
    """The steps of a release for the trees of one chunk."""
    chunk = forest.chunking[number]
    mine = counts[chunk.key : chunk.key + chunk.units]
    measured = forest.measure(TREE, chunk, mine.reshape(-1), noise)
    roots = forest.chunk_roots(chunk, measured)
    solutions, _ = forest.solve_spine(TREE, chunk.key, roots, mine.sum(axis=1), noise)
    return forest.solve(chunk, measured, solutions)


def measured(mean: Mean) -> str:
    """A mean and its standard error, to two digits of that."""
    digits = 1 - math.floor(math.log10(mean.standard_error))
    shown = [round(each, digits) for each in (mean.value, mean.standard_error)]
    if mean.value >= 1e9:
        return " ± ".join(f"{each:.4g}" for each in shown)
    return " ± ".join(f"{each:,.{max(0, digits)}f}" for each in shown)
