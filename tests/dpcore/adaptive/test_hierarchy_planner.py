"""Plans of adaptive hierarchies: what they spend, what a guess of the rows changes, and the model's
errors beside the errors of simulated releases."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.hierarchy_planner import (
    is_worth_it,
    modelled_errors,
    plan_adaptive_hierarchy,
)
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import NodeWeights, predicted_level_rmse, with_best_shares
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.trees.chunks import level_sums
from dptrees.dpcore.trees.shapes import IrregularTree
from tests.dpcore.adaptive_trees import solve_adaptive, source
from tests.dpcore.irregular_trees import rhode_island

# 8 areas of 10 groups of 20 blocks.
TREE = IrregularTree.from_fanouts([[8], [10] * 8, [20] * 80])


def best_split(
    tree: IrregularTree = TREE,
    *,
    epsilon: str = "1",
    measure: Measure = Measure.EPSILON,
    public_level: int | None = None,
) -> IrregularPlan:
    """The best plan that splits every node."""
    budget = Budget(measure=measure, amount=Fraction(epsilon))
    unit = ADD_REMOVE_ROW if public_level is None else SUBSTITUTE_ROW
    return with_best_shares(
        IrregularPlan(tree=tree, unit=unit, budget=budget, public_level=public_level)
    )


def predicted(
    split: IrregularPlan, rows: float | None, *, counts: bool = True
) -> tuple[float, ...]:
    return plan_adaptive_hierarchy(split, None, counts=counts, guessed_rows=rows).level_errors


@pytest.mark.parametrize("measure", Measure)
@pytest.mark.parametrize("counts", [True, False])
def test_plans_spend_the_budget(measure: Measure, counts: bool) -> None:
    split = best_split(measure=measure)
    for rows in (None, 30.0, 3000.0, 3e7):
        plan = plan_adaptive_hierarchy(split, None, counts=counts, guessed_rows=rows).plan
        assert sum(plan.level_amounts) == plan.budget.amount == split.budget.amount
        assert plan.decision_part == (0 if counts else Fraction(1, 5))
        # Blocks are measured, and groups decide on them.
        assert plan.decides(2) and plan.level_amounts[3] > 0
        assert all(each >= 0 for each in plan.thresholds)


def test_a_public_total_is_not_measured() -> None:
    found = plan_adaptive_hierarchy(
        best_split(public_level=0), None, counts=True, guessed_rows=500.0
    )
    assert found.plan.public_total and found.plan.level_amounts[0] == 0
    assert found.level_errors[0] == 0.0


def test_with_every_node_split_errors_are_those_of_the_measured_levels() -> None:
    split = best_split()
    found = plan_adaptive_hierarchy(split, None, counts=True, guessed_rows=None)
    same = replace(split, level_amounts=found.plan.level_amounts)
    assert found.level_errors == pytest.approx(predicted_level_rmse(same))
    assert found.ends == 3


@pytest.mark.parametrize("measure", list(Measure))
def test_fewer_rows_end_earlier_and_only_few_are_worth_it(measure: Measure) -> None:
    split = best_split(measure=measure)
    ends = []
    for rows in (100.0, 3000.0, 1e6):
        found = plan_adaptive_hierarchy(split, None, counts=True, guessed_rows=rows)
        ends.append(found.ends)
        worth = is_worth_it(found, split, None, counts=True, guessed_rows=rows)
        if rows != 3000.0:
            assert worth == (rows < 3000.0)
    assert ends == sorted(ends) and ends[0] < 3 and ends[-1] == 3


def test_weights_choose_what_is_made_small() -> None:
    split = best_split()
    rows = 800.0
    blocks, areas = (
        plan_adaptive_hierarchy(
            split, NodeWeights(levels=levels), counts=True, guessed_rows=rows
        ).level_errors
        for levels in ((0, 0, 0, 1), (0, 1, 0, 0))
    )
    assert blocks[3] <= areas[3] and areas[1] <= blocks[1]


def simulated(plan: IrregularPlan, rows: float, *, counts: bool) -> np.ndarray:
    """The root mean square errors of each level in releases of rows spread evenly at random."""
    found = plan_adaptive_hierarchy(plan, None, counts=counts, guessed_rows=rows)
    forest, rng, total = AdaptiveForest(found.plan), np.random.default_rng(2), []
    for number in range(40):
        leaves = rng.multinomial(int(rows), np.full(TREE.leaves, 1 / TREE.leaves))
        exact = level_sums(TREE, leaves.reshape(1, -1))
        solved = solve_adaptive(forest, leaves, source(number))
        name = "count" if counts else "estimate"
        total.append(
            [
                np.mean((own[name] - true) ** 2)
                for own, true in zip(solved.levels, exact, strict=True)
            ]
        )
    return np.sqrt(np.mean(total, axis=0))


@pytest.mark.parametrize("rows", [300.0, 3000.0, 100_000.0])
@pytest.mark.parametrize("counts", [True, False])
def test_the_model_is_near_what_rows_spread_evenly_have(rows: float, counts: bool) -> None:
    """Within two thirds, where blocks have their own chance beside; 40 releases show the error of
    the root, whose squares have a fourth moment of 6, by a fifth."""
    split = best_split(epsilon="1/2")
    measured = simulated(split, rows, counts=counts)
    chance = np.array([0.0, 0.0, 0.0, (rows / TREE.leaves) ** 0.5])
    model = np.hypot(predicted(split, rows, counts=counts), chance)
    assert (measured < 1.67 * model).all() and (measured > 0.5 * model).all()


def test_stopping_at_sparse_block_groups_is_better(shared_data: Path) -> None:
    """One percent of the people of Rhode Island at epsilon 1/10: less than three quarters of the
    errors of every node split, and planned so from the number of rows alone."""
    tree, people = rhode_island(shared_data)
    leaves = np.random.default_rng(1).binomial(people, 0.01)
    split = best_split(tree, epsilon="1/10")
    found = plan_adaptive_hierarchy(split, None, counts=True, guessed_rows=float(leaves.sum()))
    exact = level_sums(tree, leaves.reshape(1, -1))
    every = replace(
        found.plan, level_amounts=split.level_amounts, thresholds=(-(2**40),) * tree.height
    )
    errors = []
    for plan in (found.plan, every):
        forest = AdaptiveForest(plan)
        squares = np.zeros(tree.height + 1)
        for number in range(4):
            solved = solve_adaptive(forest, leaves, source(number))
            squares += [
                np.mean((own["count"] - true) ** 2)
                for own, true in zip(solved.levels, exact, strict=True)
            ]
        errors.append(np.sqrt(squares / 4))
    # Of tracts, block groups and blocks; above, four releases say little.
    assert (errors[0][2:] < 0.75 * errors[1][2:]).all()
    assert is_worth_it(found, split, None, counts=True, guessed_rows=float(leaves.sum()))
    assert modelled_errors(found.plan, float(leaves.sum()), counts=True).ends < tree.height
