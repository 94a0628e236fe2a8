"""A plan: the strategy, the budget and so the law of the noise of every sum. Holds no data."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from dptrees.dpcore.codec import CONTEXT, INLINE, Coded
from dptrees.dpcore.factorised.sensitivity import strategy_law
from dptrees.dpcore.factorised.strategy import MatrixStrategy
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.trees.uniform import UniformTree

# The most rows of a tree: every sum with its noise is then within 64 bits.
ROWS = 2**33
# The chance that a noise is larger than its bound.
_BEYOND = 1e-30
_MOST = 2**62


@dataclass(frozen=True, kw_only=True)
class FactorizedPlan(Coded):
    """The plan of one tree's cells: how they are measured.

    Args:
        tree: whose nodes are released, and whose counts add up; nothing is measured by its levels.
        unit: what neighbors differ in.
        budget: the rho that all sums together spend.
        strategy: which sums get noise.
        public_total: the number of rows N is public.
        keyed: there is one tree per key of a group-by column.

    Raises:
        ValueError: a budget that is no rho, a strategy of other cells than the tree's, a public
            total where relation or keys forbid it, noise too large for 64 bits.
    """

    written = ("tree", "budget", "public_total", "strategy")

    tree: UniformTree = field(metadata=INLINE)
    unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)
    strategy: MatrixStrategy
    public_total: bool = False
    keyed: bool = field(default=False, metadata=CONTEXT)

    def __post_init__(self) -> None:
        if self.budget.measure is not Measure.RHO:
            raise ValueError("budget: strategies past trees spend a rho")
        if self.strategy.leaves != self.tree.leaves:
            raise ValueError(
                f"strategy: of {self.strategy.leaves} cells for {self.tree.leaves} leaves"
            )
        if self.public_total and (self.unit != SUBSTITUTE_ROW or self.keyed):
            raise ValueError(
                "public_total: the number of rows is public only under substitute and without keys"
            )

    @cached_property
    def law(self) -> NoiseLaw:
        """Noise law of every sum.

        Raises:
            ValueError: it is too large for 64-bit numbers.
        """
        law = strategy_law(self.unit, self.strategy, self.budget, keyed=self.keyed)
        if self.strategy.largest * ROWS + law.bound(_BEYOND) >= _MOST:
            raise ValueError("budget: it is too small for noise within 64 bits")
        return law
