"""What is asked of an ordered domain that a strategy past trees is to measure, and its plan."""

from __future__ import annotations

from dataclasses import dataclass

from dpcore.factorised.forest import errors_of
from dpcore.factorised.mechanism import FactorisedMechanism
from dpcore.factorised.plan import FactorisedPlan
from dpcore.factorised.planner import MOST_LEAVES, plan_strategy, told_tree
from dpcore.factorised.read import Read
from dpcore.ordered.question import OrderedQuestion
from dpcore.ordered.workload import CdfWorkload
from dpcore.privacy.budget import Measure
from dpcore.questions.workload import Noise, Share, Terms, Way
from dpcore.refusal import Refusal
from dpcore.uniform.objectives import CDF, Objective, QuantileObjective, RangeObjective


@dataclass(frozen=True, kw_only=True)
class FactorisedWorkload(CdfWorkload[OrderedQuestion[FactorisedMechanism]]):
    """The CDF, quantiles or ranges of an ordered domain, by the best weighted sums of its cells.

    Args:
        objective: what the strategy is best for.

    >>> from fractions import Fraction
    >>> from dpcore.ordered.make import make_domain
    >>> from dpcore.privacy.budget import Budget
    >>> from dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> ages = FactorisedWorkload(name="age", domain=make_domain(
    ...     {"column": "age", "type": "integer", "lower": 0, "upper": 120,
    ...      "outside": "clamp", "missing": "first"}))
    >>> half = Share(budget=Budget(measure=Measure.RHO, amount=Fraction(1, 2)))
    >>> question = ages.planned(half, Terms(unit=ADD_REMOVE_ROW))
    >>> round(ages.predicted(question), 2)
    2.29
    """

    objective: Objective = CDF

    @property
    def ways(self) -> frozenset[Way]:
        return frozenset({Way.SHARED})

    @property
    def error_unit(self) -> str:
        return "rows"

    def check(self, measure: Measure, *, delta: bool) -> None:
        """Check that the mechanism can serve the workload, as `Workload.check` does.

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
        if self.noise is Noise.LAPLACE:
            raise Refusal("noise", "the mechanism factorised has Gaussian noise")
        if not self.domain.is_ordered:
            raise Refusal("mechanism", "factorised is for cells that have an order")
        if self.domain.cells > MOST_LEAVES:
            raise Refusal(
                "mechanism",
                f"factorised measures at most {MOST_LEAVES:,} cells, and these are "
                f"{self.domain.cells:,}; planned measures any number",
            )
        if self.objective.kind not in ("cdf", "quantiles", "ranges"):
            raise Refusal(
                "objective", f"the mechanism factorised is not planned for {self.objective.kind}"
            )
        super().check(measure, delta=delta)

    def planned(self, share: Share, terms: Terms) -> OrderedQuestion[FactorisedMechanism]:
        setting = self.setting(share, terms)
        plan = FactorisedPlan(
            tree=told_tree(setting.leaves),
            unit=setting.unit,
            budget=setting.budget,
            strategy=plan_strategy(setting.leaves, self.read(public_total=setting.public_total)),
            public_total=setting.public_total,
            keyed=setting.keyed,
        )
        _ = plan.law  # refuses a budget that is too small
        return OrderedQuestion(
            name=self.name,
            domain=self.domain,
            mechanism=FactorisedMechanism(plan=plan),
            keys=self.keys,
            quantiles=self.quantiles,
            confidence=terms.confidence,
            weight=self.weight,
        )

    def read(self, *, public_total: bool) -> Read:
        """What the strategy is best for."""
        if isinstance(self.objective, RangeObjective):
            return Read(kind="ranges", widths=self.objective.widths)
        if public_total:
            return Read(kind="centred")
        if isinstance(self.objective, QuantileObjective):
            return Read(kind="quantiles", shares=self.objective.quantiles)
        return Read(kind="cdf")

    def predicted(self, question: OrderedQuestion[FactorisedMechanism]) -> float:
        """What the strategy is for, in rows."""
        return errors_of(question.mechanism.plan).rmse(
            self.read(public_total=question.public_total)
        )
