"""The stated epsilon and delta against dp-accounting."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.noise.laws import DiscreteGaussian
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import Noise
from dptrees.dpcore.release.composition import Guarantee, plan_release
from dptrees.dpcore.release.plan import ReleasePlan, total_spending
from dptrees.dpcore.release.split import BudgetSplit

DELTA = Fraction(1, 10**6)
# On which the library puts losses.
INTERVAL = 1e-4
TREES = {
    "shared": [("a", 10, Noise.GAUSSIAN), ("b", 300, Noise.GAUSSIAN), ("c", 9, Noise.GAUSSIAN)],
    "both laws": [("a", 10, Noise.LAPLACE), ("b", 300, Noise.GAUSSIAN), ("c", 9, Noise.GAUSSIAN)],
}


def planned(
    trees: str,
    split: BudgetSplit,
) -> ReleasePlan:
    workloads = [
        OrderedWorkload(
            name=name,
            domain=make_domain({"column": name, "type": "integer", "lower": 0, "upper": cells}),
            noise=noise,
        )
        for name, cells, noise in TREES[trees]
    ]
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    guarantee = Guarantee(unit=ADD_REMOVE_ROW, budget=budget, delta=DELTA, split=split)
    return plan_release("r", guarantee, workloads)


@pytest.mark.parametrize("trees", TREES)
@pytest.mark.parametrize("split", list(BudgetSplit))
def test_the_library_of_the_field_says_no_more_than_is_stated(
    trees: str, split: BudgetSplit
) -> None:
    """All losses composed as they are, of trees with Laplace noise too.

    The library rounds each loss up by at most an interval, so at an epsilon that is larger by all
    of these its delta is no more than the exact one at the epsilon that is stated.
    """
    plan = planned(trees, split)
    losses = sum(n for _, n in total_spending(plan.questions).moved or ()) + 1
    delta = library_delta(plan, Fraction(1) + losses * Fraction(INTERVAL))
    assert delta <= DELTA
    if trees == "shared":
        # It is what is stated: at less epsilon, or with more noise taken for less, it is more.
        assert delta > 0.9 * DELTA
        assert library_delta(plan, Fraction(99, 100)) > DELTA
        assert library_delta(plan, Fraction(1), twice=True) > DELTA


def library_delta(plan: ReleasePlan, epsilon: Fraction, *, twice: bool = False) -> float:
    """The delta of all noise at an epsilon by dp-accounting; with one tree's counted twice."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    composed = pld.identity(value_discretization_interval=INTERVAL)
    spent = total_spending(plan.questions)
    gaussians = list(spent.moved or ())
    if twice:
        gaussians += plan.composed[0].spending.moved or ()
    for law, n in gaussians:
        assert isinstance(law, DiscreteGaussian)
        one = pld.from_discrete_gaussian_mechanism(
            math.sqrt(law.sigma_squared), value_discretization_interval=INTERVAL
        )
        composed = composed.compose(one.self_compose(n))
    if spent.epsilon:  # Laplace noise: its pure epsilon, as randomized response dominates it
        one = pld.from_randomized_response(
            2 / (1 + math.exp(spent.epsilon)), 2, value_discretization_interval=INTERVAL
        )
        composed = composed.compose(one)
    return float(composed.get_delta_for_epsilon(float(epsilon)))
