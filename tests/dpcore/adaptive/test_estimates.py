"""Estimates given the drawn tree: unbiased, of the stated variance, their intervals hold.

A node whose count is at its threshold is split in about half of the releases. Where decisions
were measured apart, its error given that it was split, or not, has mean 0 and the stated variance.
Each test may fail by chance once in a million times, and fails where measurements decide or where
noise is 30 % smaller than stated.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.mechanism import AdaptiveWidths, adaptive_widths
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.planner import plan_adaptive
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.uniform.plan import TreeSetting
from tests.dpcore.adaptive_trees import Solved, solve_adaptive, source

RELEASES = 4000
ALARM = 1e-6
NODE = 1  # of level 1, whose count is at the threshold
WATCHED = [(measure, split) for measure in Measure for split in (True, False)]


def near_threshold(measure: Measure, *, counts: bool) -> tuple[AdaptivePlan, Integers]:
    """A plan of 4 nodes of 4 leaves each, and counts: of node 1 the threshold's."""
    setting = TreeSetting(
        leaves=16,
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=measure, amount=Fraction(1, 5 if measure is Measure.EPSILON else 50)),
        keyed=True,
    )
    plan = plan_adaptive(setting, counts=counts, fanouts=(4, 4))
    leaves = np.zeros((4, 4), dtype=np.int64)
    leaves[NODE, 2] = plan.thresholds[1]
    leaves[3] = 500
    return plan, leaves.reshape(-1)


def solve_many(plan: AdaptivePlan, leaves: Integers) -> Solved:
    forest = AdaptiveForest(plan, keys=RELEASES, chunk_leaves=leaves.size * RELEASES)
    return solve_adaptive(forest, np.tile(leaves, RELEASES), source(7))


def standard_errors(solved: Solved, leaves: Integers, *, split: bool) -> Floats:
    """Errors of the node's estimate in stated standard errors, of releases of one kind."""
    level = {name: values[:, NODE] for name, values in solved.levels[1].items()}
    kept = (level["ended"] < 0) == split
    truth = leaves.reshape(4, 4)[NODE].sum()
    return (level["estimate"] - truth)[kept] / np.sqrt(level["variance"][kept])


def is_centered(errors: Floats) -> bool:
    """Whether a mean of 0 is plausible, but for once in a million."""
    return bool(
        abs(errors.mean()) < stats.norm.isf(ALARM / 2) * errors.std() / np.sqrt(errors.size)
    )


def has_unit_variance(errors: Floats) -> bool:
    """Whether a mean square of 1 is plausible, likewise."""
    spread = stats.norm.isf(ALARM / 2) * (errors**2).std() / np.sqrt(errors.size)
    return bool(abs((errors**2).mean() - 1) < spread)


@pytest.mark.parametrize(("measure", "split"), WATCHED)
def test_given_the_drawn_tree_estimates_are_unbiased_with_the_stated_variance(
    measure: Measure, split: bool
) -> None:
    plan, leaves = near_threshold(measure, counts=False)
    errors = standard_errors(solve_many(plan, leaves), leaves, split=split)
    assert errors.size > RELEASES / 5
    assert is_centered(errors) and has_unit_variance(errors)


@pytest.mark.parametrize("split", [True, False])
def test_where_measurements_decide_they_are_not(split: bool) -> None:
    plan, leaves = near_threshold(Measure.EPSILON, counts=True)
    assert not is_centered(standard_errors(solve_many(plan, leaves), leaves, split=split))


class Quieter(AdaptivePlan):
    """Planted: noise 30 % smaller than stated."""

    def law(self, level: int, chain: int = 0) -> NoiseLaw | None:
        law = super().law(level, chain)
        return law and type(law)(scale=law.scale * Fraction(7, 10))  # type: ignore[attr-defined, call-arg]


def test_noise_30_percent_too_small_is_found() -> None:
    plan, leaves = near_threshold(Measure.EPSILON, counts=False)
    planted = Quieter(**plan.__getstate__())
    planted.__dict__["class_variances"] = plan.class_variances
    errors = standard_errors(solve_many(planted, leaves), leaves, split=True)
    assert not has_unit_variance(errors)


def covered(solved: Solved, leaves: Integers, widths: AdaptiveWidths) -> tuple[Any, Any]:
    """Whether intervals hold: of leaves, and of prefixes, (releases, 16)."""
    level, prefixes = solved.levels[-1], solved.prefixes
    assert prefixes is not None
    inside = level["ended"] == 1
    margin = widths.margin(level["holder_variance"])
    low = np.where(inside, 0.0, level["estimate"] - margin)
    nodes = (low <= leaves) & (leaves <= level["holder_estimate"] + margin)
    truth = np.cumsum(leaves)
    low = prefixes["low_estimate"] - widths.margin(prefixes["low_variance"])
    high = prefixes["high_estimate"] + widths.margin(prefixes["high_variance"])
    return nodes, (low <= truth) & (truth <= high)


@pytest.mark.parametrize("measure", Measure)
@pytest.mark.parametrize("counts", [True, False], ids=["counts", "estimates"])
def test_intervals_hold(measure: Measure, counts: bool) -> None:
    plan, leaves = near_threshold(measure, counts=counts)
    solved = solve_many(plan, leaves)
    for confidence in (0.8, 0.95, 0.99):
        widths = adaptive_widths(measure, confidence, counts=counts)
        least = stats.binom.ppf(ALARM, RELEASES, confidence)
        for holds in covered(solved, leaves, widths):
            assert holds.sum(axis=0).min() >= least, confidence


def test_intervals_of_half_the_width_do_not() -> None:
    plan, leaves = near_threshold(Measure.EPSILON, counts=False)
    widths = adaptive_widths(Measure.EPSILON, 0.95)
    narrow = replace(widths, slope=widths.slope * 0.7)
    least = stats.binom.ppf(ALARM, RELEASES, 0.95)
    nodes, prefixes = covered(solve_many(plan, leaves), leaves, narrow)
    assert nodes.sum(axis=0).min() < least and prefixes.sum(axis=0).min() < least


def test_widths_read_back_and_are_those_of_the_widest_law() -> None:
    widths = adaptive_widths(Measure.EPSILON, 0.95, counts=True)
    assert AdaptiveWidths.from_spec(widths.spec()) == widths
    assert adaptive_widths(Measure.EPSILON, 0.95).slope == pytest.approx(2.118, abs=0.01)
    assert adaptive_widths(Measure.RHO, 0.95).slope == pytest.approx(1.96, abs=0.01)
