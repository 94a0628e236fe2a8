"""What is asked of a tree over an ordered domain, and its plan once there is a budget."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeVar

from dpcore.levels.uniform import UniformMechanism
from dpcore.ordered.make import OrderedDomain
from dpcore.ordered.planner import plan_mechanism, predicted_cdf_rmse, predicted_error
from dpcore.ordered.question import OrderedQuestion
from dpcore.privacy.unit import SUBSTITUTE_ROW
from dpcore.questions.workload import Share, Terms, Workload
from dpcore.refusal import Refusal
from dpcore.repair.error import assumed_rows
from dpcore.repair.planner import plan_for_counts
from dpcore.uniform.objectives import CDF, Objective
from dpcore.uniform.plan import Consistency, Estimator
from dpcore.uniform.setting import TreeSetting

Asked = TypeVar("Asked", bound=OrderedQuestion[Any])


@dataclass(frozen=True, kw_only=True)
class CdfWorkload(Workload[Asked]):
    """The CDF and quantiles of an ordered domain, however they are measured.

    Args:
        domain: the map from rows to cells.
        quantiles: those that are released.
    """

    domain: OrderedDomain
    quantiles: tuple[float, ...] = ()

    def public_total(self, terms: Terms) -> bool:
        """Whether the number of rows that are counted is public, so that the root is exact: under
        substitute, without keys, and where nothing drops rows."""
        return (
            terms.unit == SUBSTITUTE_ROW
            and self.keys is None
            and not self.domain.drops_rows
            and not terms.drops_rows
        )

    def setting(self, share: Share, terms: Terms) -> TreeSetting:
        """What is given of the tree before it is planned.

        Raises:
            Refusal: privacy units that would count under several keys.
        """
        if self.domain.counts_units and self.keys is not None:
            raise Refusal("domain", "a tree of units by their rows goes with no by")
        return TreeSetting(
            leaves=self.domain.cells,
            budget=share.budget,
            unit=self.domain.counted(terms.unit),
            public_total=self.public_total(terms),
            keyed=self.keys is not None,
        )


@dataclass(frozen=True, kw_only=True)
class OrderedWorkload(CdfWorkload[OrderedQuestion[UniformMechanism]]):
    """The CDF, quantiles, ranges or nodes of an ordered domain.

    Args:
        objective: what the plan is best for.
        mechanism, fanouts, level_budgets, estimator: as for `plan_mechanism`.
        consistency: which integers stand beside the estimates.
        for_counts: whether the plan is best for those integers; of mechanism planned alone.
        guessed_rows: a public guess of the rows of a tree, for what is predicted of the integers.

    >>> from dpcore.ordered.make import make_domain
    >>> from dpcore.privacy.budget import Budget, Measure
    >>> from dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> ages = OrderedWorkload(name="age", domain=make_domain(
    ...     {"column": "age", "type": "integer", "lower": 0, "upper": 120,
    ...      "outside": "clamp", "missing": "first"}))
    >>> one = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> question = ages.planned(one, Terms(unit=SUBSTITUTE_ROW))
    >>> question.mechanism.plan.public_total, round(ages.predicted(question), 1)
    (True, 10.2)
    """

    objective: Objective = CDF
    mechanism: str = "planned"
    fanouts: tuple[int, ...] | None = None
    level_budgets: Literal["equal", "optimal"] | tuple[Fraction, ...] | None = None
    estimator: Estimator = Estimator.FULL
    consistency: Consistency = Consistency.TOP_DOWN
    for_counts: bool = False
    guessed_rows: int | None = None

    @property
    def has_fixed_amounts(self) -> bool:
        return isinstance(self.level_budgets, tuple)

    @property
    def error_unit(self) -> str:
        unit, efficient = self.objective.unit, self.estimator is Estimator.FULL
        if unit == "rows" or not efficient or self.mechanism == "independent":
            return "rows"
        return f"{unit} of {self.name}"

    def planned(self, share: Share, terms: Terms) -> OrderedQuestion[UniformMechanism]:
        setting = self.setting(share, terms)
        plan = plan_mechanism(
            self.mechanism,
            setting,
            objective=self.objective,
            fanouts=self.fanouts,
            level_budgets=self.level_budgets,
            estimator=self.estimator,
        )
        if self.for_counts:
            rows = self.guessed_rows or assumed_rows(setting)
            plan = plan_for_counts(
                plan,
                self.objective,
                rows,
                fixed_shape=self.fanouts is not None,
                shrunk=self.consistency is Consistency.SHRUNK,
            )
        return OrderedQuestion(
            name=self.name,
            domain=self.domain,
            mechanism=UniformMechanism(
                plan=plan,
                objective=self.objective,
                consistency=self.consistency,
                for_counts=self.for_counts,
                guessed_rows=self.guessed_rows,
            ),
            keys=self.keys,
            quantiles=self.quantiles,
            confidence=terms.confidence,
            weight=self.weight,
        )

    def condition(self, question: OrderedQuestion[Any]) -> str | None:
        return "of the estimates, not of the counts" if self.for_counts else None

    def predicted(self, question: OrderedQuestion[UniformMechanism]) -> float:
        """What the plan is for; of estimates that are not efficient, the error of a CDF point."""
        if question.mechanism.plan.is_efficient:
            return predicted_error(question.mechanism.plan, question.mechanism.objective)
        return predicted_cdf_rmse(question.mechanism.plan)
