"""Sensitivities against all neighboring data sets of a tiny domain; budgets add up exactly."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.privacy.sensitivity import level_law, level_sensitivity
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Budget,
    Measure,
)
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import TreePlan
from tests.dpcore.neighboring import DROPPED, Row, neighbors, possible_rows

TREE = UniformTree(leaves=3, fanouts=(2, 2))


def level_counts(rows: tuple[Row, ...], keys: int) -> list[np.ndarray]:
    """(keys * n_l,) of every level; a dropped row counts nowhere."""
    counts = np.zeros((keys, TREE.leaves), np.int64)
    for key, cell in rows:
        if (key, cell) != DROPPED:
            counts[key, cell] += 1
    return [level.reshape(-1) for level in TREE.level_counts(counts)]


def test_level_sensitivity_is_the_largest_change() -> None:
    for relation, keys, drops in itertools.product(ROW_UNITS, (1, 2), (False, True)):
        largest = np.zeros((TREE.height + 1, 2), np.int64)
        for one, other in neighbors(possible_rows(keys, TREE.leaves, drops=drops), relation):
            for level, (a, b) in enumerate(
                zip(level_counts(one, keys), level_counts(other, keys), strict=True)
            ):
                change = np.abs(a - b)
                largest[level] = np.maximum(largest[level], [change.sum(), (change**2).sum()])
        for level in range(TREE.height + 1):
            stated = level_sensitivity(relation, single_node=level == 0 and keys == 1)
            if relation == SUBSTITUTE_ROW and keys == 1 and level == 0 and not drops:
                # The total is public; stated for any policy.
                assert largest[level].tolist() == [0, 0]
            else:
                assert stated == tuple(largest[level]), (relation, keys, drops)


def test_a_plan_s_levels_together_spend_at_most_its_budget_on_any_neighbours() -> None:
    """Laplace: sum of |change| / scale; Gaussian: sum of change^2 / (2 sigma^2). Attained."""
    for relation, keyed, measure in itertools.product(ROW_UNITS, (False, True), Measure):
        plan = TreePlan(
            tree=TREE,
            unit=relation,
            budget=Budget(measure=measure, amount=Fraction(7, 5)),
            level_amounts=(Fraction(1, 5), Fraction(1, 2), Fraction(7, 10)),
            keyed=keyed,
        )
        keys, largest = 2 if keyed else 1, Fraction(0)
        for one, other in neighbors(possible_rows(keys, TREE.leaves, drops=True), relation):
            loss = Fraction(0)
            pairs = zip(level_counts(one, keys), level_counts(other, keys), strict=True)
            for law, (a, b) in zip(plan.laws, pairs, strict=True):
                change = np.abs(a - b)
                if isinstance(law, DiscreteLaplace):
                    loss += int(change.sum()) / law.scale
                elif isinstance(law, DiscreteGaussian):
                    loss += int((change**2).sum()) / (2 * law.sigma_squared)
            largest = max(largest, loss)
        assert largest <= plan.budget.amount, (relation, keyed, measure)
        if relation == ADD_REMOVE_ROW or keyed:
            assert largest == plan.budget.amount, (relation, keyed, measure)


def test_shares_add_up_exactly() -> None:
    for measure in Measure:
        whole = Budget(measure=measure, amount=Fraction(1, 3))
        parts = [whole.share(Fraction(n, 10)) for n in (1, 2, 3, 4)]
        assert sum(part.amount for part in parts) == whole.amount, measure
        assert {part.measure for part in parts} == {measure}
        assert whole.share(Fraction(1)) == whole, measure


def test_splits_add_up_exactly_and_forget_the_last_bits() -> None:
    whole, rng = Budget(measure=Measure.RHO, amount=Fraction(2, 7)), np.random.default_rng(2)
    for shares in rng.dirichlet(np.ones(5), 50):
        amounts = whole.split(shares)
        assert sum(amounts) == whole.amount
        parts = [float(each / whole.amount) for each in amounts]
        np.testing.assert_allclose(parts, shares, atol=5 / 2**20)
    assert whole.split([0.25 - 1e-12, 0.25 + 1e-12, 0.5]) == whole.split([0.25, 0.25, 0.5])


def test_refuses_a_budget_of_nothing() -> None:
    for amount in (Fraction(0), Fraction(-1, 2)):
        with pytest.raises(ValueError, match=r"epsilon: .* is not above 0"):
            Budget(measure=Measure.EPSILON, amount=amount)
        with pytest.raises(ValueError, match=r"rho: .* is not above 0"):
            Budget(measure=Measure.RHO, amount=amount)


def test_refuses_a_share_outside_the_whole() -> None:
    for fraction in (Fraction(0), Fraction(-1), Fraction(11, 10)):
        with pytest.raises(ValueError, match="fraction: "):
            Budget(measure=Measure.RHO, amount=Fraction(1)).share(fraction)


def test_refuses_noise_too_large_for_counts() -> None:
    tiny = Budget(measure=Measure.EPSILON, amount=Fraction(1, 2**41))
    with pytest.raises(ValueError, match="scale"):
        level_law(ADD_REMOVE_ROW, tiny, single_node=False)


def test_equal_budgets_have_the_same_amount() -> None:
    """What is planned for one may be used for the other."""
    for amount in (2, 2.0, Fraction(2)):
        made = Budget(measure=Measure.RHO, amount=amount)  # type: ignore[arg-type]
        assert made == Budget(measure=Measure.RHO, amount=Fraction(2))
        assert type(made.amount) is Fraction
