"""Two cells under `substitute` and epsilon: one is measured, at half the variance of both.

The mean square of many releases' errors lies within 5.2 of its standard errors of the predicted
variance (false alarms: 2e-7), and not within them of the variance of two measured cells.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.levels.planner import (
    WholeLevels,
    plan_mechanism,
    plan_tree,
    predicted_cdf_rmse,
    predicted_error,
)
from dptrees.dpcore.levels.uniform import UniformAnswerErrors, UniformMechanism, range_error
from dptrees.dpcore.levels.workload import OrderedWorkload, ReadAs
from dptrees.dpcore.mechanisms import LEVELS
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.papers.forest import PapersForest
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.uniform.objectives import CDF, NodeObjective, RangeObjective
from dptrees.dpcore.uniform.plan import Consistency, Estimator, Measured, TreePlan, TreeSetting
from tests.dpcore.cases import for_each
from tests.dpcore.tree_runs import solve_runs

EPSILON = Budget(measure=Measure.EPSILON, amount=Fraction(1, 4))
PUBLIC = TreeSetting(leaves=2, unit=SUBSTITUTE_ROW, budget=EPSILON, public_total=True)
RUNS, SIGMAS = 20_000, 5.2


def two_cells() -> TreePlan:
    return plan_tree(PUBLIC)


def both_measured() -> TreePlan:
    return plan_tree(PUBLIC, fanouts=(2,))


def test_one_cell_is_measured_where_the_other_follows_from_it() -> None:
    plan = two_cells()
    assert plan.is_complement
    assert plan.measured is Measured.PREFIXES
    assert plan.laws[-1] is not None
    assert plan.laws[-1].scale == 4  # type: ignore[attr-defined]


OTHERS = {
    "rho": replace(PUBLIC, budget=Budget(measure=Measure.RHO, amount=Fraction(1, 4))),
    "rows added or removed": replace(PUBLIC, unit=ADD_REMOVE_ROW, public_total=False),
    "the number of rows is not public": replace(PUBLIC, public_total=False),
    "keys": replace(PUBLIC, public_total=False, keyed=True),
    "three cells": replace(PUBLIC, leaves=3),
}


@for_each("setting", OTHERS.values())
def test_everywhere_else_nodes_are_measured(setting: TreeSetting) -> None:
    plan = plan_tree(setting)
    assert plan.measured is Measured.NODES
    assert plan.is_efficient


def test_a_given_shape_or_estimator_is_kept() -> None:
    assert both_measured().measured is Measured.NODES
    for estimator in (Estimator.NONE, Estimator.BELOW, Estimator.REFINED):
        plan = plan_mechanism("planned", PUBLIC, estimator=estimator)
        assert (plan.measured, plan.estimator) == (Measured.NODES, estimator)


@for_each("consistency", Consistency)
def test_every_way_to_make_counts_has_a_plan(consistency: Consistency) -> None:
    """Shrunk counts need two measured nodes."""
    cells = {"lower": 0, "upper": 2, "cells": 2, "outside": "clamp", "missing": "first"}
    domain = make_domain({"column": "x", "type": "integer", **cells})
    workload = OrderedWorkload(name="x", domain=domain, mechanism=LEVELS, consistency=consistency)
    for reads in (None, ReadAs.COUNTS):
        given = replace(workload, read_as=reads)
        mechanism = WholeLevels().mechanism(given, Setting(unit=SUBSTITUTE_ROW, budget=EPSILON))
        assert mechanism.consistency is consistency
        assert mechanism.plan.is_complement == (consistency is not Consistency.SHRUNK)
        assert WholeLevels().predicted(given, mechanism) > 0


def test_outputs_of_neighbors_differ_by_at_most_e_to_the_epsilon() -> None:
    """All that is drawn is one number: the other cell follows from it and the public total."""
    law = two_cells().laws[-1]
    assert law is not None
    outputs = np.arange(-200, 200)
    moved = law.pmf(outputs) / law.pmf(outputs - 1)  # the first cell holds one row more
    bound = math.exp(0.25) * (1 + 1e-12)
    assert (np.maximum(moved, 1 / moved) <= bound).all()
    # Both cells measured by this law would lose twice that.
    both = (law.pmf(outputs)[:, None] * law.pmf(outputs)) / (
        law.pmf(outputs - 1)[:, None] * law.pmf(outputs + 1)
    )
    assert both.max() > math.exp(0.49)


@pytest.mark.parametrize("objective", [CDF, RangeObjective(), NodeObjective(weights=(0.0, 1.0))])
def test_the_variance_is_half_that_of_two_measured_cells(objective: Any) -> None:
    """For every objective; the discrete law of half the scale has a little less than a quarter of
    the other's variance."""
    one, both = (predicted_error(plan, objective) ** 2 for plan in (two_cells(), both_measured()))
    laws = [plan.laws[-1] for plan in (two_cells(), both_measured())]
    own, other = (law.variance for law in laws if law is not None)
    assert one / both == pytest.approx(2 * own / other)
    assert 0.49 < one / both < 0.5


def test_the_predicted_error_is_the_measured_one() -> None:
    plan = two_cells()
    counts = np.random.default_rng(8).poisson(9, (RUNS, 2))
    levels, prefixes, _ = solve_runs(PapersForest, plan, counts)
    squares = (levels[1].estimate - counts) ** 2
    assert (squares[:, 0] == squares[:, 1]).all()
    deviation = squares[:, 0].std() / math.sqrt(RUNS)
    predicted = predicted_error(plan, NodeObjective(weights=(0.0, 1.0))) ** 2
    both = predicted_error(both_measured(), NodeObjective(weights=(0.0, 1.0))) ** 2
    assert abs(squares[:, 0].mean() - predicted) < SIGMAS * deviation
    assert abs(squares[:, 0].mean() - both) > SIGMAS * deviation
    mean = ((prefixes.estimate - np.cumsum(counts, axis=1)) ** 2).mean()
    assert abs(mean - predicted_cdf_rmse(plan) ** 2) < SIGMAS * deviation
    assert (levels[1].count.sum(axis=1) == counts.sum(axis=1)).all()
    assert levels[1].count.min() >= 0


def answer_errors() -> UniformAnswerErrors:
    plan = two_cells()
    mechanism = UniformMechanism(plan=plan)
    return UniformAnswerErrors(plan, PapersForest(plan), mechanism.widths(0.95))


def test_answers_have_the_exact_law_of_the_one_measurement() -> None:
    errors, law = answer_errors(), two_cells().laws[-1]
    assert law is not None
    assert range_error(two_cells(), 1, 2).terms == ((law, 1.0, 1),)
    for start in (0, 1):
        answer = errors.sum([(start, start + 1)], 0)
        assert answer.variance == pytest.approx(law.variance)
        assert answer.margin == pytest.approx(law.bound(0.05), rel=1e-6)
    whole = errors.sum([(0, 2)], 0)
    assert (whole.variance, whole.margin) == (0.0, 0.0)


@for_each("weights", [(0.0, 10.0), (3.0, 3.0), (-1.0, 2.5)])
def test_weighted_sums_have_the_variance_of_their_difference(weights: tuple[float, ...]) -> None:
    law = two_cells().laws[-1]
    assert law is not None
    expected = (weights[0] - weights[1]) ** 2 * law.variance
    found = answer_errors().weighted(np.array(weights), 0)
    assert found == pytest.approx(expected, abs=1e-9)


def test_a_band_is_the_interval_of_the_only_uncertain_prefix() -> None:
    errors, law = answer_errors(), two_cells().laws[-1]
    assert law is not None
    band = errors.band(np.array([law.variance, 0.0]))
    assert band.tolist() == pytest.approx([law.bound(0.05), 0.0], rel=1e-6)
    assert float(2 * law.survival(math.floor(band[0]))) <= 0.05
