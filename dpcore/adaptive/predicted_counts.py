"""Predicted error of an adaptive tree's counts, at a public guess of the number of rows: a model.

How far off the counts of an adaptive tree are depends on the data, so they are simulated: whole
releases of public histograms (`dpcore.repair.references`), with noise from a public key. The figure
is the geometric mean of the histograms' root mean square errors, as for whole levels
(`dpcore.repair.error`).

Source: derived here, by simulation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from dpcore.adaptive.forest import AdaptiveForest
from dpcore.adaptive.plan import AdaptivePlan
from dpcore.arithmetic.elementary import exp, log
from dpcore.arrays import Floats, Integers
from dpcore.noise.randomness import ReleaseKey
from dpcore.noise.source import NoiseSource
from dpcore.repair.error import CountError
from dpcore.repair.readings import objective_reading, reference_histograms
from dpcore.repair.references import rows_below
from dpcore.trees.uniform import UniformTree
from dpcore.uniform.objectives import Objective

# A tree of more leaves is not simulated: it would take longer than the rest of the plan.
MOST_LEAVES = 2**14
# Of so many leaves in all, in between so many releases.
_LEAVES, _FEWEST, _MOST = 2**15, 4, 32
_PAIRS = 1024
# Everybody knows it: it protects nothing, and makes a prediction the same in every run.
_PUBLIC_KEY = ReleaseKey(bytes(32))


@lru_cache(maxsize=64)
def adaptive_count_error(
    plan: AdaptivePlan, objective: Objective, rows: int, *, averaged: bool
) -> CountError | None:
    """Root mean square error of the counts of an adaptive tree, by the model.

    Args:
        plan: of a uniform tree.
        objective: what is read.
        rows: a public guess.
        averaged: whether counts are averages over trees.

    Returns:
        The errors, in the objective's unit; None of trees of one leaf or more than 16,384.

    >>> from fractions import Fraction
    >>> from dpcore.adaptive.planner import plan_adaptive
    >>> from dpcore.privacy.budget import Budget, Measure
    >>> from dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dpcore.uniform.objectives import CDF
    >>> from dpcore.uniform.setting import TreeSetting
    >>> plan = plan_adaptive(TreeSetting(
    ...     leaves=64, unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))), counts=True)
    >>> few, many = (
    ...     adaptive_count_error(plan, CDF, rows, averaged=True) for rows in (30, 100_000))
    >>> few.typical < many.typical
    True
    """
    tree = plan.tree
    assert isinstance(tree, UniformTree)
    if not 1 < tree.leaves <= MOST_LEAVES:
        return None
    parts = np.arange(tree.leaves + 1) / tree.leaves
    errors = []
    for reference in reference_histograms(objective, tree.leaves):
        reading = objective_reading(objective, tree, reference, _PAIRS)
        exact = np.diff(rows_below(reference, rows, parts))
        squares = [
            reading.mean_square(wrong[reading.stops], np.full(_PAIRS, wrong[-1]))
            for wrong in _wrong_prefixes(plan, exact, averaged=averaged)
        ]
        errors.append(math.sqrt(math.fsum(squares) / len(squares)))
    typical = exp(float(np.mean(log(np.array(errors)))))
    return CountError(rows=rows, typical=typical, least=min(errors), most=max(errors))


def _wrong_prefixes(plan: AdaptivePlan, exact: Integers, *, averaged: bool) -> Iterator[Floats]:
    """Yield (leaves + 1,) count minus truth of the leaves left of each boundary, for each
    release."""
    forest = AdaptiveForest(plan, chunk_leaves=plan.tree.leaves, averaged=averaged)
    chunk = forest.chunking[0]
    for number in range(min(_MOST, max(_FEWEST, _LEAVES // plan.tree.leaves))):
        noise = NoiseSource(
            key=_PUBLIC_KEY, release=f"model {number}", spec_digest=b"", global_digest=b""
        )
        measured = forest.measure("", chunk, exact, noise)
        roots, totals = forest.chunk_roots(chunk, measured), forest.chunk_totals(chunk, exact)
        solved, _ = forest.solve_spine("", 0, roots, totals, noise)
        levels, _ = forest.solve(chunk, measured, solved)
        wrong = np.cumsum(levels[-1].count.reshape(-1) - exact)
        yield np.concatenate([[0.0], wrong.astype(np.float64)])
