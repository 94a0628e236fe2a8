"""The predicted error of nodes equals that of dense generalized least squares."""

from __future__ import annotations

import numpy as np
import pytest

from dptrees.dpcore.uniform.objectives import node_variances
from dptrees.dpcore.uniform.prefix_errors import TreeBatch
from tests.dpcore.cases import for_each
from tests.dpcore.dense_covariance import design, leaf_covariance, random_case


@for_each("seed", range(60))
def test_equals_dense_least_squares(seed: int) -> None:
    tree, variances = random_case(np.random.default_rng(seed))
    with np.errstate(divide="ignore"):
        precisions = 1 / np.array([variances])
    batch = TreeBatch(leaves=tree.leaves, fanouts=((tree.level_sizes[1], *tree.fanouts[1:]),))
    found = node_variances(batch, precisions)[0]
    covariance = leaf_covariance(tree, variances)
    for level in range(tree.height + 1):
        nodes = design(tree, [level])
        expected = np.einsum("ri,ij,rj->r", nodes, covariance, nodes).mean()
        assert found[level] == pytest.approx(expected, rel=1e-9, abs=1e-11)


@pytest.mark.filterwarnings("error")
def test_a_known_total_has_no_error() -> None:
    batch = TreeBatch(leaves=97, fanouts=((10, 10),))
    found = node_variances(batch, np.array([[np.inf, 0.5, 0.5]]))[0]
    assert found[0] == 0 and (found[1:] > 0).all()
