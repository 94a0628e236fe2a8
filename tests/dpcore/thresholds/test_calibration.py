"""Calibration: plans spend what they may, undercut the paper's constants, and gain with budget."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.papers.ghazi import smallest_threshold
from dptrees.dpcore.privacy.unit import ROW_UNITS, SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.thresholds.plan import ThresholdErrors, ThresholdPlan
from tests.dpcore.cases import for_each
from tests.dpcore.threshold_questions import calibrated, worst_alpha_rmse

# Of the default arguments, which several tests compare with.
USUAL = cache(calibrated)


def worst(plan: ThresholdPlan, *, height: int = 6, root_bound: int = 5000) -> float:
    return worst_alpha_rmse(ThresholdErrors(plan, height=height, root_bound=root_bound), 0.5)


@settings(max_examples=4, deadline=None)
@given(
    height=st.integers(0, 40),
    epsilon=st.fractions(Fraction(1, 10), 8),
    delta_digits=st.integers(2, 12),
    alpha=st.floats(0.2, 0.95),
    unit=st.sampled_from(ROW_UNITS),
    rows=st.integers(1, 3),
)
def test_plans_spend_nearly_all_and_never_more(
    height: int,
    epsilon: Fraction,
    delta_digits: int,
    alpha: float,
    unit: PrivacyUnit,
    rows: int,
) -> None:
    plan = calibrated(
        height=height,
        epsilon=epsilon,
        delta=Fraction(1, 10**delta_digits),
        alpha=alpha,
        unit=unit,
        rows=rows,
        root_bound=2000,
    )
    spent = sum(each.epsilon for each in plan.rounds)
    assert spent <= plan.group.row_epsilon
    assert not plan.rounds or spent > plan.group.row_epsilon * Fraction(999, 1000)
    assert sum(each.delta for each in plan.rounds) <= plan.group.row_delta
    for each in plan.rounds:
        looks = each.noise.delta(each.node_epsilon / each.cutoff) * each.cutoff
        assert looks <= each.delta
        assert each.noise.scale == each.cutoff / each.node_epsilon
        assert each.sparse_vector.query_law.scale == 2 * each.cutoff / each.search_epsilon
    assert all(each.floor > 0 for each in plan.rounds)
    estimates = [plan.least, *(each.estimate for each in plan.rounds)]
    assert all(low <= high for low, high in pairwise(estimates))


def test_the_papers_constants_are_a_thousand_times_larger() -> None:
    plan = calibrated(height=19, root_bound=10**9)
    paper = 0.5 * smallest_threshold(
        depth=20,
        alpha=Fraction(1, 2),
        epsilon=Fraction(1),
        delta=Fraction(1, 10**6),
        eta=Fraction(1, 400),
    )
    assert 1000 * worst(plan, height=19, root_bound=10**9) < paper


def test_more_budget_and_lighter_trees_mean_less_error() -> None:
    base = worst(USUAL())
    assert worst(calibrated(epsilon=Fraction(2))) < 0.6 * base
    assert worst(calibrated(delta=Fraction(1, 10**3))) < 0.9 * base
    assert worst(calibrated(root_bound=600), root_bound=600) < 0.8 * base
    # Substitution pays twice, at about half of epsilon.
    assert worst(calibrated(unit=SUBSTITUTE_ROW)) > 1.8 * base


def test_the_error_hardly_grows_with_the_depth() -> None:
    errors = [worst(calibrated(height=height), height=height) for height in (8, 512)]
    # Laplace noise would grow 64 times, Gaussian noise 8 times.
    assert errors[0] < errors[1] < 1.7 * errors[0]


def test_the_score_decides() -> None:
    """For empty nodes alone, the estimate of what no round finds is 0."""
    plan = calibrated(score=lambda errors: float(errors.alpha_rmse(0.0, 0.5)))
    assert plan.least == 0
    assert USUAL().least > 0


def test_every_round_has_an_estimate_of_its_own() -> None:
    """Also if so large a budget sets rounds less than the step of estimates apart."""
    plan = calibrated(
        height=0, epsilon=Fraction(2000), delta=Fraction(1, 100), root_bound=50, score=lambda _: 0.0
    )
    estimates = [each.estimate for each in plan.rounds]
    assert len(estimates) > 9 and all(low < high for low, high in pairwise(estimates))


def test_calibration_is_a_function_of_its_arguments() -> None:
    assert calibrated() == USUAL()


def test_a_budget_too_small_for_any_round_leaves_one_estimate() -> None:
    plan = calibrated(epsilon=Fraction(1, 1000), alpha=0.001, root_bound=1000)
    assert plan.rounds == ()
    assert worst(plan, root_bound=1000) < 1000


@for_each(
    ("changes", "message"),
    [
        ({"alpha": 0.0}, "alpha is 0"),
        ({"alpha": 1.0}, "alpha is 1"),
        ({"epsilon": Fraction(0)}, "epsilon is 0"),
        ({"delta": Fraction(1)}, "delta is 1"),
        ({"rows": 0}, "rows: 0 is not from 1"),
        ({"root_bound": 0}, "root_bound is 0"),
        ({"height": -1}, "height is -1"),
    ],
)
def test_bad_arguments_are_named(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrated(**changes)
