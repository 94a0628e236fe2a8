"""Values of a level-uniform tree that are fixed before its shape and the split of its budget are
chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.privacy.unit import PrivacyUnit


@dataclass(frozen=True, kw_only=True)
class TreeSetting:
    """Number of leaves of a tree, and the budget of its measurements.

    Args:
        leaves: the number K of leaves, 1 <= K <= 2^40.
        budget: what all levels may spend together.
        unit: what neighbors differ in.
        public_total: the number of rows is public (substitute without keys only): the root is
            exact and costs nothing. Otherwise the root is a level that may be measured.
        keyed: there is one tree per key of a group-by column.
    """

    leaves: int
    budget: Budget
    unit: PrivacyUnit
    public_total: bool = False
    keyed: bool = False

    @property
    def at_unit_budget(self) -> TreeSetting:
        """The same at a budget of 1."""
        return replace(self, budget=replace(self.budget, amount=Fraction(1)))
