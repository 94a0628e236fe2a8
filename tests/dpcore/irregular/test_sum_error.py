"""The error of a sum of estimates: by unit noise sent through the estimator, and by matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.irregular.error_laws import IrregularErrors
from dptrees.dpcore.irregular.plan import IrregularPlan
from tests.dpcore.irregular.test_errors import as_rows, level_laws, random_plans, responses
from tests.dpcore.irregular_trees import node_variances


def disjoint_nodes(plan: IrregularPlan, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Some nodes of any levels, none below another."""
    tree, free, found = plan.tree, np.ones(plan.tree.leaves, dtype=bool), []
    for level in rng.integers(0, tree.height + 1, 8).tolist():
        node = int(rng.integers(tree.level_sizes[level]))
        below = tree.leaf_range(level, node)
        if free[below.start : below.stop].all():
            free[below.start : below.stop] = False
            found.append((level, node))
    return found


def test_the_coefficients_are_those_of_unit_noise_sent_through_the_estimator() -> None:
    seen = 0
    for trial, plan in enumerate(random_plans(60, seed=5)):
        laws, estimates = responses(plan)
        nodes = disjoint_nodes(plan, np.random.default_rng(trial))
        found = IrregularErrors(plan).sum(nodes)
        summed = sum(estimates[level][:, node] for level, node in nodes)
        expected = as_rows(laws, np.asarray(summed), np.ones(len(laws), dtype=int))
        rows = level_laws(found.law)
        assert found.difference == 0
        np.testing.assert_array_equal(rows[:, 0], expected[:, 0])
        np.testing.assert_allclose(rows[:, 1], expected[:, 1], rtol=1e-9, atol=1e-9)
        seen += len(nodes) > 1
    assert seen > 20


def dense_covariance(plan: IrregularPlan) -> Any:
    """(K, K) of the estimated leaves, by the definition of generalized least squares."""
    tree, rows, spread, exact = plan.tree, [], [], []
    for level, variances in enumerate(node_variances(plan)):
        for node, variance in enumerate(variances.tolist()):
            row = np.zeros(tree.leaves)
            below = tree.leaf_range(level, node)
            row[below.start : below.stop] = 1
            if variance == 0:
                exact.append(row)
            elif np.isfinite(variance):
                rows.append(row)
                spread.append(variance)
    free = np.eye(tree.leaves)
    if exact:
        _, values, vectors = np.linalg.svd(np.array(exact))
        free = vectors[int((values > 1e-9).sum()) :].T
    seen = np.reshape(rows, (-1, tree.leaves)) @ free
    return free @ np.linalg.solve(seen.T @ (seen / np.array(spread)[:, None]), free.T)


@pytest.mark.parametrize("planted", [False, True])
def test_the_variance_is_that_of_dense_least_squares(planted: bool) -> None:
    """And that of independent estimates, planted in its place, is not."""
    differences = []
    for trial, plan in enumerate(random_plans(40, seed=9)):
        covariance, errors = dense_covariance(plan), IrregularErrors(plan)
        nodes = disjoint_nodes(plan, np.random.default_rng(trial))
        inside = np.zeros(plan.tree.leaves)
        for level, node in nodes:
            below = plan.tree.leaf_range(level, node)
            inside[below.start : below.stop] = 1
        found = errors.sum(nodes).variance
        if planted:
            found = sum(errors.node(level, node).variance for level, node in nodes)
        differences.append(abs(found - inside @ covariance @ inside) / (1 + found))
    assert (max(differences) > 1e-3) if planted else (max(differences) < 1e-8)


def test_a_node_alone_all_leaves_and_no_such_node() -> None:
    for plan in random_plans(10, seed=11):
        errors, sizes = IrregularErrors(plan), plan.tree.level_sizes
        for level, size in enumerate(sizes):
            alone = errors.sum([(level, size - 1)]).variance
            assert alone == pytest.approx(errors.node(level, size - 1).variance, rel=1e-9, abs=1e-9)
        last = plan.tree.height
        every = errors.sum((last, leaf) for leaf in range(sizes[-1]))
        assert every.variance == pytest.approx(errors.node(0, 0).variance, rel=1e-9, abs=1e-9)
        with pytest.raises(ValueError, match="has no node"):
            errors.sum([(last, sizes[-1])])
