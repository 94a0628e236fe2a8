"""Trees counted between thresholds: keys in a chunk, counts that add up, intervals that hold.

Releases are simulated on data that use up a round's levels; limits have a false-alarm probability
of at most 1e-6 over all cases of a test, and intervals for noise 30 % smaller are found out.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.thresholds.forest import (
    ThresholdForest,
    ThresholdIntervals,
    TreeThresholds,
    finding_rounds,
    threshold_intervals,
)
from dptrees.dpcore.thresholds.plan import ThresholdErrors, ThresholdPlan
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES, Chunk
from dptrees.dpcore.trees.shapes import IrregularTree, UniformTree
from tests.dpcore.cases import for_each
from tests.dpcore.threshold_questions import claiming, make_round, short_plan, whole_plan
from tests.dpcore.thresholds.test_errors import simulated

FALSE_ALARM = 1e-6
CONFIDENCE = 0.8
SOURCE = NoiseSource(
    key=ReleaseKey(bytes(32)), release="test", spec_digest=b"plan", global_digest=b"data"
)
# A root alone; all leaves below; leaves on several levels, continued by single children.
SHAPES = {
    "one leaf": IrregularTree.from_fanouts([]),
    "flat": IrregularTree.from_fanouts([[4]]),
    "uneven": IrregularTree.from_fanouts([[3], [0, 2, 1], [3, 0, 2]]),
    "chain": IrregularTree.from_fanouts([[1], [1], [1]]),
}


@lru_cache
def make_plan(shape: str, *, keyed: bool = False) -> TreeThresholds:
    return TreeThresholds(tree=SHAPES[shape], thresholds=short_plan(), keyed=keyed)


def solved(forest: ThresholdForest, counts: np.ndarray) -> list[list[np.ndarray]]:
    """Estimates and counts of every level, (keys, n), over all chunks."""
    levels: list[list[list[np.ndarray]]] = []
    for chunk in forest.chunking:
        own = counts[chunk.start : chunk.start + chunk.leaves]
        measured = forest.measure("tree", chunk, own, SOURCE)
        roots, totals = forest.chunk_roots(chunk, measured), forest.chunk_totals(chunk, own)
        solutions, spine = forest.solve_spine("tree", chunk.key, roots, totals, SOURCE)
        assert spine == []
        parts = forest.solve(chunk, measured, solutions)[0]
        assert [part.level for part in parts] == list(range(forest.plan.tree.height + 1))
        assert all(np.isnan(part.variance).all() for part in parts)
        assert all(part.variance.shape == part.estimate.shape for part in parts)
        levels.append([[part.estimate, part.count] for part in parts])
    by_level = zip(*levels, strict=True)
    return [[np.concatenate(each) for each in zip(*level, strict=True)] for level in by_level]


def random_counts(shape: str, keys: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.uniform(0, 5, keys * SHAPES[shape].leaves)
    return np.where(rng.random(sizes.size) < 0.2, 0, sizes).astype(np.int64)


@for_each("shape", SHAPES)
@for_each("keys", [1, 3])
def test_counts_add_up_and_estimates_are_those_of_the_rounds(shape: str, keys: int) -> None:
    plan, counts = make_plan(shape, keyed=keys > 1), random_counts(shape, keys)
    levels = solved(ThresholdForest(plan, keys=keys), counts)
    tree = plan.tree
    for level, (estimate, count) in enumerate(levels):
        assert estimate.shape == count.shape == (keys, tree.level_sizes[level])
        assert np.isin(estimate, plan.estimates).all()
        assert count.dtype == np.int64 and (count >= 0).all()
        if level < tree.height:
            below = np.stack([tree.child_sum(level, row) for row in levels[level + 1][1]])
            assert (below == count).all()
    assert (levels[0][1] == np.rint(levels[0][0])).all()


@for_each("shape", SHAPES)
def test_a_key_has_its_own_noise_whatever_is_beside_it(shape: str) -> None:
    plan, counts, keys = make_plan(shape, keyed=True), random_counts(shape, 1), 5
    same, leaves = np.tile(counts, keys), plan.tree.leaves
    together = solved(ThresholdForest(plan, keys=keys), same)
    alone = ThresholdForest(plan, keys=keys, chunk_leaves=leaves)
    assert len(alone.chunking) == keys > len(ThresholdForest(plan, keys=1).chunking)
    for mine, theirs in zip(together, solved(alone, same), strict=True):
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
    for key in range(keys):
        stream = SOURCE.for_counts(counts).stream("tree", key, 0, -2)
        expected = finding_rounds(plan.thresholds, plan.tree, [counts], [stream])
        for (estimate, _), rounds in zip(together, expected, strict=True):
            np.testing.assert_array_equal(estimate[key], plan.estimates[rounds[0]])


def test_keys_trees_and_data_have_streams_of_their_own() -> None:
    plan = make_plan("flat", keyed=True)
    # Many leaves just between rounds, so that equal noise shows in equal answers.
    tree = IrregularTree.from_fanouts([[200]])
    plan, counts = replace(plan, tree=tree), np.full(200, 300, dtype=np.int64)
    forest = ThresholdForest(plan, keys=2)
    (chunk,) = forest.chunking

    def leaves(
        name: str = "tree",
        source: NoiseSource = SOURCE,
        *,
        own: np.ndarray = counts,
        index: int = 0,
    ) -> np.ndarray:
        place = replace(chunk, index=index)
        return forest.measure(name, place, np.tile(own, 2), source)[-1]

    first = leaves()
    others = [first[1], leaves("other")[0], leaves(source=replace(SOURCE, spec_digest=b"x"))[0]]
    others.append(leaves(source=replace(SOURCE, global_digest=b"x"))[0])
    others.append(leaves(index=1)[0])
    others.append(leaves(own=np.where(np.arange(200) == 9, 301, 300))[0])
    assert all((first[0] != other).any() for other in others)
    np.testing.assert_array_equal(first, leaves())


def test_a_tree_that_does_not_fit_a_chunk_is_refused() -> None:
    tree = IrregularTree.from_fanouts([[CHUNK_LEAVES + 1]])
    with pytest.raises(ValueError, match="mechanism: thresholds need a whole tree at once"):
        TreeThresholds(tree=tree, thresholds=short_plan())
    plan = make_plan("flat")
    with pytest.raises(ValueError, match="mechanism: thresholds need a whole tree at once"):
        ThresholdForest(plan, chunk_leaves=plan.tree.leaves - 1)


@pytest.mark.parametrize("estimate", [25, 10])
def test_estimates_that_do_not_rise_are_refused(estimate: int) -> None:
    rounds = (
        replace(make_round(20), estimate=Fraction(25)),
        replace(make_round(40), estimate=Fraction(estimate)),
    )
    with pytest.raises(ValueError, match="the estimates of the rounds must rise"):
        TreeThresholds(
            tree=SHAPES["flat"], thresholds=claiming(rounds, ADD_REMOVE_ROW, Fraction(10))
        )


# --- intervals ---


@lru_cache
def compute_widths(
    height: int, confidence: float = CONFIDENCE, cutoff: int = 2
) -> ThresholdIntervals:
    tree = IrregularTree.from_fanouts([[2] * 2**level for level in range(height)])
    plan = whole_plan(cutoff=cutoff)
    return threshold_intervals(TreeThresholds(tree=tree, thresholds=plan), confidence)


def misses(
    plan: ThresholdPlan, widths: ThresholdIntervals, counts: np.ndarray, copies: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return for every level how many copies have a count below its interval, and above: (n,)
    each."""
    fanouts = (2,) * int(np.log2(counts.size))
    tree = UniformTree(leaves=counts.size, fanouts=fanouts)
    exact = tree.level_counts(counts)
    # A round above the root's count accepts no node, and needs no noise.
    rounds = tuple(each for each in plan.rounds if each.floor <= counts.sum())
    estimates = np.array([float(plan.least), *(float(each.estimate) for each in plan.rounds)])
    low, high = np.array(widths.low), np.array(widths.high)
    below, above = [], []
    answers = simulated(replace(plan, rounds=rounds), tree, counts, copies)
    for found, truth in zip(answers, exact, strict=True):
        place = np.searchsorted(estimates, found)
        below.append((truth < low[place]).sum(axis=0))
        above.append((truth > high[place]).sum(axis=0))
    return below, above


def adversarial() -> list[np.ndarray]:
    """Leaves of a tree of height 3 that are just covered by the interval of a round, or just not,
    beside others that use up what the rounds above may find."""
    widths, rng = compute_widths(3), np.random.default_rng(1)
    cases = []
    for number in (0, 1, 4, 8):
        edge = int(widths.high[number])
        cases.append(np.array([edge + 1, *[0] * 7]))
        cases.append(np.full(8, edge + 1))
        # At each level a node that is somewhat heavier: found first, it uses up an answer.
        cases.append(np.array([edge + 1, 0, edge, edge // 3, edge, edge // 2, edge // 3, edge]))
        cases.append(np.array([edge + 1, *(edge * rng.uniform(0, 2, 7)).astype(int)]))
    return cases


def test_intervals_hold_whatever_the_data_are() -> None:
    plan, widths, copies = whole_plan(), compute_widths(3), 1500
    cases = adversarial()
    limit = stats.binom.isf(FALSE_ALARM / (15 * len(cases)), copies, 1 - CONFIDENCE)
    for counts in cases:
        below, above = misses(plan, widths, counts.astype(np.int64), copies)
        assert all((level == 0).all() for level in below)
        assert max(level.max() for level in above) <= limit


def test_intervals_for_less_noise_than_there_is_are_found_out() -> None:
    """On a single leaf the bounds are nearly exact."""
    plan, copies = whole_plan(cutoff=1), 8000
    weaker = [
        replace(
            each,
            search_epsilon=each.search_epsilon / Fraction(7, 10),
            node_epsilon=each.node_epsilon / Fraction(7, 10),
        )
        for each in plan.rounds
    ]
    wrong = claiming(tuple(weaker), ADD_REMOVE_ROW, least=plan.least)
    planted = threshold_intervals(
        TreeThresholds(tree=SHAPES["one leaf"], thresholds=wrong), CONFIDENCE
    )
    limit = stats.binom.isf(FALSE_ALARM, copies, 1 - CONFIDENCE)
    for widths, is_right in ((compute_widths(0, cutoff=1), True), (planted, False)):
        counts = np.array([int(widths.high[0]) + 1], dtype=np.int64)
        (above,) = misses(plan, widths, counts, copies)[1]
        assert (above[0] <= limit) == is_right


@pytest.mark.parametrize("height", [0, 3])
def test_upper_ends_are_the_largest_counts_that_may_well_be_missed(height: int) -> None:
    plan, widths = whole_plan(), compute_widths(height)
    errors = ThresholdErrors(plan, height=height)
    for number, end in enumerate(widths.high[:12], start=1):
        assert errors.missed(number, [end])[0] > 1 - CONFIDENCE
        assert errors.missed(number, [end + 1])[0] <= 1 - CONFIDENCE
    assert widths.low == (0.0, *(float(each.floor) for each in plan.rounds))
    assert widths.high[-1] == np.inf
    assert all(low <= high for low, high in zip(widths.low, widths.high, strict=True))


def test_a_higher_confidence_has_wider_intervals() -> None:
    narrow, wide = compute_widths(3), compute_widths(3, 0.95)
    assert narrow.low == wide.low
    assert all(one <= other for one, other in zip(narrow.high, wide.high, strict=True))
    assert narrow.high[0] < wide.high[0]


def test_an_end_without_a_bound_is_open() -> None:
    plan = TreeThresholds(tree=SHAPES["uneven"], thresholds=short_plan())
    # No round finds the largest counts there can be, so that a node may be left by all below them.
    assert set(threshold_intervals(plan, CONFIDENCE).high) == {np.inf}


def test_intervals_come_back_from_their_specification() -> None:
    widths = compute_widths(3)
    assert None in widths.spec()["high"]  # type: ignore[operator]
    assert ThresholdIntervals.from_spec(widths.spec()) == widths


def test_a_chunk_of_several_keys_is_a_whole_tree_each() -> None:
    forest = ThresholdForest(make_plan("uneven", keyed=True), keys=4)
    (chunk,) = forest.chunking
    assert isinstance(chunk, Chunk)
    assert (chunk.rows, chunk.index, forest.chunking.split_level) == (4, 0, 0)
