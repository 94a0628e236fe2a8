"""Growth against a readable Algorithm 3, node by node: top-k, ties, thresholds, ends of the domain.
Nodes that are not looked at are not requested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product

import numpy as np
import pytest

from dptrees.dpcore.boxes.partition import BestLinear, Estimates, EvenShares, GrownTree, Nodes
from dptrees.dpcore.boxes.plan import GrowthRule, grow
from tests.dpcore.refusals import check_refusals


class Cells:
    """Codes of some bits, only some with cells."""

    def __init__(self, bits: int, filled: Sequence[int] | None = None) -> None:
        self.bits = bits
        self.filled = list(range(2**bits)) if filled is None else list(filled)

    def _cells(self, depth: int, node: int) -> int:
        return sum(code >> (self.bits - depth) == node for code in self.filled)

    def has_cells(self, depth: int, nodes: Nodes) -> np.ndarray:
        return np.array([self._cells(depth, node) > 0 for node in nodes.tolist()], np.bool_)

    def is_divisible(self, depth: int, nodes: Nodes) -> np.ndarray:
        return np.array([self._cells(depth, node) > 1 for node in nodes.tolist()], np.bool_)


class NoisyCounts:
    """Fixed noisy counts, which note the requests."""

    def __init__(self, counts: Mapping[tuple[int, int], float]) -> None:
        self.counts = counts
        self.seen: list[tuple[int, int]] = []

    def at(self, level: int, depth: int, nodes: Nodes) -> Estimates:
        requested = [(depth, node) for node in nodes.tolist()]
        assert len(set(requested)) == len(requested)
        self.seen += requested
        value = np.array([self.counts[each] for each in requested], np.float64)
        return Estimates(value, np.ones(len(nodes)))

    def variance(self, level: int) -> float:
        return 1.0


def paper_growth(
    cells: Cells, counts: Mapping[tuple[int, int], float], depth: int, most: int
) -> dict[tuple[int, int], float]:
    """Algorithm 3 with Algorithm 4, halving one level at a time, its errata corrected: the nodes by
    (depth, number) with their consistent counts."""
    tree = {(0, 0): max(counts[0, 0], 0.0)}
    hot = [0]
    for level in range(1, depth + 1):
        hot = [node for node in hot if cells.is_divisible(level - 1, np.array([node]))[0]]
        hot.sort(key=lambda node: (-tree[level - 1, node], node))
        added = []
        for node in hot[:most]:
            parent = tree[level - 1, node]
            both = [2 * node, 2 * node + 1]
            filled = [k for k in both if cells.has_cells(level, np.array([k]))[0]]
            below = {k: max(counts[level, k], 0.0) for k in filled}
            if len(filled) == 1:
                shares = {filled[0]: parent}
            else:
                excess = sum(below.values()) - parent
                shares = {k: below[k] - excess / 2 for k in both}
                for k, other in ((both[0], both[1]), (both[1], both[0])):
                    if shares[k] < 0:
                        shares = {k: 0.0, other: parent}
                        break
            for k in both:
                tree[level, k] = shares.get(k, 0.0)
            added += both
        hot = added
    return tree


def all_nodes(tree: GrownTree) -> set[tuple[int, int]]:
    return {(level.depth, node) for level in tree.levels for node in level.nodes.tolist()}


def random_counts(rng: np.random.Generator, bits: int, *, tied: bool) -> dict:
    spread = 3 if tied else 60
    return {
        (depth, node): float(rng.integers(-2, spread) if tied else rng.normal(20, spread))
        for depth in range(bits + 1)
        for node in range(2**depth)
    }


@pytest.mark.parametrize("most", [1, 2, 3, 5, 64])
def test_algorithm_3_node_by_node(most: int) -> None:
    rng = np.random.default_rng(most)
    for case in range(80):
        tied = case < 40
        bits = int(rng.integers(1, 6))
        filled = rng.choice(2**bits, rng.integers(2, 2**bits + 1), replace=False)
        cells = Cells(bits, None if case % 2 else filled.tolist())
        counts, depth = random_counts(rng, bits, tied=tied), int(rng.integers(1, bits + 1))
        expected = paper_growth(cells, counts, depth, most)
        tree, running = grow(
            cells, range(depth + 1), NoisyCounts(counts), GrowthRule(most=most), EvenShares()
        )
        assert all_nodes(tree) == set(expected)
        for level, own in zip(tree.levels, running, strict=True):
            for node, count in zip(level.nodes.tolist(), own.estimate.tolist(), strict=True):
                assert count == pytest.approx(expected[level.depth, node], abs=1e-9)


def test_the_reference_sees_other_rules() -> None:
    """One node more, or the smallest instead of the largest."""
    rng, cells = np.random.default_rng(0), Cells(4)
    counts = random_counts(rng, 4, tied=False)
    expected = set(paper_growth(cells, counts, 4, 2))
    tree, _ = grow(cells, range(5), NoisyCounts(counts), GrowthRule(most=3), EvenShares())
    assert all_nodes(tree) != expected
    upside = {place: -count + 40 for place, count in counts.items()}
    tree, _ = grow(cells, range(5), NoisyCounts(upside), GrowthRule(most=2), EvenShares())
    assert all_nodes(tree) != expected


@pytest.mark.parametrize("depths", [(0, 1, 2, 3, 4, 5), (0, 2, 5), (0, 3, 4), (0, 5)])
def test_the_whole_tree_where_nothing_stops_it(depths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    filled = [0, 1, 5, 6, 7, 13, 20, 21, 30]
    for cells, consistency in product((Cells(5), Cells(5, filled)), (EvenShares(), BestLinear())):
        counts = random_counts(rng, 5, tied=False)
        noisy = NoisyCounts(counts)
        tree, _ = grow(cells, depths, noisy, GrowthRule(most=2**5), consistency)
        every = {
            (below, (node << (below - above)) + k)
            for above, below in pairwise(depths)
            for node in range(2**above)
            if cells.is_divisible(above, np.array([node]))[0]
            for k in range(2 ** (below - above))
        }
        assert all_nodes(tree) == {(0, 0)} | every
        # Only nodes with cells are requested, and each once.
        assert sorted(noisy.seen) == sorted(
            each for each in all_nodes(tree) if cells.has_cells(each[0], np.array([each[1]]))[0]
        )
        leaves = [
            (level.depth, node)
            for level, ends in zip(tree.levels, tree.leaves(), strict=True)
            for node in level.nodes[ends].tolist()
        ]
        covered = sorted(
            code
            for depth, node in leaves
            for code in range(node << (5 - depth), (node + 1) << (5 - depth))
        )
        assert covered == list(range(32))


def test_empty_nodes_are_known_to_be() -> None:
    cells = Cells(2, [0, 1, 3])
    tree, running = grow(
        cells, (0, 2), NoisyCounts(dict.fromkeys([(0, 0), (2, 0), (2, 1), (2, 3)], 4.0)),
        GrowthRule(most=1), BestLinear(),
    )  # fmt: skip
    assert tree.levels[1].variance.tolist() == [1.0, 1.0, 0.0, 1.0]
    assert tree.levels[1].value[2] == 0.0 == running[1].estimate[2]


def test_which_nodes_are_split() -> None:
    count = np.array([-1.0, np.nan, 5.0, 8.0, 0.0, 5.0])
    for rule, total, expected in (
        (GrowthRule(most=9), 20.0, [0, 2, 3, 4, 5]),
        (GrowthRule(most=1), 20.0, [3]),
        (GrowthRule(most=3), 20.0, [2, 3, 5]),  # of equals the first
        (GrowthRule(most=9, parts=4), 20.0, [2, 3, 5]),  # at least 5 rows
        (GrowthRule(most=9, parts=4), 20.1, [3]),
        (GrowthRule(most=9, parts=4), -8.0, [2, 3, 4, 5]),  # a total below 0 is taken as 0
        (GrowthRule(most=9, errors=5.0), 20.0, [3]),  # more than 5 rows
        (GrowthRule(most=9, errors=4.9), 20.0, [2, 3, 5]),
        (GrowthRule(most=2, parts=4, errors=4.9), 20.0, [2, 3]),
        (GrowthRule(most=9, errors=99.0), 20.0, []),
    ):
        assert rule.chosen(count, total, 1.0).tolist() == expected, rule


def test_no_node_to_split_ends_the_tree() -> None:
    rule = GrowthRule(most=8, errors=99.0)
    counts = random_counts(np.random.default_rng(0), 3, tied=True) | {(0, 0): 4.0}
    tree, running = grow(Cells(3), (0, 1, 2, 3), NoisyCounts(counts), rule, EvenShares())
    assert len(tree.levels) == len(running) == 2 and tree.size == 3
    assert rule.chosen(np.array([2.0]), 2.0, None).tolist() == [0]  # the root is split in any case


def test_rules_that_are_refused() -> None:
    rows = [
        ({"most": 0}, "most: 0 is not at least 1"),
        ({"most": 1, "parts": 0}, "parts: 0 is not at least 1"),
        ({"most": 1, "errors": float("inf")}, "errors: inf is not a number of at least 0"),
        ({"most": 1, "errors": float("nan")}, "errors: nan is not a number of at least 0"),
    ]
    check_refusals(GrowthRule, rows)
