"""Predicted errors are exact, their derivatives too, and plans are as good as any."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.irregular import planner as irregular_planner
from dptrees.dpcore.irregular.plan import IrregularPlan, NodeVariances, plan_errors
from dptrees.dpcore.irregular.planner import (
    NodeWeights,
    predicted_level_rmse,
    predicted_node_rmse,
    with_best_shares,
    with_shares,
)
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.trees.estimation import estimation_weights
from dptrees.dpcore.trees.shapes import IrregularTree
from tests.dpcore.irregular_trees import (
    EPSILON,
    RHO,
    make_plan,
    node_variances,
    random_irregular_plan,
    random_irregular_tree,
    rhode_island,
)
from tests.dpcore.refusals import check_refusals
from tests.memory import stays_below

BUDGETS = {
    "epsilon": EPSILON,
    "rho": RHO,
    "large epsilon": Budget(measure=Measure.EPSILON, amount=Fraction(10)),
    "large rho": Budget(measure=Measure.RHO, amount=Fraction(10)),
}


@pytest.mark.parametrize("public", [False, True])
def test_predicted_equals_dense_least_squares(
    public: bool, dense_least_squares: Callable[..., Any], level_matrix: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(1)
    for _ in range(25):
        plan = random_irregular_plan(rng, public=public)
        tree, errors = plan.tree, plan_errors(plan)
        covariance = dense_least_squares(tree, node_variances(plan)).covariance
        exact = [
            np.diag(m @ covariance @ m.T)
            for m in (level_matrix(tree, level) for level in range(tree.height + 1))
        ]
        leaves = np.repeat(errors.leaf_estimates, tree.fanouts[-1])
        for mine, theirs in zip([*errors.estimates, leaves], exact, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            predicted_level_rmse(plan), [math.sqrt(max(0, g.mean())) for g in exact], atol=1e-5
        )
        level = int(rng.integers(tree.height + 1))
        node = int(rng.integers(tree.level_sizes[level]))
        weights = NodeWeights(levels=(2.0,) * (tree.height + 1), nodes=((level, node, 3.0),))
        expected = 2 * sum(g.mean() for g in exact) + 3 * exact[level][node]
        assert predicted_node_rmse(plan, weights) == pytest.approx(
            math.sqrt(expected / (2 * tree.height + 5)), rel=1e-9
        )


def test_derivatives_equal_differences_and_the_parts_sum_to_the_error() -> None:
    rng = np.random.default_rng(2)
    for _ in range(10):
        tree = random_irregular_tree(rng, height=3)
        sizes = tree.level_sizes[:-1]
        variances = [rng.uniform(0.5, 5, n) for n in sizes]
        for level in variances:
            level[rng.random(level.size) < 0.3] = np.inf
        leaves = rng.uniform(0.5, 5, sizes[-1])
        weights = [rng.uniform(0, 1, n) for n in sizes], rng.uniform(0, 1, sizes[-1])

        def error(spread: list[Any], tree: IrregularTree = tree, weights: Any = weights) -> float:
            errors = NodeVariances(tree=tree, variances=spread[:-1], leaf_variances=spread[-1])
            return errors.weighted_sum(*weights)

        spread = [*variances, leaves]
        errors = NodeVariances(tree=tree, variances=variances, leaf_variances=leaves)
        above, lowest = errors.derivatives(*weights)
        parts = 0.0
        for level, derivative in enumerate([*above, lowest]):
            for node, value in enumerate(spread[level]):
                if np.isinf(value):
                    assert derivative[node] == 0
                    continue
                moved = [[row.copy() for row in spread] for _ in range(2)]
                moved[0][level][node] += 1e-5
                moved[1][level][node] -= 1e-5
                slope = (error(moved[0]) - error(moved[1])) / 2e-5
                assert derivative[node] == pytest.approx(slope, abs=1e-6)
                parts += derivative[node] * value
        assert parts == pytest.approx(error(spread), rel=1e-9)


def test_weights_of_public_counts_alone_are_no_error() -> None:
    """No split is better than another then."""
    root = NodeWeights(levels=(1, 0, 0))
    for budget in (EPSILON, RHO):
        plan = make_plan([[2], [3, 2]], budget=budget, unit=SUBSTITUTE_ROW, public_level=0)
        best = with_best_shares(plan, root)
        assert sum(best.level_amounts) == plan.budget.amount and best.level_amounts[-1] > 0
        assert predicted_node_rmse(best, root) == 0


def test_known_figures_of_rhode_island(shared_data: Path) -> None:
    tree, _ = rhode_island(shared_data)
    assert tree.level_sizes == (1, 5, 244, 815, 25181)
    flat = make_plan(tree, 0, 0, 0, 0, 1)
    rounded = [float(f"{rmse:.4g}") for rmse in predicted_level_rmse(flat)]
    assert rounded == [215.3, 96.3, 13.79, 7.543, 1.357]
    equal = with_shares(flat, [0.2] * 5)
    fifth = DiscreteLaplace(scale=Fraction(5)).variance
    assert round(math.sqrt(fifth), 2) == 7.06
    # As published: tracts of one block group measured twice, at eps / 5 each.
    twice = estimation_weights(tree, [fifth] * 5)  # type: ignore[arg-type]
    figures = [round(math.sqrt(g.mean()), 2) for g in twice.variances(float(twice.below[0][0]))]
    assert figures == [6.42, 6.28, 6.02, 6.08, 6.95]
    # Once, at both amounts together, is better.
    pooled = predicted_level_rmse(equal)
    assert [round(rmse, 2) for rmse in pooled] == [6.42, 6.28, 5.98, 6.07, 6.95]


@pytest.mark.parametrize("measure", ["epsilon", "rho", "large epsilon", "large rho"])
def test_predicted_is_the_mean_of_all_variances_on_rhode_island(
    shared_data: Path, measure: str
) -> None:
    tree, _ = rhode_island(shared_data)
    plan = with_best_shares(make_plan(tree, budget=BUDGETS[measure]))
    assert sum(plan.level_amounts) == plan.budget.amount
    leaves = np.repeat(plan.leaf_variances, tree.fanouts[-1])
    whole = estimation_weights(tree, [*plan.variances_above_leaves, leaves])  # type: ignore[arg-type]
    means = [math.sqrt(g.mean()) for g in whole.variances(float(whole.below[0][0]))]
    np.testing.assert_allclose(predicted_level_rmse(plan), means, rtol=1e-12)


@pytest.mark.parametrize(
    ("measure", "levels"),
    [
        *itertools.product(
            ["epsilon", "rho"],
            [
                (1, 1, 1, 1, 1),
                (1, 0, 0, 0, 0),
                (0, 0, 0, 0, 1),
                (0, 0, 1, 0, 1),
                (9, 3, 1, 0.3, 0.1),
            ],
        ),
        ("large epsilon", (9, 3, 1, 0.3, 0.1)),
        ("large rho", (1, 1, 1, 1, 1)),
    ],
    ids=str,
)
def test_as_good_as_the_best_of_150_random_splits(
    shared_data: Path, measure: str, levels: tuple[float, ...]
) -> None:
    tree, _ = rhode_island(shared_data)
    weights = NodeWeights(levels=levels)
    unit = SUBSTITUTE_ROW if "large" in measure else ADD_REMOVE_ROW
    plan = with_best_shares(make_plan(tree, budget=BUDGETS[measure], unit=unit), weights)
    rng = np.random.default_rng(3)
    splits = rng.dirichlet(np.ones(5), 120)
    sparse = rng.dirichlet(np.ones(5), 30) * (rng.random((30, 5)) < [0.5, 0.5, 0.5, 0.5, 1])
    sparse /= sparse.sum(axis=1, keepdims=True)
    best = min(
        predicted_node_rmse(with_shares(plan, split), weights)
        for split in itertools.chain(splits, sparse)
    )
    assert predicted_node_rmse(plan, weights) <= best
    # Not every plan is: unless all levels weigh the same, the best of 150 beats the equal split.
    assert (
        len(set(levels)) == 1 or predicted_node_rmse(with_shares(plan, [0.2] * 5), weights) > best
    )


@pytest.mark.parametrize("measure", BUDGETS)
@pytest.mark.parametrize("public", [False, True])
def test_no_small_change_of_shares_is_better(measure: str, public: bool) -> None:
    """Random small trees with chains, public levels, named nodes."""
    rng = np.random.default_rng(4)
    for _ in range(6):
        tree = random_irregular_tree(rng, fanout=6)
        if tree.height == 1:
            continue
        node = int(rng.integers(tree.level_sizes[1]))
        weights = NodeWeights(
            levels=tuple(rng.uniform(0.1, 1, tree.height + 1)), nodes=((1, node, 1.0),)
        )
        plan = with_best_shares(
            make_plan(
                tree,
                budget=BUDGETS[measure],
                unit=SUBSTITUTE_ROW if public else ADD_REMOVE_ROW,
                public_level=0 if public else None,
            ),
            weights,
        )
        found = predicted_node_rmse(plan, weights)
        shares = np.array([float(each / plan.budget.amount) for each in plan.level_amounts])
        for _ in range(40):
            step = rng.normal(0, 0.02, shares.size)
            step[: 1 if public else 0] = 0
            moved = np.maximum(shares + step, 0)
            moved[-1] = max(moved[-1], 1e-3)
            other = with_shares(plan, moved / moved.sum())
            assert found <= predicted_node_rmse(other, weights) * (1 + 1e-6)


@pytest.mark.parametrize("measure", BUDGETS)
def test_the_search_of_large_trees_finds_what_trying_all_levels_finds(
    monkeypatch: pytest.MonkeyPatch, measure: str
) -> None:
    rng = np.random.default_rng(6)
    for _ in range(4):
        tree = random_irregular_tree(rng, height=5, fanout=8)
        weights = NodeWeights(levels=tuple(rng.uniform(0.1, 1, tree.height + 1)))
        errors = []
        for exhaustive in (2**22, 0):
            monkeypatch.setattr(irregular_planner, "_EXHAUSTIVE", exhaustive)
            plan = with_best_shares(make_plan(tree, budget=BUDGETS[measure]), weights)
            errors.append(predicted_node_rmse(plan, weights))
        assert errors[1] <= errors[0] * 1.001


def test_in_small_trees_no_other_levels_are_better() -> None:
    """Even if the measured ones share the budget equally."""
    for fanouts, measure, levels in (
        ([[1], [1], [1], [6]], "large rho", (0.484, 0.0001, 0.577, 0.0003, 0.328)),
        ([[1], [4], [1, 5, 1, 2]], "epsilon", (0.0014, 0.0161, 0.0192, 0.0002)),
    ):
        weights = NodeWeights(levels=levels)
        best = with_best_shares(make_plan(fanouts, budget=BUDGETS[measure]), weights)
        least = predicted_node_rmse(best, weights)
        for kept in itertools.product((0, 1), repeat=best.tree.height):
            shares = [each / (sum(kept) + 1) for each in (*kept, 1)]
            other = predicted_node_rmse(with_shares(best, shares), weights)
            assert least <= other * (1 + 1e-6), (fanouts, kept)


def test_the_search_of_large_trees_goes_on_where_the_first_change_is_worse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = make_plan([[5], [1] * 5, [1, 1, 5, 1, 1]])
    weights = NodeWeights(levels=(0.41, 0.45, 0.0042, 0.0026))
    exhaustive = predicted_node_rmse(with_best_shares(plan, weights), weights)
    monkeypatch.setattr(irregular_planner, "_EXHAUSTIVE", 0)
    searched = predicted_node_rmse(with_best_shares(plan, weights), weights)
    assert searched <= 1.001 * exhaustive


def test_a_search_ends_where_shares_have_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps from where a search ended move nothing; all that are allowed take far longer."""
    steps = []
    step = irregular_planner._Search._step

    def counted(search: irregular_planner._Search, shares: Any) -> Any:
        steps.append(step(search, shares))
        return steps[-1]

    monkeypatch.setattr(irregular_planner._Search, "_step", counted)
    plan = make_plan([[3], [4, 2, 5], range(2, 13)], budget=RHO)
    assert sum(with_best_shares(plan).level_amounts) == plan.budget.amount
    assert len(steps) < 150
    np.testing.assert_allclose(steps[-1], steps[-2], atol=1e-6)


def test_levels_not_worth_a_measurement_get_none() -> None:
    plan = make_plan([[2], [2, 2], [50, 40, 60, 70]])
    leaves_only = with_best_shares(plan, NodeWeights(levels=(0, 0, 0, 1)))
    assert leaves_only.level_amounts == (0, 0, 0, 1)
    named = with_best_shares(plan, NodeWeights(levels=(0, 0, 0, 0), nodes=((1, 1, 1.0),)))
    assert [round(float(amount), 2) for amount in named.level_amounts] == [0, 1, 0, 0]


def test_planning_takes_no_memory_of_the_size_of_the_leaves() -> None:
    rng = np.random.default_rng(5)
    tree = IrregularTree.from_fanouts([[40], np.full(40, 25), 6000 + rng.integers(0, 4000, 1000)])
    assert tree.leaves > 7_000_000

    def plan() -> None:
        predicted_level_rmse(with_best_shares(make_plan(tree)))

    assert stays_below(tree.leaves / 4, plan)


def test_a_tree_of_one_node() -> None:
    plan = with_best_shares(make_plan(IrregularTree(child_starts=())))
    assert plan.level_amounts == (1,)
    law = DiscreteLaplace(scale=Fraction(1))
    assert predicted_level_rmse(plan) == (math.sqrt(law.variance),)
    assert predicted_node_rmse(plan, NodeWeights(levels=(2,))) == math.sqrt(law.variance)


def test_refuses() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"levels": (1, -1)}, "at least 0"),
        ({"levels": (1, math.nan)}, "finite"),
        ({"levels": (0, 0)}, "above 0"),
        ({"levels": (1,)}, "1 levels, the tree has 2"),
        ({"levels": (1, 1), "nodes": ((1, 2, 1.0),)}, "level 1 has no node 2"),
        ({"levels": (1, 1), "nodes": ((2, 0, 1.0),)}, "level 2 has no node 0"),
    ]

    def plan_with(**weights: Any) -> IrregularPlan:
        return with_best_shares(make_plan([[2]]), NodeWeights(**weights))

    check_refusals(plan_with, rows)
