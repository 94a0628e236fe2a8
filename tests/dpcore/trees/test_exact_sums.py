"""Sums beyond 64 bits: exact until they saturate, whatever the order, and saturated node by node so
that a row moves no node by more than its value."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.irregular import forest as irregular_forest
from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.irregular.plan import IrregularPlan, sum_sensitivities
from dptrees.dpcore.levels.planner import plan_tree
from dptrees.dpcore.noise.laws import NoiseLaw, ZeroNoise
from dptrees.dpcore.noise.randomness import RandomStream, ReleaseKey
from dptrees.dpcore.noise.source import LARGEST_MEASURED, LargeSumError, NoiseSource, add_noise
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.rows.policies import LARGEST_BOUND, MeasureColumn
from dptrees.dpcore.trees import chunks
from dptrees.dpcore.trees.chunks import (
    LARGEST_SUM,
    LeafSums,
    level_sums,
    saturated_sums,
    split_words,
    words_total,
)
from dptrees.dpcore.trees.shapes import IrregularTree, UniformTree
from dptrees.dpcore.uniform.plan import TreeSetting, UniformForest
from tests.dpcore.cases import for_each

EDGES = [
    sign * (2**power + more)
    for power in (0, 30, 31, 32, 33, 50, 61, 62)
    for more in (-1, 0, 1)
    for sign in (-1, 1)
    if abs(2**power + more) <= LARGEST_SUM
]
VALUES = st.one_of(st.sampled_from(EDGES), st.integers(-LARGEST_SUM, LARGEST_SUM))
EPSILON = Budget(measure=Measure.EPSILON, amount=Fraction(1))


def saturated(value: int) -> int:
    return min(max(value, -LARGEST_SUM), LARGEST_SUM)


@given(st.lists(VALUES, min_size=1, max_size=9))
def test_words_stand_for_their_values(values: list[int]) -> None:
    words = split_words(np.array(values))
    low, high = words.tolist()
    assert [b * 2**32 + a for a, b in zip(low, high, strict=True)] == values
    assert all(-(2**31) <= each < 2**31 for each in low)
    assert saturated_sums(words).tolist() == values
    assert words_total(words) == sum(values)


@given(st.lists(st.tuples(VALUES, st.integers(-(2**40), 2**40)), min_size=1, max_size=9))
def test_the_total_of_sums_of_words_is_exact(sums: list[tuple[int, int]]) -> None:
    """Low words may hold the carries of many partial counts: a balance that wrapped with them
    would stop the job, and so reveal something about the data."""
    assert words_total(np.array(sums).T) == sum(low + high * 2**32 for low, high in sums)


@given(
    value=st.one_of(VALUES, st.integers(-(2**71), 2**71)),
    # Sums of words are no words: the low one may hold carries.
    carries=st.integers(-(2**29), 2**29),
)
def test_sums_of_words_saturate_at_the_largest_sum(value: int, carries: int) -> None:
    low = (value + 2**31) % 2**32 - 2**31
    words = np.array([[low + carries * 2**32], [(value - low) // 2**32 - carries]])
    assert saturated_sums(words).tolist() == [saturated(value)]
    assert words_total(words) == value


@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.integers(-(2**61), 2**61)), max_size=2),
        max_size=12,
    )
)
@example(batches=[[(1, 2**61), (1, 2**61)]] * 5)
@example(batches=[[(0, -(2**61)), (2, 2**61)]] * 9)
def test_leaf_sums_are_exact_past_64_bits(batches: list[list[tuple[int, int]]]) -> None:
    """With values as large as the sums of 2^30 rows, so that few of them pass 64 bits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "LARGEST_BOUND", 2**61)
        sums, truth = LeafSums(3), [0, 0, 0]
        for batch in batches:
            sums.add(
                np.array([leaf for leaf, _ in batch], np.int64),
                np.array([value for _, value in batch], np.int64),
            )
            for leaf, value in batch:
                truth[leaf] += value
    low, *high = sums.words
    whole = split_words(low)
    whole[1] += sum(high, np.zeros_like(low))
    assert words_total(whole) == sum(truth)
    assert saturated_sums(whole).tolist() == [saturated(each) for each in truth]


def test_few_rows_need_one_word() -> None:
    sums = LeafSums(3)
    sums.add(np.array([0, 2, 2]), np.array([-LARGEST_BOUND, LARGEST_BOUND, LARGEST_BOUND]))
    (values,) = sums.words
    assert values.tolist() == [-(2**31), 0, 2**32]


def reference_levels(tree: IrregularTree, leaves: list[int]) -> list[list[int]]:
    """S of every node, root first, in Python's integers."""
    levels = [[saturated(leaf) for leaf in leaves]]
    for starts in reversed(tree.child_starts):
        below, edges = levels[0], starts.tolist()
        levels.insert(0, [saturated(sum(below[a:b])) for a, b in pairwise(edges)])
    return levels


FANOUTS = [[[3], [2, 1, 4]], [[2], [1, 2], [3, 2, 2]], [[7]], []]


@pytest.mark.parametrize("fanouts", FANOUTS, ids=str)
@given(data=st.data())
def test_levels_are_those_of_unbounded_integers(fanouts: Any, data: st.DataObject) -> None:
    tree = IrregularTree.from_fanouts(fanouts)
    wide = st.one_of(VALUES, st.sampled_from([-(2**63), 2**63 - 1]))
    leaves = data.draw(st.lists(wide, min_size=tree.leaves, max_size=tree.leaves))
    for shape in ((-1,), (1, -1)):
        found = level_sums(tree, np.array(leaves).reshape(shape))
        assert [level.ravel().tolist() for level in found] == reference_levels(tree, leaves)


def test_levels_of_equal_fanouts() -> None:
    tree = UniformTree(leaves=5, fanouts=(2, 3))
    leaves = np.array([2**62, 2**62, -5, 2**62, -(2**62)])
    found = [level.tolist() for level in level_sums(tree, leaves)]
    assert found == [[2**62], [2**62, 0], leaves.tolist()]


# --- what a row moves ---------------------------------------------------------------------------


@given(data=st.data())
def test_a_row_moves_no_node_by_more_than_the_sensitivity(data: st.DataObject) -> None:
    """Every pair of neighbors: a row added, or substituted in its leaf or elsewhere."""
    tree = IrregularTree.from_fanouts(data.draw(st.sampled_from(FANOUTS)))
    places = st.integers(0, tree.leaves - 1)
    lower, upper = sorted(data.draw(st.lists(st.sampled_from(BOUNDS), min_size=2, max_size=2)))
    sums = data.draw(st.lists(NEAR, min_size=tree.leaves, max_size=tree.leaves))
    values = data.draw(st.lists(st.integers(lower, upper), min_size=2, max_size=2))
    leaves = data.draw(st.lists(places, min_size=2, max_size=2))

    def with_row(number: int) -> list[Integers]:
        # As the job: leaves saturate over all their rows, then nodes do.
        exact = list(sums)
        exact[leaves[number]] += values[number]
        return level_sums(tree, np.array([saturated(each) for each in exact]))

    without = level_sums(tree, np.array([saturated(each) for each in sums]))
    largest = max(abs(lower), abs(upper))
    width = max(upper, 0) - min(lower, 0)
    for one, other, none in zip(with_row(0), with_row(1), without, strict=True):
        added, moved = one - none, other - one
        assert np.count_nonzero(added) <= 1 and np.abs(added).max() <= largest
        changed = np.abs(moved[moved != 0])
        assert len(changed) <= 2
        assert not len(changed) or changed.max() <= (width if len(changed) == 1 else largest)


BOUNDS = [-(2**31), -7, 0, 1, 2**31 - 1, 2**31]
NEAR = st.sampled_from([*EDGES, 2**63, -(2**63), 2**71, LARGEST_SUM - 2**31])


def source() -> NoiseSource:
    return NoiseSource(key=ReleaseKey(bytes(32)), release="r", spec_digest=b"", global_digest=b"")


def sum_plan(tree: IrregularTree, bound: int) -> IrregularPlan:
    measure = MeasureColumn(column="x", lower=-bound, upper=bound)
    return IrregularPlan(
        tree=tree,
        unit=ADD_REMOVE_ROW,
        budget=EPSILON,
        level_amounts=(Fraction(1, tree.height + 1),) * (tree.height + 1),
        sensitivities=sum_sensitivities(
            tree, ADD_REMOVE_ROW, lower=measure.lower, upper=measure.upper, keyed=False
        ),
    )


def measured(forest: IrregularForest, counts: Integers) -> list[int]:
    """What the noise is added to, at every node of a tree in chunks and of its spine."""
    found: list[int] = []

    def recorded(law: NoiseLaw, exact: Integers, stream: RandomStream, *, largest: int) -> Integers:
        found.extend(add_noise(ZeroNoise(), exact, stream, largest=largest).ravel().tolist())
        return add_noise(law, exact, stream, largest=largest)

    with pytest.MonkeyPatch.context() as patch:
        for module in ("noise.source", "trees.forests"):
            patch.setattr(f"dptrees.dpcore.{module}.check_held", lambda *_: None)
        patch.setattr(irregular_forest, "add_noise", recorded)
        roots, totals = [], []
        for chunk in forest.chunking:
            own = counts[chunk.start : chunk.start + chunk.leaves]
            roots.append(forest.chunk_roots(chunk, forest.measure("t", chunk, own, source())))
            totals.append(forest.chunk_totals(chunk, own))
        forest.solve_spine("t", 0, np.concatenate(roots), np.concatenate(totals), source())
    return found


@for_each("chunk_leaves", [2, 4, 2**17])
@for_each("sign", [1, -1])
def test_neighbours_of_two_leaves_at_the_largest_sum(chunk_leaves: int, sign: int) -> None:
    """2^31 rows of 2^31 in each of two leaves: their sum is 2^63, and with one row less it is
    not."""
    tree = IrregularTree.from_fanouts([[3], [2, 2, 2]])
    forest = IrregularForest(sum_plan(tree, LARGEST_BOUND), chunk_leaves=chunk_leaves, signed=True)
    counts = sign * np.array([2**62, 0, 2**62, 0, 0, 9])
    without = counts - sign * np.array([0, 0, LARGEST_BOUND, 0, 0, 0])
    one, other = measured(forest, counts), measured(forest, without)
    assert len(one) == len(other) == 1 + 3 + 6
    assert max(abs(a - b) for a, b in zip(one, other, strict=True)) <= LARGEST_BOUND
    # Two leaves, their two parents and the root.
    assert one.count(sign * 2 * LARGEST_MEASURED) == 5


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_beyond_the_largest_are_refused(sign: int) -> None:
    """With the noise that is drawn: at a scale of 2^33, 2^49 is beyond any draw (e^-65536)."""
    tree = IrregularTree.from_fanouts([[2], [2, 2]])
    forest = IrregularForest(sum_plan(tree, LARGEST_BOUND), signed=True)
    (chunk,) = forest.chunking
    for counts in ([2**62, 0, 2**62, 0], [2**62, 0, 2**62 - LARGEST_BOUND, 0]):
        with pytest.raises(LargeSumError):
            forest.measure("t", chunk, sign * np.array(counts), source())
    # Leaves that are measured alone may add up to more.
    with pytest.raises(LargeSumError):
        forest.resolve_spine(0, [np.array([[sign * 1.5 * LARGEST_MEASURED]])])


def test_counts_of_rows_beyond_the_largest_are_refused() -> None:
    plan = plan_tree(TreeSetting(leaves=4, unit=ADD_REMOVE_ROW, budget=EPSILON))
    forest = UniformForest(plan)
    (chunk,) = forest.chunking
    counts = np.array([2**62, 2**62, 0, 0])
    assert forest.chunk_totals(chunk, counts).tolist() == [LARGEST_SUM]
    with pytest.raises(LargeSumError):
        forest.measure("t", chunk, counts, source())


def test_a_leaf_that_does_not_exist_is_refused() -> None:
    sums = LeafSums(3)
    for ids, error in (([-1], ValueError), ([3], IndexError)):
        with pytest.raises(error):
            sums.add(np.array(ids))
    assert not sums.words[0].any()
