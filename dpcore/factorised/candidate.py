"""A strategy as a candidate: the best weighted sums of the cells of an ordered domain."""

from __future__ import annotations

from dataclasses import dataclass

from dptrees.dpcore.factorised.forest import compute_errors
from dptrees.dpcore.factorised.mechanism import FactorizedMechanism
from dptrees.dpcore.factorised.plan import FactorizedPlan
from dptrees.dpcore.factorised.planner import MOST_LEAVES, listed_tree, plan_strategy
from dptrees.dpcore.factorised.read import Read
from dptrees.dpcore.levels.candidate import Candidate
from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.questions.workload import Noise, Way
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.uniform.objectives import CDF, Objective, QuantileObjective, RangeObjective
from dptrees.dpcore.uniform.setting import TreeSetting


@dataclass(frozen=True, kw_only=True)
class WeightedSums(Candidate[FactorizedMechanism]):
    """The strategy whose predicted error is the smallest, of weighted sums of cells.

    Args:
        objective: what the strategy is best for.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.budget import Budget
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> half = TreeSetting(leaves=120, unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.RHO, amount=Fraction(1, 2)))
    >>> sums = WeightedSums()
    >>> round(sums.predicted(sums.mechanism(half)), 2)
    2.29
    """

    objective: Objective = CDF

    @property
    def ways(self) -> frozenset[Way]:
        return frozenset({Way.SHARED})

    @property
    def error_unit(self) -> str:
        return "rows"

    def check(
        self, cells: int, noise: Noise, measure: Measure, *, delta: bool, is_ordered: bool
    ) -> None:
        """Check that the mechanism serves the domain, as `Candidate.check` does.

        Raises:
            Refusal: also of an objective that no strategy is made for, of cells without an order or
                too many of them.
        """
        if measure is Measure.EPSILON and not delta:
            raise Refusal(
                "mechanism",
                "factorised needs rho, or epsilon with a delta: under epsilon alone trees have the "
                "smaller errors",
            )
        if noise is Noise.LAPLACE:
            raise Refusal("noise", "the mechanism factorised has Gaussian noise")
        if not is_ordered:
            raise Refusal("mechanism", "factorised is for cells that have an order")
        if cells > MOST_LEAVES:
            raise Refusal(
                "mechanism",
                f"factorised measures at most {MOST_LEAVES:,} cells, and these are {cells:,}; "
                "planned measures any number",
            )
        if self.objective.kind not in ("cdf", "quantiles", "ranges"):
            raise Refusal(
                "objective", f"the mechanism factorised is not planned for {self.objective.kind}"
            )

    def mechanism(self, setting: TreeSetting) -> FactorizedMechanism:
        plan = FactorizedPlan(
            tree=listed_tree(setting.leaves),
            unit=setting.unit,
            budget=setting.budget,
            strategy=plan_strategy(setting.leaves, self.read(public_total=setting.public_total)),
            public_total=setting.public_total,
            keyed=setting.keyed,
        )
        _ = plan.law  # refuses a budget that is too small
        return FactorizedMechanism(plan=plan)

    def read(self, *, public_total: bool) -> Read:
        """Return what the strategy is best for."""
        if isinstance(self.objective, RangeObjective):
            return Read(kind="ranges", widths=self.objective.widths)
        if public_total:
            return Read(kind="centred")
        if isinstance(self.objective, QuantileObjective):
            return Read(kind="quantiles", shares=self.objective.quantiles)
        return Read(kind="cdf")

    def predicted(self, mechanism: FactorizedMechanism) -> float:
        """Return the error of what the strategy is for, in rows."""
        plan = mechanism.plan
        return compute_errors(plan).rmse(self.read(public_total=plan.public_total))
