"""The choice among mechanisms: what is compared, what each spends, and who wins where."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import with_shares
from dptrees.dpcore.levels.relative_errors import (
    RelativeCandidate,
    RelativeObjective,
    noise_candidates,
    threshold_candidate,
)
from dptrees.dpcore.privacy.conversion import zcdp_delta, zcdp_rho
from dptrees.dpcore.privacy.sensitivity import GroupPrivacy
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Budget,
    Measure,
    PrivacyUnit,
)
from dptrees.dpcore.thresholds.plan import ThresholdPlan
from dptrees.dpcore.trees.shapes import IrregularTree
from tests.dpcore.units import bounded_unit

TREE = IrregularTree.from_fanouts([[2], [2, 2], [2, 3, 2, 1]])
DELTA = Fraction(1, 10**6)
WORST = RelativeObjective(metric="alpha_mrmse", alpha=0.5)


def candidates(
    *,
    tree: IrregularTree = TREE,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    objective: RelativeObjective = WORST,
    delta: Fraction | None = None,
    rows: int = 1,
    root_bound: int = 1000,
    **fields: Any,
) -> list[RelativeCandidate]:
    """All ways to spend an epsilon of 1, with or without a delta, by rising predicted error."""
    objective.check_height(tree.height)
    budgets = [Budget(measure=Measure.EPSILON, amount=Fraction(1))]
    if delta is not None:
        budgets.append(Budget(measure=Measure.RHO, amount=zcdp_rho(Fraction(1), delta)))
    found: list[RelativeCandidate | None] = []
    for budget in budgets:
        plan = IrregularPlan(tree=tree, unit=unit, budget=budget, **fields)
        found += noise_candidates(plan, objective)
    if delta is not None:
        group = GroupPrivacy(epsilon=Fraction(1), delta=delta, unit=bounded_unit(unit, rows))
        found.append(threshold_candidate(tree, group, objective, root_bound=root_bound))
    return sorted((each for each in found if each is not None), key=lambda each: each.predicted)


def noise_alone(
    objective: RelativeObjective, measure: Measure = Measure.RHO, amount: Fraction = Fraction(1, 50)
) -> list[RelativeCandidate]:
    """The candidates of one law of noise, the best split last."""
    budget = Budget(measure=measure, amount=amount)
    return noise_candidates(IrregularPlan(tree=TREE, unit=ADD_REMOVE_ROW, budget=budget), objective)


@cache
def usual(unit: PrivacyUnit) -> tuple[RelativeCandidate, ...]:
    """The candidates with a delta, which several tests look at."""
    return tuple(candidates(delta=DELTA, unit=unit))


def labels(found: list[RelativeCandidate]) -> set[str]:
    return {each.label for each in found}


def test_pure_epsilon_has_laplace_candidates_only() -> None:
    found = candidates()
    assert labels(found) == {
        "Laplace tree",
        "least squares, Laplace, equal split",
        "least squares, Laplace, best split",
    }
    for each in found:
        assert isinstance(each.plan, IrregularPlan)
        assert each.plan.budget == Budget(measure=Measure.EPSILON, amount=Fraction(1))


@pytest.mark.parametrize("unit", ROW_UNITS)
def test_every_candidate_keeps_epsilon_and_delta(unit: PrivacyUnit) -> None:
    found = usual(unit)
    assert len(found) == 7
    for each in found:
        if isinstance(each.plan, ThresholdPlan):
            assert (each.estimation, each.label) == ("thresholds", "thresholds")
            assert (each.plan.epsilon, each.plan.delta) == (1, DELTA)
            assert each.plan.unit is unit
            continue
        budget = each.plan.budget
        assert sum(each.plan.level_amounts) <= budget.amount
        assert each.plan.unit is unit
        assert ("Gaussian" in each.label) == (budget.measure is Measure.RHO)
        if budget.measure is Measure.RHO:
            assert zcdp_delta(budget.amount, 1.0) <= DELTA
        else:
            assert budget.amount == 1
        assert (each.estimation == "none") == each.label.endswith(" tree")


def test_the_baselines_are_those_of_the_paper() -> None:
    """Corollary 2.7: Laplace noise of scale d / epsilon, Gaussian noise of variance d / (2 rho)."""
    even = IrregularTree.from_fanouts([[2], [2, 2], [2] * 4])
    found = {each.label: each for each in candidates(tree=even, delta=DELTA)}
    q = math.exp(-1 / 4)
    assert found["Laplace tree"].predicted == pytest.approx(math.sqrt(2 * q) / (1 - q))
    gaussian = found["Gaussian tree"]
    assert isinstance(gaussian.plan, IrregularPlan)
    rho = float(gaussian.plan.budget.amount)
    assert gaussian.predicted == pytest.approx(math.sqrt(4 / (2 * rho)), rel=1e-9)


def test_the_best_split_is_better_than_an_equal_one_and_that_than_none() -> None:
    found = usual(ADD_REMOVE_ROW)
    for noise in ("Laplace", "Gaussian"):
        by = {each.label: each.predicted for each in found if noise in each.label}
        best, equal = (by[f"least squares, {noise}, {split} split"] for split in ("best", "equal"))
        assert best <= equal < by[f"{noise} tree"]


def test_thresholds_win_where_nearly_all_of_a_count_is_forgiven_and_else_do_not() -> None:
    forgiven = RelativeObjective(metric="alpha_mrmse", alpha=0.995)
    assert usual(ADD_REMOVE_ROW)[0].label != "thresholds"
    assert candidates(delta=DELTA, objective=forgiven)[0].label == "thresholds"


GUESS, RHO = (80, 40, 20, 9), (Measure.RHO, Fraction(1, 50))


@pytest.mark.parametrize(
    ("objective", "measure", "amount"),
    [
        (WORST, *RHO),
        (RelativeObjective(metric="alpha_rmse", alpha=0.1, guess=GUESS), Measure.EPSILON, 1),
        (
            RelativeObjective(metric="rel_kappa", kappa=8.0, guess=GUESS),
            Measure.RHO,
            Fraction(1, 50),
        ),
        (
            RelativeObjective(metric="rel_kappa", kappa=8.0, level_weights=(0, 0, 1, 1)),
            Measure.EPSILON,
            1,
        ),
    ],
)
def test_the_best_split_is_not_far_behind_random_ones(
    objective: RelativeObjective, measure: Measure, amount: Fraction
) -> None:
    best = noise_alone(objective, measure, Fraction(amount))[-1]
    assert isinstance(best.plan, IrregularPlan) and "best split" in best.label
    rng = np.random.default_rng(8)
    shares = rng.dirichlet([1, 1, 1, 1], 150)
    random = min(objective.predict_estimates(with_shares(best.plan, each)) for each in shares)
    assert best.predicted < 1.08 * random


def test_guesses_change_the_plan() -> None:
    """Levels with heavy nodes need less of the budget."""
    amounts = []
    for guess in ((10**6, 10**6, 5.0, 5.0), None):
        fields: dict[str, Any] = {} if guess is None else {"guess": guess}
        plan = noise_alone(RelativeObjective(metric="alpha_rmse", alpha=0.5, **fields))[-1].plan
        assert isinstance(plan, IrregularPlan)
        amounts.append(sum(plan.level_amounts[:2]))
    assert amounts[0] < amounts[1] / 4


def test_units_of_several_rows_cost_thresholds_more() -> None:
    groups = (
        GroupPrivacy(epsilon=Fraction(1), delta=DELTA, unit=bounded_unit(ADD_REMOVE_ROW, rows))
        for rows in (1, 4)
    )
    one, many = (threshold_candidate(TREE, each, WORST, root_bound=10**4) for each in groups)
    assert one is not None and many is not None
    assert isinstance(many.plan, ThresholdPlan) and many.plan.unit.rows == 4
    assert many.predicted > 2 * one.predicted


def test_public_levels_are_not_measured() -> None:
    found = candidates(unit=SUBSTITUTE_ROW, public_level=1)
    for each in found:
        assert isinstance(each.plan, IrregularPlan)
        assert each.plan.level_amounts[:2] == (0, 0) and each.predicted < math.inf


def test_a_tree_of_one_node_has_candidates() -> None:
    one = IrregularTree.from_fanouts([])
    assert candidates(tree=one, delta=DELTA)[0].predicted == pytest.approx(1.357, abs=1e-3)


def test_large_trees_and_exact_errors_have_no_thresholds() -> None:
    plain = RelativeObjective(metric="alpha_mrmse", alpha=0.0)
    assert "thresholds" not in labels(candidates(delta=DELTA, objective=plain))
    large = IrregularTree.from_fanouts([[2**17 + 1]])
    assert "thresholds" not in labels(candidates(tree=large, delta=DELTA))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: candidates(
                objective=RelativeObjective(metric="alpha_rmse", alpha=1, guess=(1,))
            ),
            "guess: 1 of them for 4 levels",
        ),
        (
            lambda: candidates(
                delta=DELTA,
                objective=RelativeObjective(metric="alpha_rmse", alpha=0.5, guess=(2000, 1, 1, 1)),
            ),
            "guess: 2000 rows are above root_bound",
        ),
    ],
)
def test_bad_arguments_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
