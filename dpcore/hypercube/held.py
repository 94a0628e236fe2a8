"""Exact counts on their way to noise, however they are held: what a question needs of them.

Implemented by `dpcore.hypercube.code_counts` (exact counts of codes) and
`dpcore.hypercube.level_tables` (counters of the first levels and sketches).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.partitions.measurement import Measurement
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.questions.place import Counter, Counts, Partial, Place


class HeldCounts(ABC):
    """A way to hold the exact counts of one tree."""

    @property
    @abstractmethod
    def places(self) -> list[Place]:
        """The parts of the counts."""

    @abstractmethod
    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        """Make a counter, as `Question.counter` does."""

    @abstractmethod
    def merge(self, place: Place, partials: Iterable[bytes]) -> Counts:
        """Merge partial counts, as `Question.merge` does."""

    @abstractmethod
    def split_counts(self, counts: NodeCounts, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut exact counts into partial counts, as `Question.split_counts` does."""

    @abstractmethod
    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> bytes:
        """The counts that a place sends to the growing partition: noisy, or exact where the noise
        of a node is drawn when it is looked at."""

    @abstractmethod
    def measurement(self, sent: Mapping[Place, bytes], noise: NoiseSource) -> Measurement:
        """The noisy counts of any node.

        Args:
            sent: by every place, from `draw`.
            noise: the release's source.
        """

    @abstractmethod
    def together(self, measurements: Sequence[Any]) -> Measurement:
        """The noisy counts of any node in several measurements together.

        Args:
            measurements: of different rows, each from `measurement` of counts held as these, at a
                part of the budget.
        """
