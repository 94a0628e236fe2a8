"""The graph of measured pairs: chordal, so that a model of its cliques is closed under products.

A graph is chordal if every circle of more than three columns has a pair across it. Its columns can
then be put in an order, from any column on, in which the earlier neighbors of each column, its
*parents*, are all neighbors of each other: given its parents, a column is independent of all other
earlier ones. A pair may be added to a chordal graph, which remains chordal, if the common neighbors
of both columns separate them: they and the pair become a clique.

Source: Tarjan and Yannakakis 1984 (maximum cardinality search); Deshpande, Garofalakis, Jordan,
"Efficient Stepwise Selection in Decomposable Models", UAI 2001 (pairs that may be added).
"""

from __future__ import annotations

from collections.abc import Iterable

from dptrees.dpcore.marginals.shape import Pair


class ChordalGraph:
    """Columns, and pairs of neighbors.

    Args:
        columns: how many there are.
        pairs: in an order in which each may be added.

    >>> graph = ChordalGraph(4, [(0, 1), (1, 2), (2, 3)])
    >>> graph.new_clique(0, 2), graph.new_clique(0, 3)
    ([0, 1, 2], None)
    """

    def __init__(self, columns: int, pairs: Iterable[Pair] = ()) -> None:
        self.neighbors: list[set[int]] = [set() for _ in range(columns)]
        for first, second in pairs:
            self.add(first, second)

    def add(self, first: int, second: int) -> None:
        """Make two columns neighbors.

        Raises:
            ValueError: the graph would not be chordal.
        """
        if self.new_clique(first, second) is None:
            raise ValueError(f"columns {first} and {second} cannot become neighbors")
        self.neighbors[first].add(second)
        self.neighbors[second].add(first)

    def new_clique(self, first: int, second: int) -> list[int] | None:
        """The columns, rising, of the clique that a new pair would make; None: it may not be added.

        Args:
            first, second: two columns.
        """
        if second in self.neighbors[first]:
            return None
        common = self.neighbors[first] & self.neighbors[second]
        seen, waiting = common | {first}, [first]
        while waiting:
            for following in self.neighbors[waiting.pop()] - seen:
                seen.add(following)
                waiting.append(following)
        return None if second in seen else sorted({first, second} | common)

    def order(self, root: int) -> list[tuple[int, tuple[int, ...]]]:
        """All columns with their parents, rising: the root first, then as many parents as possible.

        Args:
            root: the first column.
        """
        left = set(range(len(self.neighbors)))
        result: list[tuple[int, tuple[int, ...]]] = []
        done: set[int] = set()
        column = root
        while True:
            result.append((column, tuple(sorted(self.neighbors[column] & done))))
            done.add(column)
            left.remove(column)
            if not left:
                return result
            column = max(left, key=lambda each: (len(self.neighbors[each] & done), -each))
