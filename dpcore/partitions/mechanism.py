"""Interface of the mechanisms that make a partition from noisy counts.

Implemented by `dpcore.partitions.plan` (PrivHP, PMM, and what this project makes of them),
`dpcore.partitions.privtree` and `dpcore.partitions.adaptive`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.codec import Coded, coded
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.partitions.consistency import Running
from dptrees.dpcore.partitions.measurement import Measurement
from dptrees.dpcore.partitions.tree import GrownTree, Hierarchy
from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.privacy.spending import Spending
from dptrees.dpcore.privacy.unit import PrivacyUnit


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimatedTree:
    """A grown tree with what is released of it.

    Args:
        tree: the tree.
        estimates: of each level, (n,) each; a variance is NaN where it is not known.
        counts: of each level (n,) consistent nonnegative integers, in rows.
    """

    tree: GrownTree
    estimates: tuple[Running, ...]
    counts: tuple[Integers, ...]


class LevelVariances(NamedTuple):
    """The variances of what is measured of the nodes of each level, in rows^2.

    Attributes:
        split: (h + 1,) of a node that was split; infinite where nothing is measured, 0 where the
            count is known.
        ended: (h + 1,) likewise of one that was not.
    """

    split: tuple[float, ...]
    ended: tuple[float, ...]


# Of exact counts, as specifications name it.
HOLDING = coded(
    name="holding",
    write=lambda plan: "dense" if plan.dense else "sparse",
    read=lambda holding: holding == "dense",
)


def measured_levels(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the depths and the amounts of the levels of a specification."""
    return {
        "depths": tuple(level["depth"] for level in spec["levels"]),
        "amounts": tuple(Fraction(level[spec["measure"]]) for level in spec["levels"]),
    }


class PartitionMechanism(Coded, ABC):
    """A plan of a partition.

    Attributes:
        mechanism: its name in specifications.
        depths: (h + 1,) of the levels, in bits, the root's 0 first.
        measure: of the budget.
        unit: what neighbors differ in.
        public_total: the number of rows is public.
    """

    mechanism: ClassVar[str]
    depths: tuple[int, ...]
    measure: Measure
    unit: PrivacyUnit
    public_total: bool

    @property
    def height(self) -> int:
        """h, the last level."""
        return len(self.depths) - 1

    @property
    @abstractmethod
    def laws(self) -> tuple[NoiseLaw | None, ...]:
        """(h + 1,) the noise of each count of a level; None where none is measured."""

    @property
    def variances(self) -> LevelVariances | None:
        """Variances of the measurements if the variances of sums follow from them; otherwise
        None."""
        return None

    @property
    def states_errors(self) -> bool:
        """Whether anything is said of how far off estimates and their sums are."""
        return True

    @property
    @abstractmethod
    def state_bytes(self) -> int | None:
        """Largest size of the exact counts in bytes; None where it is that of the nodes that rows
        touch."""

    @property
    @abstractmethod
    def spending(self) -> Spending:
        """The budget that is spent."""

    @abstractmethod
    def estimated(self, hierarchy: Hierarchy, measurement: Measurement) -> EstimatedTree:
        """Grow the partition and estimate its counts: a function of noisy counts alone."""

    @property
    @abstractmethod
    def levels(self) -> list[dict[str, object]]:
        """Each level's depth, budget and exact noise, as plain JSON values."""
