"""Many runs of one plan at a time: a forest of units that are each a release of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.trees.chunks import UniformChunking
from dptrees.dpcore.trees.estimation import estimate_down, estimate_up
from dptrees.dpcore.uniform.plan import TreePlan, UniformForest
from tests.dpcore.released_tables import columns_of


def forest_of_runs(kind: Any, plan: TreePlan, runs: int) -> Any:
    """Return a forest of many units, each a run; under a public total too, where a plan describes
    one tree."""
    size = runs * plan.tree.leaves
    forest = kind(plan, chunk_leaves=size)
    forest.chunking = UniformChunking(tree=plan.tree, keys=runs, chunk_leaves=size)
    return forest


def solve_runs(kind: Any, plan: TreePlan, counts: np.ndarray[Any, Any]) -> tuple[Any, Any, Any]:
    """Return the levels, the prefixes and the roots of a release of each row of counts."""
    forest = forest_of_runs(kind, plan, len(counts))
    chunk = forest.chunking[0]
    noise = NoiseSource(
        key=ReleaseKey(bytes(32)), release="r", spec_digest=b"s", global_digest=b"c"
    )
    measured = forest.measure("t", chunk, counts.reshape(-1), noise)
    roots, _ = forest.solve_spine(
        "t", 0, forest.chunk_roots(chunk, measured), counts.sum(axis=1), noise
    )
    return *forest.solve(chunk, measured, roots), roots


def released_cdf(plan: ReleasePlan, counts: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Return (keys, leaves) the released prefixes of a release of one tree, and their standard
    errors."""
    release = release_counts(plan, {plan.questions[0].name: counts}, ReleaseKey(bytes(32)))
    found = columns_of(release, "cdf", "estimate", "std_error")
    return [column.reshape(counts.shape) for column in found]


def unit_responses(plan: TreePlan) -> list[tuple[int, np.ndarray[Any, Any]]]:
    """Return (level, the estimated leaves) for noise of one row in each measured node."""
    tree, forest = plan.tree, UniformForest(plan)
    weights = forest.weights(forest.chunking[0])
    root = np.zeros(1) if plan.public_total else None
    responses = []
    for level, law in enumerate(plan.laws):
        for node in range(tree.level_sizes[level] if law else 0):
            noise: list[Any] = [
                np.zeros(n) if each else None
                for n, each in zip(tree.level_sizes, plan.laws, strict=True)
            ]
            noise[level][node] = 1.0
            responses.append((level, estimate_down(weights, estimate_up(weights, noise), root)[-1]))
    return responses
