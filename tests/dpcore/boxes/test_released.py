"""Answers about released boxes: against brute force without noise, intervals that hold the truth
wherever a box cuts parts, variances against dense algebra, columns, nodes, what is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.parts import ReleasedPartition, box_sums, interval, standard_margin
from dptrees.dpcore.boxes.plan import Estimation, Holding
from dptrees.dpcore.boxes.released import ReleasedHypercube
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Measure
from tests.dpcore.boxes.boxes import (
    box_domain,
    covered_shares,
    draw_rows,
    plan_question,
    released,
    rows_in,
)
from tests.dpcore.boxes.grown_trees import DenseTree
from tests.dpcore.refusals import check_refused_calls

BOX = box_domain(6, 11)
ROWS = draw_rows(BOX, 3000)
SIDES = st.fixed_dictionaries(
    {},
    optional={
        name: st.tuples(st.integers(0, cells), st.integers(0, cells)).map(sorted).map(tuple)
        for name, cells in (("c0", 6), ("c1", 11))
    },
)


@cache
def exact_tree(holding: Holding, one_cell: bool) -> ReleasedHypercube:
    choices: dict[str, Any] = {"most": 2**BOX.bits} if one_cell else {"most": 4}
    # A sketch is never sure that nothing collided, so its counts would be shrunk.
    choices["estimation"] = Estimation.LEAST_SQUARES
    return released(
        plan_question(BOX, holding=holding, split_errors=0.0, bits_apart=1, **choices), ROWS
    )


@cache
def noisy_tree(**choices: Any) -> ReleasedHypercube:
    return released(plan_question(BOX, amount=Fraction(1), bits_apart=2, **choices), ROWS)


@given(SIDES)
@settings(deadline=None)
@pytest.mark.parametrize("holding", Holding)
def test_boxes_without_noise_by_brute_force(
    holding: Holding, sides: dict[str, tuple[int, int]]
) -> None:
    answer = exact_tree(holding, True).box(sides)
    truth = rows_in(ROWS, sides)
    assert answer.count == truth
    assert answer.estimate == pytest.approx(truth, abs=1e-6)
    assert answer.ci_low <= truth <= answer.ci_high
    assert answer.fraction == truth / 3000
    if holding is not Holding.SKETCH:
        assert answer.std_error is not None and answer.std_error < 1e-6
        assert answer.ci_high - answer.ci_low < 3


@given(SIDES)
@settings(deadline=None)
def test_a_box_that_cuts_parts_holds_the_truth_between_inside_and_touched(
    sides: dict[str, tuple[int, int]],
) -> None:
    """Without noise always; the estimate spreads rows evenly."""
    tree = exact_tree(Holding.SPARSE, False)
    answer, truth = tree.box(sides), rows_in(ROWS, sides)
    assert answer.ci_low - 1e-6 <= truth <= answer.ci_high + 1e-6
    assert answer.ci_low <= answer.count <= answer.ci_high
    starts, stops, counts, _ = tree.partition.parts
    spread, inner, outer, cut = 0.0, 0, 0, False
    for place, count in enumerate(counts.tolist()):
        share = 1.0
        for name, start, stop in zip(("c0", "c1"), starts, stops, strict=True):
            low, high = sides.get(name, (0, 99))
            covered = min(high, int(stop[place])) - max(low, int(start[place]))
            share *= max(0, covered) / int(stop[place] - start[place])
        spread += share * count
        inner += count * (share == 1)
        outer += count * (share > 0)
        cut |= 0 < share < 1
    assert answer.estimate == pytest.approx(spread, abs=1e-6)
    assert answer.ci_low == pytest.approx(inner, abs=1.5)
    assert answer.ci_high == pytest.approx(outer, abs=1.5)
    assert (answer.std_error is None) == cut


def test_grids_are_the_sums_of_rectangles() -> None:
    """Grids of single cells and coarser ones, of all rows; parts that a line cuts are spread
    evenly."""
    partition = exact_tree(Holding.SPARSE, True).partition
    for edges in ([np.arange(7), np.arange(12)], [np.array([1, 4, 6]), np.array([0, 3, 11])]):
        (grid,) = partition.parts.grids(edges).values()
        for i, j in np.ndindex(grid.shape):
            sides = {
                f"c{axis}": (int(own[place]), int(own[place + 1]))
                for axis, own, place in ((0, edges[0], i), (1, edges[1], j))
            }
            assert grid[i, j] == pytest.approx(rows_in(ROWS, sides))
    coarse = exact_tree(Holding.SPARSE, False)
    halves = [np.array([0, 1, 6]), np.array([0, 5, 11])]
    (grid,) = coarse.partition.parts.grids(halves).values()
    for i, j in np.ndindex(grid.shape):
        sides = {"c0": (0, 1) if i == 0 else (1, 6), "c1": (0, 5) if j == 0 else (5, 11)}
        assert grid[i, j] == pytest.approx(coarse.box(sides).estimate)


def test_merged_parts_tile_the_box_with_all_counts() -> None:
    partition = exact_tree(Holding.SPARSE, False).partition
    for most in (1, 2, 5, 1000):
        merged = partition.coarsened(most)
        assert len(merged.counts) == min(most, len(partition.parts.counts))
        covered = np.zeros((6, 11), np.int64)
        for place, count in enumerate(merged.counts.tolist()):
            (x, end), (y, other) = zip(
                *([each[place] for each in ends] for ends in merged[:2]), strict=True
            )
            covered[x:end, y:other] += 1
            assert count == rows_in(ROWS, {"c0": (x, end), "c1": (y, other)})
        assert (covered == 1).all()


def test_the_parts_cut_are_seen_by_a_box_without_their_width() -> None:
    """Planted: the interval of the estimate alone does not hold the truth of boxes that cut."""
    tree = exact_tree(Holding.SPARSE, False)
    missed = 0
    for low in range(6):
        for high in range(11):
            sides = {"c0": (0, low), "c1": (0, high)}
            answer = tree.box(sides)
            assert answer.estimate is not None
            missed += abs(answer.estimate - rows_in(ROWS, sides)) > 1
    assert missed > 5


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("measure", Measure)
def test_errors_of_boxes_are_those_of_dense_algebra(measure: Measure, root: bool) -> None:
    """The released tables have all that a box's standard error needs."""
    domain = box_domain(6, 11)
    question = plan_question(
        domain, amount=Fraction(1), bits_apart=2, measure=measure, root=root, most=5
    )
    tree = released(question, ROWS)
    dense = DenseTree.of(tree.partition.tree)
    for sides in ({}, {"c0": (0, 4)}, {"c1": (8, 11)}, {"c0": (4, 6), "c1": (0, 8)}):
        cells = [sides.get(f"c{axis}", (0, own.cells)) for axis, own in enumerate(domain.axes)]
        shares = covered_shares(tree.partition, cells)
        answer = tree.box(sides)
        if answer.std_error is not None:
            expected = dense.sum_variance(shares)
            assert answer.std_error**2 == pytest.approx(expected, rel=1e-9)
    # And so are the errors of all nodes, which the partition did not read back.
    for level, depth in enumerate(question.plan.depths[: len(tree.partition.tree.levels)]):
        rows = tree._rows(depth)
        filled = domain.has_cells(depth, tree.partition.tree.levels[level].nodes)
        variance = dense.estimates(level)[1][filled]
        assert np.allclose(rows["std_error"].to_numpy() ** 2, variance, rtol=1e-9)


def test_nodes_are_read_back_whatever_the_order_of_rows() -> None:
    tree = noisy_tree()
    partition, rng = tree.partition, np.random.default_rng(0)

    def shuffled(depth: int) -> pa.Table:
        rows = tree._rows(depth)
        return rows.take(pa.array(rng.permutation(len(rows))))

    again = ReleasedPartition(
        domain=partition.domain,
        depths=partition.depths,
        variances=partition.variances,
        read=shuffled,
    )
    for a, b in zip(partition.tree.levels, again.tree.levels, strict=True):
        assert sorted(a.nodes.tolist()) == sorted(b.nodes.tolist())
    for low in range(0, 6, 2):
        sides = [(low, 6), (0, 7)]
        first, second = (box_sums(own, sides).even for own in (partition, again))
        assert first == pytest.approx(second)


def test_codes_of_64_bits_come_back() -> None:
    """Signed in the table, unsigned in the tree."""
    domain = box_domain(2**40, 2**24)
    top = [2**40 - 1, 2**24 - 1]
    rows = pa.record_batch(
        {f"c{axis}": np.array([0, value, value]) for axis, value in enumerate(top)}
    )
    question = plan_question(domain, depth=64, holding=Holding.SPARSE, split_errors=1.0)
    tree = released(question, rows)
    deepest = tree._rows(64)
    assert -1 in deepest["node"].to_pylist()
    assert tree.node(64, -1).count == 2 and tree.node(64, 0).count == 1
    assert tree.box({"c0": (top[0], ""), "c1": (top[1], "")}).count == 2
    assert tree.top(1, 64)[0].count == 2
    assert tree.sampler().total == 3


def test_a_column_is_a_box_of_one_side() -> None:
    tree = exact_tree(Holding.SPARSE, True)
    column = tree.select_column("c1")
    values = ROWS.column("c1").to_numpy()
    for lower in (-3, 0, 2):
        for upper in range(max(lower, 0), 12):
            assert column.cdf(upper).count == (values < upper).sum()
            found = column.range(lower, upper)
            assert found.count == ((values >= lower) & (values < upper)).sum()
    assert column.range("", "").count == 3000


@pytest.mark.parametrize("holding", Holding)
def test_the_rows_below_a_boundary_are_spread_evenly_in_their_parts(holding: Holding) -> None:
    partition = noisy_tree(holding=holding).partition
    starts, stops, counts, _ = partition.parts
    for axis, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        edges, rows = partition.parts.below(axis)
        assert edges[0] == 0 and edges[-1] == BOX.axes[axis].cells and (np.diff(edges) > 0).all()
        for edge, found in zip(edges, rows, strict=True):
            share = np.clip((edge - start) / (stop - start), 0.0, 1.0)
            assert found == pytest.approx(float(share @ counts), abs=1e-6)


@pytest.mark.parametrize("one_cell", [True, False])
def test_quantiles_are_the_columns_distribution_turned_round(one_cell: bool) -> None:
    """Monotone, and the value of a quantile q has at most q below it and q at or below."""
    tree = exact_tree(Holding.SPARSE, one_cell)
    for name, cells in (("c0", 6), ("c1", 11)):
        column, last = tree.select_column(name), -1
        for q in np.linspace(0, 1, 41):
            value = column.quantile(float(q))["value"]
            assert isinstance(value, int) and 0 <= value < cells and value >= last
            last = value
            if one_cell:
                values = ROWS.column(name).to_numpy()
                assert (values < value).mean() <= q + 1e-9 <= (values <= value).mean() + 2e-9


def test_quantiles_of_no_rows_and_of_categories() -> None:
    axes = (
        NumberDomain(column="x", lower=0.0, upper=8.0, cells=8),
        CategoryDomain(column="c", categories=("u", "v", "w")),
    )
    domain = HypercubeDomain(axes=axes, depths=(3, 2))
    none = pa.record_batch({"x": pa.array([], pa.float64()), "c": pa.array([], pa.string())})
    empty = released(plan_question(domain), none).select_column("x").quantile(0.5)
    assert empty["value"] is None and empty["value_text"] is None
    rows = pa.record_batch({"x": [1.5] * 9, "c": ["u"] * 4 + ["w"] * 5})
    tree = released(plan_question(domain), rows)
    assert tree.select_column("c").quantile(0.9)["value_text"] == "w"
    assert tree.select_column("c").quantile(0.9)["value"] is None
    assert tree.select_column("x").quantile(0.5)["value"] == pytest.approx(1.5)
    assert tree.box({"c": ("w", "")}).count == 5


def test_the_largest_nodes_and_single_nodes() -> None:
    tree = exact_tree(Holding.SPARSE, True)
    truth = np.zeros(2**BOX.bits, np.int64)
    codes = BOX.codes({name: ROWS.column(name) for name in ROWS.schema.names})
    np.add.at(truth, codes.astype(np.int64), 1)
    top = tree.top(5, BOX.bits)
    assert [each.count for each in top] == np.sort(truth)[::-1][:5].tolist()
    every = np.arange(2 ** (BOX.bits - 1), dtype=np.uint64)
    divided = BOX.is_divisible(BOX.bits - 1, every)
    assert 0 < divided.sum() < len(divided)
    for parent in every.tolist():
        for node in (2 * parent, 2 * parent + 1):
            if divided[parent]:
                assert tree.node(BOX.bits, node).count == truth[node]
            else:
                with pytest.raises(ValueError, match=f"did not look at node {node}"):
                    tree.node(BOX.bits, node)
    assert tree.node(0, 0).count == 3000 and tree.node(0, 0).fraction == 1.0


def test_intervals_stay_in_what_is_possible() -> None:
    """From 0 to a public total, lower end below upper end; planted, a region far below 0."""
    kept = box_domain(6, 11, missing="first")
    found = []
    for number in range(40):
        question = plan_question(kept, amount=Fraction(1, 10), unit=SUBSTITUTE_ROW, bits_apart=2)
        tree = released(question, ROWS.slice(0, 50), ReleaseKey(number.to_bytes(32, "big")))
        for confidence in (0.5, 0.95):
            own = tree.at_confidence(confidence)
            for sides in ({}, {"c0": (4, 6)}, {"c0": (1, 3), "c1": (3, 11)}):
                answer = own.box(sides)
                assert 0 <= answer.ci_low <= answer.ci_high <= 50
                found.append(answer.estimate)
            for answer in own.top(60, question.plan.depths[1]):
                assert 0 <= answer.ci_low <= answer.ci_high <= 50
    assert min(found) < -20


def test_intervals_widen_with_the_confidence() -> None:
    tree = noisy_tree()
    ends = []
    for confidence in (0.5, 0.9, 0.95, 0.99, 0.9999):
        answer = tree.at_confidence(confidence).box({"c0": (0, 4)})
        ends.append((answer.ci_low, answer.ci_high))
        top = tree.at_confidence(confidence).top(1, tree.question.plan.depths[1])[0]
        assert top.std_error is not None
        margin = standard_margin(Measure.EPSILON, confidence)
        _, high = interval(top.estimate, top.std_error, margin, math.inf)
        assert top.ci_high == float(high) > top.estimate + margin * top.std_error
    lows, highs = zip(*ends, strict=True)
    assert sorted(lows, reverse=True) == list(lows) and sorted(highs) == list(highs)
    # At the release's own confidence they are the intervals of its tables.
    depth = tree.question.plan.depths[1]
    assert tree.top(3, depth) == tree.at_confidence(0.95).top(3, depth)


def test_unknown_errors_are_not_reported() -> None:
    shared = released(plan_question(BOX, "privhp_paper", amount=Fraction(1), most=8), ROWS)
    assert shared.question.plan.estimation is Estimation.EVEN_SHARES
    sketched = noisy_tree(holding=Holding.SKETCH, hash_rows=3)
    for tree in (shared, sketched):
        answer = tree.box({"c0": (0, 4)})
        assert (answer.std_error, answer.ci_low, answer.ci_high) == (None, 0.0, math.inf)
    # Of a node that was measured the interval is that of the measurement.
    top = shared.top(1, 3)[0]
    assert top.std_error is None and 0 <= top.ci_low < top.ci_high < 3000
    with pytest.raises(ValueError, match="the intervals of tree box are those of the release"):
        shared.at_confidence(0.5)
    assert sketched.at_confidence(0.5).top(1, 3)[0].std_error is not None


def test_what_is_refused() -> None:
    tree = noisy_tree()
    column = tree.select_column("c0")
    check_refused_calls(
        [
            (lambda: tree.box({"z": (0, 1)}), "column: 'z' is none of c0, c1"),
            (lambda: tree.box({"c0": (4, 2)}), "box: 4 is above 2"),
            (lambda: tree.box({}, "k"), "key: tree box has no keys"),
            (lambda: tree.select_column("z"), "column: 'z' is none of c0, c1"),
            (lambda: column.top(1, 0), "the nodes of the tree are of all"),
            (lambda: column.cdf(3, simultaneous=True), "simultaneous"),
            (lambda: column.quantile(1.5), "quantile: 1.5 is not between 0 and 1"),
            (lambda: column.quantile("x"), "quantile: 'x' is not a number"),
            (lambda: tree.top(1, 999), "level: 999 is none of 0, "),
            (lambda: tree.find_level("x"), "level: x is none of 0, "),
            (lambda: tree.numbered_level(None), "level: is needed with --node and --value"),
            (lambda: tree.find_node(3, 2), "value: the tree has several columns"),
            (lambda: tree.at_confidence(0.0), "is not above 0 and at most 0.9999"),
            (lambda: tree.at_confidence(1.0), "is not above 0 and at most 0.9999"),
        ]
    )


def test_a_value_of_one_column_names_its_node() -> None:
    domain = box_domain(11, depths=(3,))
    rows = draw_rows(domain, 500)
    tree = released(plan_question(domain, split_errors=0.0, bits_apart=1, most=8), rows)
    values = rows.column("c0").to_numpy()
    for depth in range(4):
        for value in range(11):
            node = tree.find_node(value, depth)
            assert node == value >> (4 - depth)
            inside = (values >> (4 - depth)) == node
            assert tree.node(depth, node).count == inside.sum()


def test_labels_name_what_was_requested() -> None:
    tree = noisy_tree()
    assert tree.box({}).label == "all"
    assert tree.box({"c1": (2, 4)}).label == "c1 [2, 4)"
    assert tree.box({"c0": (1, 2), "c1": (3, 3)}).label == "c0 1, c1 nothing"
    assert {len(answer.label.split(", c1 ")) for answer in tree.top(3, 3)} == {2}


@pytest.mark.parametrize("outside", ["clamp", "drop"])
def test_ends_of_clamped_axes_say_so(outside: str) -> None:
    """Nodes and boxes at an end of an axis count values from outside its bounds too."""
    axes = [NumberDomain(column=name, lower=0, upper=8, cells=8, outside=outside) for name in "xy"]
    domain = HypercubeDomain(axes=tuple(axes), depths=(3, 3))
    rows = pa.table({"x": [99.0] * 900, "y": [5.5] * 900})
    tree = released(plan_question(domain, split_errors=0.0, bits_apart=1), rows)
    (largest, *_), (beside, *_) = tree.top(1, 2), tree.top(1, 6)
    box, inside = tree.box({"x": (4, 8)}), tree.box({"x": (2, 4)})
    if outside == "drop":
        assert {each.in_words for each in (largest, beside, box)} == {None}
        return
    assert largest.shown == "x 4 and above, y 4 and above"
    assert beside.shown == "x 7 and above, y [5, 6)"
    assert (box.shown, inside.in_words) == ("x 4 and above", None)
    found = tree.select_column("x").quantile(0.5)
    assert found["in_words"] == "7 and above"
