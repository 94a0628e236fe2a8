"""Forests of linear estimates: what their noise depends on."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.irregular import forest as irregular_forest
from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.randomness import RandomStream, ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.trees.forests import LinearForest
from dptrees.dpcore.trees.shapes import IrregularTree
from dptrees.dpcore.uniform.plan import UniformForest
from tests.dpcore.irregular_trees import EPSILON
from tests.dpcore.tree_settings import tree_plan

AMOUNTS = (Fraction(1, 3),) * 3
SOURCE = NoiseSource(key=ReleaseKey(bytes(32)), release="r", spec_digest=b"", global_digest=b"")
FORESTS: dict[str, LinearForest] = {
    "uniform": UniformForest(tree_plan(6, (3, 2), AMOUNTS)),
    "irregular": IrregularForest(
        IrregularPlan(
            tree=IrregularTree.from_fanouts([[3], [1, 2, 3]]),
            unit=ADD_REMOVE_ROW,
            budget=EPSILON,
            level_amounts=AMOUNTS,
        )
    ),
}


@pytest.mark.parametrize("forest", FORESTS.values(), ids=FORESTS)
def test_counts_that_differ_in_one_leaf_get_other_noise(forest: LinearForest) -> None:
    """Also if the totals, or all nodes above the leaves, are equal: with the noise of both alike,
    the difference of two measurements would show the rows."""
    (chunk,) = forest.chunking
    measured = []
    for counts in ([5, 0, 2, 0, 1, 4], [4, 1, 2, 0, 1, 4], [5, 0, 2, 0, 0, 5]):
        levels = forest.measure("t", chunk, np.array(counts), SOURCE)
        again = forest.measure("t", chunk, np.array(counts), SOURCE)
        assert all(map(np.array_equal, levels, again))
        assert levels[-1] is not None
        measured.append(levels[-1].ravel() - counts)
    assert len({tuple(noise.tolist()) for noise in measured}) == 3


def test_so_do_the_nodes_above_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the roots of chunks differ, and the counts of all nodes above them do not."""
    plan = IrregularPlan(
        tree=IrregularTree.from_fanouts([[2], [2, 2], [2] * 4]),
        unit=ADD_REMOVE_ROW,
        budget=EPSILON,
        level_amounts=(Fraction(1, 4),) * 4,
    )
    forest = IrregularForest(plan, chunk_leaves=2)
    noise: list[int] = []

    def recorded(law: NoiseLaw, exact: Integers, stream: RandomStream, **more: int) -> Integers:
        result = add_noise(law, exact, stream, **more)
        noise.extend((result - exact).ravel().tolist())
        return result

    monkeypatch.setattr(irregular_forest, "add_noise", recorded)
    drawn = set()
    for totals in ([5, 0, 2, 0], [4, 1, 2, 0], [4, 1, 0, 2]):
        noise.clear()
        forest.solve_spine("t", 0, np.zeros(4), np.array(totals), SOURCE)
        drawn.add(tuple(noise))
    assert len(drawn) == 3 and len(noise) == 3
