"""A tree that is released of several measurements together: their noisy counts are added, node by
node, before anything is estimated.

The periods of a series are such measurements (`dpcore.series.accumulated`). Each node of each
measurement has noise of its own, a fixed number however often it is looked at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.questions.place import Place, ReleasedPart
from dptrees.dpcore.questions.question import Question


class Measured(NamedTuple):
    """One of several measurements.

    Attributes:
        tree: an `AccumulatedTree`, as it is measured.
        sent: by every place, from `TreeDrawing.draw` of that tree.
        noise: its source.
    """

    tree: Any
    sent: Mapping[Place, bytes]
    noise: NoiseSource


@dataclass(frozen=True, kw_only=True)
class AccumulatedTree(Question, ABC):
    """A tree whose noisy counts of several measurements can be added."""

    @property
    @abstractmethod
    def accumulates(self) -> bool:
        """Whether the noise of a node depends on the node alone, and not on what else was looked
        at: only then is one measurement private however many sums it is a part of."""

    @property
    @abstractmethod
    def node_variance(self) -> float:
        """The variance of the noise of a finest node, in rows^2."""

    @abstractmethod
    def with_budget(self, budget: Budget) -> AccumulatedTree:
        """Return the same tree at another budget, split over its levels in the same proportions."""

    @abstractmethod
    def together(self, trees: Sequence[Any]) -> AccumulatedTree:
        """Return the tree whose noise has the variance of several measurements together.

        Nothing is drawn by it: it says how far off the sum is.

        Args:
            trees: this tree at the budgets of the measurements, at least one.
        """

    @abstractmethod
    def gather_together(self, measured: Sequence[Measured]) -> Sequence[ReleasedPart]:
        """Release the tree of all measurements together.

        Args:
            measured: as this tree is `together` of them.
        """
