"""Plans keep to their budget, state their error exactly, and are the best that can be found."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.levels.planner import (
    budget_for_target,
    candidates,
    plan_strategy,
    plan_tree,
    predicted_cdf_rmse,
    predicted_error,
)
from dptrees.dpcore.privacy.conversion import decimal_rank, four_digits
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Measure
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.objectives import (
    CdfObjective,
    Guess,
    NodeObjective,
    Objective,
    QuantileObjective,
    RangeObjective,
)
from dptrees.dpcore.uniform.plan import TreePlan
from dptrees.dpcore.uniform.prefix_errors import mean_prefix_variance
from dptrees.dpcore.uniform.strategies import one_level, search_strategies
from tests.dpcore.cases import for_each
from tests.dpcore.tree_settings import (
    KEYED,
    PRIVATE,
    PUBLIC,
    ROWS,
    ROWS_KEYED,
    Case,
    planned_tree,
    tree_setting,
)

SETTINGS = [PUBLIC, PRIVATE, KEYED, ROWS, ROWS_KEYED]
AMOUNTS = st.fractions(min_value=Fraction(1, 1000), max_value=40, max_denominator=10**6)


@pytest.mark.parametrize("leaves", [1, 2, 3, 7, 997])
@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("case", SETTINGS)
def test_any_number_of_leaves(leaves: int, measure: Measure, case: Case) -> None:
    plan = planned_tree(leaves, case, measure)
    assert plan.tree.leaves == leaves
    assert (plan.unit, plan.public_total, plan.keyed) == case
    if leaves == 1 and case is PUBLIC:
        assert plan.level_amounts == (0,)
        assert predicted_cdf_rmse(plan) == 0
        return
    assert sum(plan.level_amounts) == 1
    assert all(amount > 0 for amount in plan.level_amounts[1:])
    expected = mean_prefix_variance(plan.tree, plan.node_variances)
    assert predicted_cdf_rmse(plan) ** 2 == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("leaves", [10**6, 2**40])
def test_large_domains(leaves: int, measure: Measure) -> None:
    plan = planned_tree(leaves, PUBLIC, measure)
    assert sum(plan.level_amounts) == 1
    # The error grows as the cube of log K for epsilon, as its square for rho, from K = 1024 on.
    power, at_1024 = (3, 315.4) if measure is Measure.EPSILON else (2, 9.58)
    growth = (math.log2(leaves) / 10) ** power
    assert 0.85 * at_1024 * growth < predicted_cdf_rmse(plan) ** 2 < at_1024 * growth


@settings(max_examples=40, deadline=None)
@given(amount=AMOUNTS, leaves=st.sampled_from([1, 2, 60, 997]), case=st.sampled_from(SETTINGS))
@pytest.mark.parametrize("measure", list(Measure))
def test_levels_never_exceed_the_budget(
    measure: Measure, amount: Fraction, leaves: int, case: Case
) -> None:
    planned = planned_tree(leaves, case, measure, amount)
    for plan in (each.plan for each in candidates(planned)):
        assert all(isinstance(each, Fraction) and each >= 0 for each in plan.level_amounts)
        assert sum(plan.level_amounts) == (0 if leaves == 1 and case is PUBLIC else amount)


def random_plan(rng: np.random.Generator, like: TreePlan) -> TreePlan:
    """A random shape for the same leaves, with random parts of the same budget."""
    leaves, below = like.tree.leaves, 1
    fanouts: list[int] = []
    while below < leaves and (not fanouts or rng.random() < 0.7):
        fanouts.insert(0, int(2 ** rng.uniform(1, 5)))
        below *= fanouts[0]
    if below >= leaves:
        below //= fanouts.pop(0)
    fanouts.insert(0, -(-leaves // below))
    weights = rng.dirichlet(np.full(len(fanouts) + 1, rng.choice([1, 5, 50])))
    weights[0] = 0 if like.public_total or rng.random() < 0.3 else weights[0]
    units = [int(weight * 1000) for weight in weights[:-1]]
    units.append(1000 - sum(units))
    return TreePlan(
        tree=UniformTree(leaves=leaves, fanouts=tuple(fanouts)),
        unit=like.unit,
        budget=like.budget,
        level_amounts=tuple(like.budget.amount * Fraction(each, 1000) for each in units),
        public_total=like.public_total,
        keyed=like.keyed,
    )


@pytest.mark.parametrize(
    ("leaves", "case"),
    [(60, PUBLIC), (997, PUBLIC), (60, PRIVATE), (60, ROWS_KEYED)],
)
@pytest.mark.parametrize("measure", list(Measure))
def test_never_worse_than_random_plans(leaves: int, measure: Measure, case: Case) -> None:
    planned = planned_tree(leaves, case, measure)
    rng = np.random.default_rng(leaves)
    errors = [predicted_cdf_rmse(random_plan(rng, planned)) for _ in range(500)]
    assert predicted_cdf_rmse(planned) <= min(errors)
    # The random plans come close enough for the comparison to mean something.
    assert min(errors) < 1.35 * predicted_cdf_rmse(planned)


@pytest.mark.parametrize(
    ("measure", "figures"),
    [
        (Measure.EPSILON, {256: 159.5, 1024: 315.4, 4096: 527.5, 65536: 1237.6, 2**20: 2402.3}),
        (Measure.RHO, {1024: 9.58, 65536: 23.3}),
    ],
)
def test_figures_with_discrete_noise(measure: Measure, figures: dict[int, float]) -> None:
    for leaves, figure in figures.items():
        plan = planned_tree(leaves, PUBLIC, measure)
        assert 0.99 * figure <= predicted_cdf_rmse(plan) ** 2 <= figure


@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("case", SETTINGS)
def test_a_larger_budget_is_never_worse(measure: Measure, case: Case) -> None:
    errors = [
        predicted_cdf_rmse(planned_tree(100, case, measure, Fraction(5, 4) ** power))
        for power in range(-6, 12)
    ]
    assert all(later < earlier for earlier, later in itertools.pairwise(errors))


def test_large_budgets_favour_low_trees() -> None:
    heights = [
        planned_tree(1000, PUBLIC, Measure.EPSILON, amount).tree.height for amount in (1, 10, 40)
    ]
    assert heights == [3, 2, 1]


def test_the_root_is_measured_only_where_it_is_private() -> None:
    def root(case: Case) -> tuple[Fraction, float]:
        plan = planned_tree(60, case, Measure.RHO)
        return plan.level_amounts[0], plan.variances[0]

    assert root(PUBLIC) == (0, 0.0)
    alone, per_key = root(PRIVATE), root(KEYED)
    # sigma^2 = L2^2 / (2 rho), L2^2 = 1 for a single node and 2 for the roots of many keys.
    assert alone[1] == pytest.approx(1 / (2 * float(alone[0])), rel=1e-6)
    assert per_key[1] == pytest.approx(1 / float(per_key[0]), rel=1e-6)


def test_keys_change_nothing_under_add_remove() -> None:
    one, many = (planned_tree(60, case) for case in (ROWS, ROWS_KEYED))
    assert one.level_amounts == many.level_amounts


@pytest.mark.parametrize("leaves", [1, 2, 3, 60, 997])
@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("case", SETTINGS)
def test_candidates(leaves: int, measure: Measure, case: Case) -> None:
    planned = planned_tree(leaves, case, measure)
    shown = candidates(planned)
    labels = [each.label for each in shown]
    assert list(dict.fromkeys(labels)) == ["independent", "histogram", "binary", "tree", "planned"]
    assert all(each.plan.budget == planned.budget for each in shown)
    # Of two leaves whose sum is public one prefix says all, with half the sensitivity.
    compared = [each for each in shown if leaves > 2 or each.label != "independent"]
    errors = [predicted_cdf_rmse(each.plan) for each in compared]
    assert errors[-1] <= min(errors) * (1 + 1e-9)


def test_published_tree_before_and_after_estimation() -> None:
    planned = planned_tree(65536, PUBLIC)
    errors = {
        each.plan.estimator.value: predicted_cdf_rmse(each.plan) ** 2
        for each in candidates(planned)
        if each.label == "tree"
    }
    # The 3840 of the paper, with discrete noise.
    assert errors["none"] == pytest.approx(3840, rel=0.003)
    assert errors["refined"] == pytest.approx(3840 / 2, rel=0.07)
    assert errors["full"] == pytest.approx(1241.3, rel=0.003)


QUARTILES = QuantileObjective(quantiles=(0.25, 0.5, 0.75))
GUESSED = QuantileObjective(
    quantiles=(0.25, 0.5), guesses=(Guess(stop=100, density=9.0), Guess(stop=300, density=2.0))
)
OBJECTIVES: list[Objective] = [
    QUARTILES,
    GUESSED,
    RangeObjective(),
    RangeObjective(widths=(7, 100)),
]


# Two settings each, one of each measure, and each setting somewhere: what the root costs and what
# an objective weighs enter the search apart.
SERVED = [
    (objective, SETTINGS[place], measure)
    for objective, places in zip(OBJECTIVES, ((0, 4), (1, 3), (0, 2), (3, 1)), strict=True)
    for place, measure in zip(places, Measure, strict=True)
]


@pytest.mark.parametrize(("objective", "case", "measure"), SERVED)
def test_each_objective_is_served_best_by_its_own_plan(
    objective: Objective, case: Case, measure: Measure
) -> None:
    own, other = (
        planned_tree(499, case, measure, objective=each) for each in (objective, CdfObjective())
    )
    assert sum(own.level_amounts) == 1
    least = predicted_error(own, objective)
    assert least <= predicted_error(other, objective) * (1 + 1e-6)
    if objective is GUESSED:  # what a guess is for
        assert least < 0.9 * predicted_error(other, objective)
    rng = np.random.default_rng(5)
    others = [predicted_error(random_plan(rng, own), objective) for _ in range(100)]
    # Ranges of given widths are searched by a few of their places.
    assert least <= min(others) * (1.01 if objective.is_costly else 1)


def test_with_a_public_total_the_rank_error_is_that_of_the_cdf() -> None:
    plans = [planned_tree(60, PUBLIC, objective=each) for each in (CdfObjective(), QUARTILES)]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("weights", [(1, 1, 1, 1), (0, 0, 0, 1), (5, 0, 1, 0)])
def test_levels_of_a_given_tree(measure: Measure, weights: tuple[float, ...]) -> None:
    fanouts, objective = (5, 4, 3), NodeObjective(weights=weights)
    plan = planned_tree(59, ROWS, measure, fanouts=fanouts, objective=objective)
    assert plan.tree.fanouts == fanouts and sum(plan.level_amounts) == 1
    rng = np.random.default_rng(1)
    for _ in range(200):
        units = rng.multinomial(997, rng.dirichlet(np.ones(4)))
        units[-1] = max(1, units[-1] + 3)
        amounts = tuple(Fraction(int(each), 1000 + 3) for each in units)
        random = TreePlan(tree=plan.tree, unit=plan.unit, budget=plan.budget, level_amounts=amounts)
        # Both are judged with discrete noise, shares are best for continuous noise.
        assert predicted_error(plan, objective) <= predicted_error(random, objective) * 1.01


def test_a_given_tree_for_the_cdf() -> None:
    plan = planned_tree(1024, PUBLIC, fanouts=(8, 8, 16))
    assert predicted_cdf_rmse(plan) ** 2 == pytest.approx(315.4, rel=5e-3)


def test_unknown_shapes_and_objectives_that_do_not_fit() -> None:
    valid = tree_setting(9)
    for arguments, rule in (
        ({"fanouts": (2, 2)}, "fanouts"),
        ({"fanouts": (1, 9)}, "fanouts"),
        ({"fanouts": (3, 3), "objective": NodeObjective(weights=(1.0, 1.0))}, "level_weights"),
        ({"objective": RangeObjective(widths=(10,))}, "widths: 10 is more"),
    ):
        with pytest.raises(ValueError, match=rule):
            plan_tree(valid, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("leaves", "case", "rule"),
    [
        (0, ROWS, "leaves: 0"),
        (2**40 + 1, ROWS, "leaves"),
        (5, (ADD_REMOVE_ROW, True, False), "public_total"),
        (5, (SUBSTITUTE_ROW, True, True), "public_total"),
    ],
)
def test_bad_arguments(leaves: int, case: Case, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        planned_tree(leaves, case)


@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("rmse", [0.37, 1234.5])
@pytest.mark.parametrize("case", SETTINGS[:3])
def test_budget_for_target(rmse: float, measure: Measure, case: Case) -> None:
    def error(amount: Fraction) -> float:
        return predicted_cdf_rmse(planned_tree(60, case, measure, amount))

    amount = budget_for_target(rmse, error, measure)
    step = Fraction(10) ** (math.floor(math.log10(amount)) - 3)
    assert (amount / step).denominator == 1
    assert error(amount) <= rmse < error(amount - step)


@for_each("rmse", [0.0, -1.0, math.inf, math.nan])
def test_bad_targets(rmse: float) -> None:
    with pytest.raises(ValueError, match="rmse"):
        budget_for_target(rmse, lambda amount: 1 / float(amount), Measure.RHO)


def test_no_target_for_a_count_that_is_public() -> None:
    with pytest.raises(ValueError, match="rmse"):
        budget_for_target(1.0, lambda amount: 0.0, Measure.RHO)


@pytest.mark.parametrize("measure", list(Measure))
def test_targets_that_large_budgets_reach(measure: Measure) -> None:
    """Discrete noise vanishes as exp(-epsilon): the first guess may not be that of continuous."""
    calls = []

    def error(amount: Fraction) -> float:
        calls.append(amount)
        return predicted_cdf_rmse(planned_tree(1024, ROWS, measure, amount))

    amount = budget_for_target(1e-3, error, measure)
    assert max(calls) < 2.1 * amount and len(calls) < 20
    assert error(amount) <= 1e-3 < error(four_digits(decimal_rank(amount) - 1))


def test_targets_that_no_budget_reaches() -> None:
    def planned(amount: Fraction) -> float:
        plan = planned_tree(60, ROWS, Measure.RHO, amount)
        return predicted_cdf_rmse(plan)

    def refusing(amount: Fraction) -> float:
        if amount > 50:
            raise ValueError("scale: too small")
        return 1 / float(amount)

    for error, rmse in ((planned, 1e-300), (lambda amount: 5.0, 4.0), (refusing, 1e-3)):
        with pytest.raises(ValueError, match="rmse: no budget that 64-bit noise allows reaches"):
            budget_for_target(rmse, error, Measure.RHO)
    for error, rmse in ((lambda amount: 5.0, 5.0), (lambda amount: 5.0, 1e300)):
        with pytest.raises(ValueError, match="rmse: any budget that 64-bit noise allows reaches"):
            budget_for_target(rmse, error, Measure.EPSILON)


@for_each("power", [0.3, 1, 4])
@for_each("rmse", [1e-6, 0.9, 1.0, 7e5])
def test_the_target_s_budget_is_the_smallest(power: float, rmse: float) -> None:
    calls = []

    def error(amount: Fraction) -> float:
        calls.append(amount)
        if amount < Fraction(1, 10**6):
            raise ValueError("scale: too large")
        return float(amount) ** -power

    amount = budget_for_target(rmse, error, Measure.RHO)
    assert error(amount) <= rmse and len(calls) < 120
    below = four_digits(decimal_rank(amount) - 1)
    assert below < Fraction(1, 10**6) or error(below) > rmse


def test_decimal_ranks() -> None:
    for rank in (*range(-20_000, 20_000, 997), -1, 0, 8999, 9000):
        assert decimal_rank(four_digits(rank)) == rank
        assert decimal_rank(four_digits(rank + 1) - Fraction(1, 10**9)) == rank
    assert four_digits(decimal_rank(0.001)) == Fraction(1, 1000)


def test_a_root_of_more_children_than_64_bits_count() -> None:
    for leaves in (13, 16):
        plans = [planned_tree(leaves, fanouts=(root, 4)) for root in (4, 10**20)]
        assert plans[1].tree.fanouts == (10**20, 4)
        assert plans[0].level_amounts == plans[1].level_amounts


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("measure", list(Measure))
def test_objectives_known_exactly_still_have_a_plan(measure: Measure) -> None:
    for leaves, fanouts, objective in (
        (97, None, RangeObjective(widths=(97,))),
        (97, (10, 10), NodeObjective(weights=(1, 0, 0))),
        (2, None, QuantileObjective(quantiles=(1.0,), guesses=(Guess(stop=2, density=3.0),))),
    ):
        plan = planned_tree(leaves, PUBLIC, measure, fanouts=fanouts, objective=objective)
        assert predicted_error(plan, objective) == 0 and sum(plan.level_amounts) == 1


@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("amount", ["1/1000", "1/4", "3", "40"])
@pytest.mark.parametrize("objective", [CdfObjective(), RangeObjective()])
def test_the_plan_is_the_best_of_all_that_were_found(
    objective: Objective, amount: str, measure: Measure
) -> None:
    """Each planned and predicted by itself, with the exact variances of its noise."""
    setting = tree_setting(200, ROWS, measure, amount)
    found = search_strategies(setting.at_unit_budget, objective=objective)
    plans = [plan_strategy(each, setting) for each in [*found, one_level(200)]]
    best = min(plans, key=lambda each: float(f"{predicted_error(each, objective):.9e}"))
    assert plan_tree(setting, objective=objective) == best
