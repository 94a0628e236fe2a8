"""The cells of a column in a model: cells that no measured pair separates are one.

Inside a cell of the model, the column's own cells have the proportions of its estimated counts,
whatever the other columns are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.marginals.groups import group_sums


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelCells:
    """A column and its cells in a model.

    Attributes:
        labels: (n,) the model's cell of each of the column's cells.
        counts: (n,) estimated counts of the column's cells, above 0.
    """

    labels: Integers
    counts: Floats

    @classmethod
    def common(cls, groups: Sequence[Integers], counts: Floats) -> ModelCells:
        """The cells that some groupings of a column part.

        Args:
            groups: (n,) each, the group of each cell; none: the column is one cell of the model.
            counts: (n,) estimated counts.

        >>> groups = [np.array([0, 0, 1]), np.array([0, 1, 1])]
        >>> ModelCells.common(groups, np.ones(3)).labels.tolist()
        [0, 1, 2]
        """
        labels = np.zeros(len(counts), np.int64)
        for each in groups:
            _, labels = np.unique(labels * (each.max() + 1) + each, return_inverse=True)
        return cls(labels=labels.astype(np.int64), counts=counts)

    @property
    def number(self) -> int:
        """How many cells the model has."""
        return int(self.labels.max()) + 1

    @cached_property
    def sums(self) -> Floats:
        """(m,) estimated counts of the model's cells."""
        return group_sums(self.counts, self.labels)

    @cached_property
    def inside(self) -> Floats:
        """(n,) the fraction of each cell in its cell of the model."""
        fractions: Floats = self.counts / self.sums[self.labels]
        return fractions

    def group_of(self, groups: Integers) -> Integers:
        """(m,) the group of each cell of the model.

        Args:
            groups: (n,) of each of the column's cells, one of those that parted them.
        """
        result = np.empty(self.number, np.int64)
        result[self.labels] = groups
        return result
