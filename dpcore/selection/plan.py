"""The plan of a selection of keys: how often one unit counts, and what each decision may spend."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from dptrees.dpcore.codec import CONTEXT, Coded
from dptrees.dpcore.privacy.selection import SelectionLaw
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.refusal import Refusal


def counted_once(unit: PrivacyUnit) -> PrivacyUnit:
    """The unit with one row under each of its keys, as for the selection of keys.

    Its bounds are of rows, one under a key: the m that stay are those with the smallest hashes of
    (unit, key), of what the keys are. A bound of keys would choose by the codes of keys, which keys
    that nobody lists do not have.

    >>> from dptrees.dpcore.privacy.budget import Neighbors
    >>> person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=10, keys=3)
    >>> counted_once(person).moved(keyed=True)
    (3, 3)
    """
    if unit.is_row:
        return unit
    keys = min(unit.rows, unit.keys or unit.rows)
    return replace(unit, rows=keys, keys=None, rows_per_key=1)


@dataclass(frozen=True, kw_only=True)
class SelectionPlan(Coded):
    """The plan of the selection of a group-by's keys.

    A unit counts once for each of at most m keys. With a unit more, m counts move by one, and m
    decisions change; with a unit of other rows 2 m, m that it leaves and m that it enters. Each
    decision is about its own key alone, and spends an equal part.

    Args:
        unit: whose keys are counted; at most one row of it under a key.
        epsilon, delta: of the whole selection.
        threshold: public: keys of fewer units are never released.

    Raises:
        Refusal: a unit with several rows under a key, or a budget that makes no law.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> plan = SelectionPlan(unit=SUBSTITUTE_ROW,
    ...                      epsilon=Fraction(1), delta=Fraction(1, 10**6))
    >>> plan.moved, plan.law.epsilon, plan.law.least_units(0.5)
    (2, Fraction(1, 2), 27)
    """

    unit: PrivacyUnit = field(metadata=CONTEXT)
    epsilon: Fraction
    delta: Fraction
    threshold: int = 1

    def __post_init__(self) -> None:
        if not self.unit.is_row and self.unit.rows_per_key != 1:
            raise Refusal("rows_per_key", "a unit counts once under a key where keys are selected")
        _ = self.law

    @property
    def moved(self) -> int:
        """The most keys whose number of units changes by one between neighbors."""
        keys, _ = self.unit.moved(keyed=True)
        return 2 * keys if self.unit.substitutes else keys

    @cached_property
    def law(self) -> SelectionLaw:
        """Noise law of the decision about one key."""
        return SelectionLaw(
            epsilon=self.epsilon / self.moved,
            delta=self.delta / self.moved,
            threshold=self.threshold,
        )
