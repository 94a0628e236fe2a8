"""Chordal graphs of pairs."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.tables.model import ChordalGraph

COLUMNS = 6
PAIRS = list(combinations(range(COLUMNS), 2))


def is_chordal(neighbors: list[set[int]]) -> bool:
    """Whether columns whose neighbors are all neighbors can be taken away until none is left."""
    left = {column: set(own) for column, own in enumerate(neighbors)}
    while left:
        simple = next(
            (
                column
                for column, own in left.items()
                if all(second in left[first] for first, second in combinations(own, 2))
            ),
            None,
        )
        if simple is None:
            return False
        for own in left.values():
            own.discard(simple)
        del left[simple]
    return True


@given(st.permutations(PAIRS))
def test_a_pair_may_be_added_where_the_graph_remains_chordal(pairs: list[tuple[int, int]]) -> None:
    graph = ChordalGraph(COLUMNS)
    for first, second in pairs:
        after = [set(own) for own in graph.neighbors]
        after[first].add(second)
        after[second].add(first)
        clique = graph.new_clique(first, second)
        assert (clique is not None) == is_chordal(after)
        if clique is not None:
            graph.add(first, second)
            assert all(b in graph.neighbors[a] for a, b in combinations(clique, 2))


@given(st.permutations(PAIRS), st.integers(0, COLUMNS - 1), st.integers(0, len(PAIRS)))
def test_parents_are_neighbors_of_each_other(
    pairs: list[tuple[int, int]], root: int, number: int
) -> None:
    graph = ChordalGraph(COLUMNS)
    for pair in pairs[:number]:
        if graph.new_clique(*pair):
            graph.add(*pair)
    order = graph.order(root)
    assert order[0] == (root, ())
    assert sorted(column for column, _ in order) == list(range(COLUMNS))
    done: set[int] = set()
    for column, parents in order:
        assert set(parents) == graph.neighbors[column] & done
        assert all(b in graph.neighbors[a] for a, b in combinations(parents, 2))
        done.add(column)


def test_other_pairs_are_refused() -> None:
    graph = ChordalGraph(4, [(0, 1), (1, 2), (2, 3)])
    with pytest.raises(ValueError, match="0 and 3"):
        graph.add(0, 3)
    with pytest.raises(ValueError, match="0 and 1"):
        graph.add(0, 1)
