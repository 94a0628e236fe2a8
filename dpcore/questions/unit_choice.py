"""A question that is answered by an exact choice from counts of units: a first stage of a release.

Each unit counts once, in one of a few cells; all cells are one chunk of one place. What is released
is what was chosen, in one part of one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.spending import Spending
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.leaf_counts import ChunkCounts, DenseCounter, merged_chunk, pack_dense
from dptrees.dpcore.questions.place import Counter, Part, Partial, Place
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import Answer, ReadPart, Released
from dptrees.dpcore.questions.tables import NODES
from dptrees.dpcore.trees.chunks import UniformChunking
from dptrees.dpcore.trees.uniform import UniformTree

ONE_PLACE = Place(0, 0)


@dataclass(frozen=True, kw_only=True)
class UnitChoice(Question):
    """A choice from counts of units.

    Args:
        plan: of the choice: its ``unit``, ``budget`` and number of ``cells``.

    Raises:
        ValueError: keys.
    """

    output_only: ClassVar[tuple[str, ...]] = ("confidence", "weight")

    plan: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys is not None:
            raise ValueError("keys: a choice of bounds has none of its own")

    @property
    def counts_rows(self) -> bool:
        return False

    @property
    def unit(self) -> PrivacyUnit:
        """Privacy unit, which counts once."""
        unit: PrivacyUnit = self.plan.unit
        return unit

    @property
    def budget(self) -> Budget:
        budget: Budget = self.plan.budget
        return budget

    @property
    def spending(self) -> Spending:
        if self.budget.measure is Measure.EPSILON:
            return Spending(epsilon=self.budget.amount)
        return Spending(rho=self.budget.amount, moved=None)

    @property
    def places(self) -> list[Place]:
        """One."""
        return [ONE_PLACE]

    @property
    def dense_cells(self) -> int:
        return int(self.plan.cells)

    @cached_property
    def _chunking(self) -> UniformChunking:
        cells = self.dense_cells
        tree = UniformTree(leaves=cells, fanouts=(cells,))
        return UniformChunking(tree=tree, keys=1, chunk_leaves=cells)

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        return DenseCounter(self._chunking)

    def merge(self, place: Place, partials: Iterable[bytes]) -> ChunkCounts:
        return merged_chunk(self.dense_cells, partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut the exact counts of units by cell into partial counts.

        Raises:
            ValueError: they are not (cells,) whole numbers from 0 on.
        """
        given = np.asarray(counts)
        if given.shape != (self.dense_cells,) or given.dtype.kind not in "iu" or given.min() < 0:
            raise ValueError(
                f"counts: tree {self.name} needs {self.dense_cells} whole numbers from 0"
            )
        numbers = given.astype(np.int64)
        yield Partial(ONE_PLACE, pack_dense(numbers), int(numbers.sum()))

    def parts(self) -> Iterator[Part]:
        yield Part(kind=NODES, tree=self.name, key=0, index=0)


class ReleasedChoice(Released):
    """What was chosen.

    Args:
        question: the choice.
        read: gives the rows of its part.
    """

    def __init__(self, question: UnitChoice, read: ReadPart) -> None:
        self.question, self._read = question, read

    @property
    def height(self) -> int:
        return 0

    def _chosen(self, column: str) -> Any:
        """The value of a column of the one row."""
        return self._read(NODES, self.question.name, 0, 0).column(column)[0].as_py()

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        raise ValueError(f"top: {self._name} is a choice of bounds, which releases no counts")
