"""Predicted error of an adaptive tree's counts, at a public guess of the number of rows: a model.

How far off the counts of an adaptive tree are depends on the data, so they are simulated: whole
releases of public histograms (`dpcore.repair.references`), with noise from a public key. The figure
is the geometric mean of the histograms' root mean square errors, as for whole levels
(`dpcore.repair.error`).

Source: derived here, by simulation.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.planner import rows_in_noise, rule_thresholds
from dptrees.dpcore.adaptive.whole_levels import if_all_split
from dptrees.dpcore.arithmetic.elementary import exp, log
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.repair.error import CountError
from dptrees.dpcore.repair.readings import objective_reading, reference_histograms
from dptrees.dpcore.repair.references import Distribution, rows_below
from dptrees.dpcore.trees.chunks import Chunk, UniformChunking
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.objectives import Objective

# A tree of more leaves is not simulated: it would take longer than the rest of the plan.
MOST_LEAVES = 2**14
# Of so many leaves in all, in between so many releases.
_LEAVES, _FEWEST, _MOST = 2**17, 8, 64
_PAIRS = 1024
_CHUNK = 2**17
# Simulations in each power of ten of the rows, and how near to one is at it.
_STEPS, _NEAR = 4, 0.01
_LEAST = 1e-12
# Everybody knows it: it protects nothing, and makes a prediction the same in every run.
_PUBLIC_KEY = ReleaseKey(bytes(32))


@lru_cache(maxsize=256)
def adaptive_count_error(plan: AdaptivePlan, objective: Objective, rows: int) -> CountError | None:
    """Root mean square error of the counts of an adaptive tree, by the model.

    Errors and rows are both in units of the noise, so plans that differ in the budget or the unit
    alone share their simulations; between these, a quarter of a power of ten apart, the logarithm
    of the error is interpolated. So the error falls as the budget grows, without jumps.

    Args:
        plan: of a uniform tree.
        objective: what is read.
        rows: a public guess.

    Returns:
        The errors, in the objective's unit; None of trees of one leaf or more than 16,384.

    >>> from dptrees.dpcore.adaptive.planner import plan_adaptive
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.uniform.objectives import CDF
    >>> from dptrees.dpcore.uniform.setting import TreeSetting
    >>> plan = plan_adaptive(TreeSetting(
    ...     leaves=64, unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))), counts=True)
    >>> few, many = (
    ...     adaptive_count_error(plan, CDF, rows) for rows in (30, 100_000))
    >>> few.typical < many.typical
    True
    """
    if not 1 < plan.tree.leaves <= MOST_LEAVES:
        return None
    scale = 1 / rows_in_noise(if_all_split(plan).setting, 1.0)
    place = max(0.0, _STEPS * log(rows / scale) / log(10.0))
    below = math.floor(place + _NEAR)
    weight = max(0.0, place - below)
    scaled = _at_scale_one(plan, scale)
    logs = _log_errors(scaled, objective, below)
    if weight > _NEAR:
        above = _log_errors(scaled, objective, below + 1)
        logs = logs + weight * (above - logs)
    errors = exp(logs) * scale
    typical = exp(float(np.mean(logs))) * scale
    return CountError(
        rows=rows, typical=typical, least=float(errors.min()), most=float(errors.max())
    )


def _at_scale_one(plan: AdaptivePlan, scale: float) -> AdaptivePlan:
    """The plan at the budget that gives one count noise of scale 1."""
    times = scale if plan.budget.measure is Measure.EPSILON else scale * scale
    ratio = Fraction(round(float(plan.budget.amount) * times, 3)) / plan.budget.amount
    scaled = replace(
        plan,
        budget=replace(plan.budget, amount=plan.budget.amount * ratio),
        level_amounts=tuple(amount * ratio for amount in plan.level_amounts),
    )
    return replace(scaled, thresholds=rule_thresholds(scaled))


@lru_cache(maxsize=256)
def _log_errors(plan: AdaptivePlan, objective: Objective, place: int) -> Floats:
    """(histograms,) logarithms of the root mean square errors at 10^(place / 4) rows."""
    tree, rows = plan.tree, max(1, round(exp(place * log(10.0) / _STEPS)))
    assert isinstance(tree, UniformTree)
    references = reference_histograms(objective, tree.leaves)
    errors = []
    for reference, prefixes in zip(
        references, _wrong_prefixes(plan, references, rows), strict=True
    ):
        reading = objective_reading(objective, tree, reference, _PAIRS)
        squares = [
            reading.mean_square(each[reading.stops], np.full(_PAIRS, each[-1])) for each in prefixes
        ]
        errors.append(math.sqrt(max(_LEAST, math.fsum(squares) / len(squares))))
    return log(np.array(errors))


@lru_cache(maxsize=8)
def _wrong_prefixes(plan: AdaptivePlan, references: tuple[Distribution, ...], rows: int) -> Floats:
    """(histograms, releases, leaves + 1) count minus truth of the leaves left of each boundary."""
    tree = plan.tree
    assert isinstance(tree, UniformTree)
    leaves, releases = tree.leaves, min(_MOST, max(_FEWEST, _LEAVES // tree.leaves))
    parts = np.arange(leaves + 1) / leaves
    exact = np.stack([np.diff(rows_below(each, rows, parts)) for each in references])
    forest = AdaptiveForest(plan, chunk_leaves=leaves)
    # Each release of public data is a tree of its own, whatever the plan's unit pays for.
    forest.chunking = UniformChunking(
        keys=len(exact) * releases, chunk_leaves=max(leaves, _CHUNK), tree=tree
    )
    counts = [
        _released(forest, chunk, np.repeat(exact, releases, axis=0)[chunk.key :][: chunk.rows])
        for chunk in forest.chunking
    ]
    wrong = np.cumsum(
        np.concatenate(counts).reshape(len(exact), releases, leaves) - exact[:, None], axis=2
    )
    return np.pad(wrong, ((0, 0), (0, 0), (1, 0))).astype(np.float64)


def _released(forest: AdaptiveForest, chunk: Chunk, exact: Integers) -> Integers:
    """(trees, leaves) counts of the leaves of a chunk's trees, from public ones."""
    noise = NoiseSource(key=_PUBLIC_KEY, release="model", spec_digest=b"", global_digest=b"")
    measured = forest.measure("", chunk, exact.reshape(-1), noise)
    roots = forest.chunk_roots(chunk, measured)
    totals = forest.chunk_totals(chunk, exact.reshape(-1))
    solved, _ = forest.solve_spine("", chunk.key, roots, totals, noise)
    levels, _ = forest.solve(chunk, measured, solved)
    return levels[-1].count
