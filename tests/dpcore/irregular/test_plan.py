"""Pooled budgets never exceed the total between any two neighboring data sets."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.irregular.plan import IrregularPlan, level_sensitivities
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Budget,
    Measure,
    PrivacyUnit,
)
from dptrees.dpcore.trees.shapes import IrregularTree
from tests.dpcore.irregular_trees import (
    EPSILON,
    RHO,
    make_plan,
    node_chains,
    node_variances,
    random_irregular_plan,
)
from tests.dpcore.refusals import check_refusals


def law_rates(plan: IrregularPlan) -> list[list[Fraction]]:
    """What a change of one in each node's count costs, read off the laws of the noise; 0 where a
    node is not measured."""
    chains = node_chains(plan.tree)
    rates = []
    for level, size in enumerate(plan.tree.level_sizes):
        row = []
        for node in range(size):
            law: Any = plan.law(level, chains[level][node])
            repeated = level < plan.tree.height and len(plan.tree.children(level, node)) == 1
            if law is None or repeated:
                row.append(Fraction(0))
            elif isinstance(law, DiscreteLaplace):
                row.append(1 / law.scale)
            else:
                row.append(1 / (2 * law.sigma_squared))
        rates.append(row)
    return rates


def paths(tree: IrregularTree) -> list[list[int]]:
    """For each leaf, its ancestor at each level."""
    ancestors = [tree.to_leaves(level, np.arange(n)) for level, n in enumerate(tree.level_sizes)]
    return np.array(ancestors).T.tolist()


def largest_losses(plan: IrregularPlan) -> tuple[Fraction, Fraction]:
    """The largest loss when a row comes or goes, and when one moves between agreeing data sets."""
    rates, ways = law_rates(plan), paths(plan.tree)
    public = -1 if plan.public_level is None else plan.public_level

    def loss(levels: list[int], way: list[int]) -> Fraction:
        return sum((rates[level][way[level]] for level in levels), Fraction(0))

    everywhere = list(range(plan.tree.height + 1))
    one = max(loss(everywhere, way) for way in ways)
    moves = [Fraction(0)]
    for start, end in itertools.combinations(ways, 2):
        apart = [level for level in everywhere if start[level] != end[level]]
        if not apart or apart[0] > public:
            moves.append(loss(apart, start) + loss(apart, end))
    return one, max(moves)


@given(
    seed=st.integers(0, 10**6),
    budget=st.sampled_from([EPSILON, RHO]),
    unit=st.sampled_from(ROW_UNITS),
    public=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_no_pair_of_neighbours_loses_more_than_the_budget(
    seed: int, budget: Budget, unit: PrivacyUnit, public: bool
) -> None:
    rng = np.random.default_rng(seed)
    plan = random_irregular_plan(rng, budget=budget, unit=unit, public=public and unit is not _ADD)
    spent = sum(plan.level_amounts)
    one, moved = largest_losses(plan)
    if unit is _ADD:
        # Every path measures every level's amount once, alone or pooled.
        assert one == spent <= budget.amount
    else:
        assert moved <= spent <= budget.amount
        assert plan.public_level is not None or one <= spent  # a policy may drop the row
    without_chains = all(fanout.min() > 1 for fanout in plan.tree.fanouts)
    if plan.public_level is None and without_chains and unit is not _ADD:
        assert moved == spent - plan.level_amounts[0]


_ADD = ADD_REMOVE_ROW


def test_the_check_notices_a_chain_that_is_paid_for_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = make_plan([[2], [1, 2]], 0, Fraction(1, 3), Fraction(2, 3))
    assert largest_losses(plan)[0] == 1
    rate = IrregularPlan.rate
    monkeypatch.setattr(
        IrregularPlan,
        "rate",
        lambda self, level, chain: rate(self, level, chain) + (rate(self, 1, 0) if chain else 0),
    )
    assert largest_losses(replace(plan))[0] == Fraction(4, 3)


def test_variances_of_nodes_are_those_of_their_laws() -> None:
    rng = np.random.default_rng(1)
    for trial in range(40):
        plan = random_irregular_plan(
            rng, public=trial % 2 == 1, budget=(EPSILON, RHO)[trial % 3 > 0]
        )
        expected = node_variances(plan)
        for level, variances in enumerate(plan.variances_above_leaves):
            np.testing.assert_array_equal(variances, expected[level])
        leaves = np.repeat(plan.leaf_variances, plan.tree.fanouts[-1])
        np.testing.assert_array_equal(leaves, expected[-1])


def test_laws_of_chains() -> None:
    """nation - one state - two counties; the first county has one tract of one block."""
    amounts = [Fraction(n, 20) for n in (1, 2, 3, 4, 5)]
    plan = make_plan([[1], [2], [1, 2], [1, 3, 2]], *amounts, unit=SUBSTITUTE_ROW)
    assert plan.law(1, 1) == DiscreteLaplace(scale=Fraction(20, 3))  # one node: it moves by one
    assert plan.law(2, 0) == DiscreteLaplace(scale=2 * Fraction(20, 3))
    assert plan.law(4, 2) == DiscreteLaplace(scale=2 * Fraction(20, 12))
    assert plan.law(4, 0) == DiscreteLaplace(scale=2 * Fraction(20, 5))
    smooth = replace(plan, budget=Budget(measure=Measure.RHO, amount=Fraction(1)))
    assert smooth.law(4, 2) == DiscreteGaussian(sigma_squared=Fraction(20, 12))


def test_keys_and_larger_sensitivities_enlarge_the_noise() -> None:
    tree = IrregularTree.from_fanouts([[2], [3, 1]])
    quarter = Fraction(1, 4)
    plan = make_plan(tree, quarter, quarter, Fraction(1, 2), unit=SUBSTITUTE_ROW)
    assert level_sensitivities(tree, SUBSTITUTE_ROW) == ((1, 1), (2, 2), (2, 2))
    assert replace(plan, keyed=True, sensitivities=()).law(0, 0) == DiscreteLaplace(
        scale=Fraction(8)
    )
    units = replace(plan, sensitivities=((3, 9), (6, 18), (12, 72)))
    assert units.law(0, 0) == DiscreteLaplace(scale=Fraction(12))
    assert units.law(2, 1) == DiscreteLaplace(scale=1 / (Fraction(1, 24) + Fraction(1, 24)))


def test_refuses() -> None:
    half = Fraction(1, 2)
    plan = make_plan([[2], [3, 1]], 0, half, half)
    public = {"public_level": 0, "unit": SUBSTITUTE_ROW}
    small, few = ((1, 1),) * 3, ((9, 9), (9, 9))
    rows: list[tuple[dict[str, Any], str]] = [
        ({"level_amounts": (Fraction(1),)}, "1 amounts, 3 levels"),
        ({"level_amounts": (Fraction(-1, 9), 0, Fraction(1))}, "negative"),
        ({"level_amounts": (half, 0, Fraction(2, 3))}, "above the budget 1"),
        ({"level_amounts": (Fraction(1), 0, Fraction(0))}, "leaves must be measured"),
        ({"public_level": 0}, "only under substitute"),
        (public | {"keyed": True}, "without keys"),
        (public | {"public_level": 2}, "not a level above"),
        (public | {"level_amounts": (half, 0, half)}, "public needs no budget"),
        ({"tree": IrregularTree.from_fanouts([[1, 1], [2, 2]], roots=2)}, "2 roots"),
        ({"unit": SUBSTITUTE_ROW, "sensitivities": small}, "at least that of counts"),
        ({"sensitivities": few}, "one pair a level"),
    ]

    def change(**changes: Any) -> IrregularPlan:
        return replace(plan, **{"sensitivities": (), **changes})

    check_refusals(change, rows)


def test_a_plan_compares_by_its_values() -> None:
    for public in (False, True):
        plan, same = (
            random_irregular_plan(np.random.default_rng(3), public=public) for _ in range(2)
        )
        assert plan == same and hash(plan) == hash(same)
        lean = len(pickle.dumps(plan))
        assert plan.class_variances and plan.variances_above_leaves and plan.tree.leaf_starts
        assert pickle.loads(pickle.dumps(plan)) == plan and len(pickle.dumps(plan)) == lean
