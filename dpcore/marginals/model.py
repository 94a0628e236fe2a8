"""A model of all columns from the measured pairs: a forest of pairs, closed under products.

The columns of a pair that is in no tree together are independent; along the pairs of a tree each
column depends on the one before alone. With A, ..., B on the path between two columns, the counts
of their pair are

    T(A, C) diag(1 / n_C) T(C, D) ... T(., B)

where T are the fitted tables and n_C a column's counts: the closest to independence (the largest
entropy) of all tables with the fitted pairs.

Source: Chow and Liu 1968; McKenna, Miklau, Sheldon 2021 (MST).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from dpcore.arithmetic.products import product
from dpcore.arrays import Floats, Integers
from dpcore.marginals.column_counts import row_estimate
from dpcore.marginals.consistency import consistent_columns, fitted_pair
from dpcore.marginals.measured import MeasuredTables
from dpcore.marginals.measuring import estimated_columns
from dpcore.marginals.sampling import AliasTable
from dpcore.marginals.shape import Pair
from dpcore.noise.randomness import RandomStream


@dataclass(frozen=True, kw_only=True, eq=False)
class TableModel:
    """Estimates of all one-way and two-way counts, and synthetic rows.

    Attributes:
        rows: the estimated number of rows.
        columns: (n_i,) each, estimated counts, above 0, that add up to the rows.
        pairs: (n_i, n_j) estimated counts of the measured pairs, which add up to the columns'.
    """

    rows: float
    columns: tuple[Floats, ...]
    pairs: dict[Pair, Floats]

    @classmethod
    def fitted(cls, measured: MeasuredTables) -> TableModel:
        """The model of released numbers; it is post-processing, and costs no budget.

        Args:
            measured: all released numbers.
        """
        rows = row_estimate(measured.columns)
        alone = estimated_columns(measured.columns, measured.plan, rows)
        columns = consistent_columns(alone, measured, rows)
        pairs = {
            each.pair: fitted_pair(each, columns[each.first], columns[each.second])
            for each in measured.pairs
        }
        return cls(rows=rows, columns=tuple(columns), pairs=pairs)

    def column(self, column: int) -> Floats:
        """(n_i,) estimated counts of a column, in rows."""
        return self.columns[column]

    def pair(self, first: int, second: int) -> Floats:
        """(n_i, n_j) estimated counts of any two columns, in rows.

        Args:
            first, second: two columns, in any order.
        """
        path = self._path(first, second)
        if path is None:
            return self.columns[first][:, np.newaxis] * (self.columns[second] / self.rows)
        result = self._table(first, path[1])
        for column, following in pairwise(path[1:]):
            result = product(result, self._conditional(column, following))
        return result

    def sample(self, rows: int, stream: RandomStream) -> list[Integers]:
        """The cells of synthetic rows, (rows,) of each column, drawn independently.

        Probabilities are multiples of 2^-32.

        Args:
            rows: how many.
            stream: of these rows; equal streams give equal rows.
        """
        result: list[Integers] = [np.zeros(0, np.int64)] * len(self.columns)
        for column, (parent, table) in self._samplers.items():
            given = None if parent is None else result[parent]
            result[column] = table.draw(rows, stream, given)
        return result

    def _table(self, first: int, second: int) -> Floats:
        if first < second:
            return self.pairs[first, second]
        return self.pairs[second, first].T

    def _conditional(self, given: int, column: int) -> Floats:
        """(n_given, n) the fractions of a column's cells given a cell of another."""
        fractions: Floats = self._table(given, column) / self.columns[given][:, np.newaxis]
        return fractions

    def _path(self, first: int, second: int) -> list[int] | None:
        """The columns from one to another along measured pairs; None: there is no such path."""
        parents = self._parents(first)
        if second not in parents:
            return None
        path = [second]
        while path[-1] != first:
            path.append(parents[path[-1]])
        return path[::-1]

    def _parents(self, root: int) -> dict[int, int]:
        """The columns of a tree, from its root on, with the one before each."""
        parents, waiting = {root: root}, [root]
        while waiting:
            column = waiting.pop(0)
            for following in self._neighbors[column]:
                if following not in parents:
                    parents[following] = column
                    waiting.append(following)
        return parents

    @cached_property
    def _neighbors(self) -> list[list[int]]:
        neighbors: list[list[int]] = [[] for _ in self.columns]
        for first, second in self.pairs:
            neighbors[first].append(second)
            neighbors[second].append(first)
        return neighbors

    @cached_property
    def _samplers(self) -> dict[int, tuple[int | None, AliasTable]]:
        """The columns in the order in which they are drawn, each with the one that it is given."""
        samplers: dict[int, tuple[int | None, AliasTable]] = {}
        for root, counts in enumerate(self.columns):
            if root in samplers:
                continue
            for column, parent in self._parents(root).items():
                if column == root:
                    samplers[column] = None, AliasTable.from_weights(counts[np.newaxis])
                else:
                    weights = self._conditional(parent, column)
                    samplers[column] = parent, AliasTable.from_weights(weights)
        return samplers
