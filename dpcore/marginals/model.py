"""A model of all columns from the measured pairs: a chordal graph, closed under products.

The model is the product over all columns of the conditional law of each given its parents
(`dpcore.marginals.graph`): the largest entropy of all laws that agree with the joint counts of the
cliques. Columns that no chain of measured pairs connects are independent. The counts of a pair of
columns A and B come from an order of the columns that begins with A: for each column C on the way
to B with parents S the joint counts of A and S, times the conditional law of C given S, are summed
over what later columns do not need.

Source: Chow and Liu 1968; McKenna, Miklau, Sheldon 2021 (MST); Lauritzen, "Graphical Models", 1996.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.marginals.cells import ModelCells
from dptrees.dpcore.marginals.cliques import (
    LEAST_SUM,
    axis_sums,
    contracted,
    fitted_clique,
    fitted_pair,
)
from dptrees.dpcore.marginals.column_counts import estimated_columns, row_estimate
from dptrees.dpcore.marginals.consistency import consistent_columns
from dptrees.dpcore.marginals.graph import ChordalGraph
from dptrees.dpcore.marginals.measured import MeasuredTables
from dptrees.dpcore.marginals.sampling import Laws
from dptrees.dpcore.noise.randomness import RandomStream


@dataclass(frozen=True, kw_only=True, eq=False)
class Clique:
    """A column and its parents.

    Attributes:
        members: the parents, rising, and the column.
        joint: (m_1, ..., m_k, m) estimated counts.
    """

    members: tuple[int, ...]
    joint: Floats

    def margin(self, columns: tuple[int, ...]) -> Floats:
        """Counts of some of the members, with their axes in the order of these."""
        return axis_sums(self.joint, tuple(self.members.index(each) for each in columns))


@dataclass(frozen=True, kw_only=True, eq=False)
class TableModel:
    """Estimates of all one-way and two-way counts, and synthetic rows.

    Attributes:
        rows: the estimated number of rows.
        cells: of each column.
        cliques: of all columns, in an order.
        graph: of the measured pairs.
    """

    rows: float
    cells: tuple[ModelCells, ...]
    cliques: tuple[Clique, ...]
    graph: ChordalGraph

    @classmethod
    def fitted(cls, measured: MeasuredTables) -> TableModel:
        """The model of released numbers; it is post-processing, and costs no budget.

        Args:
            measured: all released numbers.
        """
        rows = row_estimate(measured.columns)
        alone = estimated_columns(measured.columns, measured.plan, rows)
        columns = consistent_columns(alone, measured, rows)
        cells = [
            ModelCells.common(measured.groups_of(column), counts)
            for column, counts in enumerate(columns)
        ]
        pairs = {
            each.pair: fitted_pair(each, cells[each.first], cells[each.second])
            for each in measured.pairs
        }
        graph = ChordalGraph(len(columns), pairs)
        cliques: list[Clique] = []
        for column, parents in graph.order(0):
            if not parents:
                cliques.append(Clique(members=(column,), joint=cells[column].sums))
                continue
            known = next(each for each in reversed(cliques) if set(parents) <= set(each.members))
            tables = [
                pairs[each, column] if each < column else pairs[column, each].T for each in parents
            ]
            joint = fitted_clique(known.margin(parents), tables)
            cliques.append(Clique(members=(*parents, column), joint=joint))
        return cls(rows=rows, cells=tuple(cells), cliques=tuple(cliques), graph=graph)

    def column(self, column: int) -> Floats:
        """(n_i,) estimated counts of a column, in rows."""
        return self.cells[column].counts

    def pair(self, first: int, second: int) -> Floats:
        """(n_i, n_j) estimated counts of any two columns, in rows.

        Args:
            first, second: two columns, in any order.
        """
        above, beside = self.cells[first], self.cells[second]
        table = self._pair(first, second)
        spread: Floats = table[above.labels][:, beside.labels]
        return spread * above.inside[:, np.newaxis] * beside.inside

    def sample(self, rows: int, stream: RandomStream) -> list[Integers]:
        """The cells of synthetic rows, (rows,) of each column: a systematic sample.

        Each row has the law of the model, and their tables are as close to it as they can be
        (`dpcore.marginals.sampling`); larger batches are closer.

        Args:
            rows: of one batch.
            stream: of these rows; equal streams give equal rows.
        """
        cells: list[Integers] = [np.zeros(0, np.int64)] * len(self.cells)
        drawn = list(cells)
        for clique, laws in zip(self.cliques, self._laws, strict=True):
            *parents, column = clique.members
            given: Integers | None = None
            for parent, size in zip(parents, clique.joint.shape, strict=False):
                given = cells[parent] if given is None else given * size + cells[parent]
            drawn[column] = laws.draw(rows, stream, given)
            cells[column] = self.cells[column].labels[drawn[column]]
        return drawn

    @cached_property
    def _laws(self) -> list[Laws]:
        """The law of the cells of each clique's column given its parents."""
        return [
            Laws.from_weights(each.joint.reshape(-1, own.number)[:, own.labels] * own.inside)
            for each in self.cliques
            for own in [self.cells[each.members[-1]]]
        ]

    def _margin(self, columns: tuple[int, ...]) -> Floats:
        """Joint counts of columns of one clique."""
        wanted = set(columns)
        return next(each for each in self.cliques if wanted <= set(each.members)).margin(columns)

    def _pair(self, first: int, second: int) -> Floats:
        """(m_i, m_j) counts of a pair of columns in cells of the model."""
        return self._beside(first, (second,), self.graph.order(first))

    def _beside(
        self, first: int, others: tuple[int, ...], order: list[tuple[int, tuple[int, ...]]]
    ) -> Floats:
        """Joint counts of a column and others that are in one clique, axes in this order.

        Args:
            first: the column.
            others: not the first.
            order: of all columns, from the first on.
        """
        if self.graph.neighbors[first].issuperset(others):
            return self._margin((first, *others))
        last, parents = next(each for each in reversed(order) if each[0] in others)
        joint = self._margin((*parents, last))
        sums = axis_sums(joint, tuple(range(len(parents))))
        conditional = joint / np.maximum(sums, LEAST_SUM)[..., np.newaxis]
        if not parents:
            apart: Floats = self._margin((first,))[:, np.newaxis] * conditional
            return apart
        kept = [place for place, parent in enumerate(parents) if parent in others]
        result = contracted(self._beside(first, parents, order), conditional, kept)
        axes = [*(parents[place] for place in kept), last]
        ordered: Floats = result.transpose(0, *(1 + axes.index(each) for each in others))
        return ordered
