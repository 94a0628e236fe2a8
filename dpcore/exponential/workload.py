"""The workload of quantiles alone, and its plan once there is a budget."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dptrees.dpcore.exponential.margins import rank_errors, root_mean_square
from dptrees.dpcore.exponential.mechanism import ExponentialMechanism
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.exponential.question import ExponentialQuestion, exact_quantile
from dptrees.dpcore.ordered.make import OrderedDomain
from dptrees.dpcore.questions.workload import ReleaseTerms, Share, Workload
from dptrees.dpcore.refusal import Refusal


@dataclass(frozen=True, kw_only=True)
class ExponentialWorkload(Workload[ExponentialQuestion]):
    """Quantiles of an ordered domain, by the exponential mechanism.

    Args:
        domain: the map from rows to cells.
        quantiles: each above 0 and below 1.
        interval_share: of the budget, for intervals; 0: there are none.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.ordered.make import make_domain
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> ages = ExponentialWorkload(name="age", quantiles=(0.5,), domain=make_domain(
    ...     {"column": "age", "type": "integer", "lower": 0, "upper": 120}))
    >>> one = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> round(ages.predicted(ages.planned(one, ReleaseTerms(unit=ADD_REMOVE_ROW))),
    ...     3)  # rows, of rank
    1.414
    """

    domain: OrderedDomain
    quantiles: tuple[float, ...]
    interval_share: Fraction = Fraction(0)

    @property
    def error_unit(self) -> str:
        return "rows"

    def planned(self, share: Share, terms: ReleaseTerms) -> ExponentialQuestion:
        if self.domain.counts_units and self.keys is not None:
            raise Refusal("domain", "a tree of units by their rows goes with no by")
        plan = ExponentialPlan(
            cells=self.domain.cells,
            unit=self.domain.counted(terms.unit),
            budget=share.budget,
            quantiles=tuple(sorted(map(exact_quantile, self.quantiles))),
            keyed=self.keys is not None,
            interval_share=self.interval_share,
            confidence=terms.confidence,
        )
        return ExponentialQuestion(
            name=self.name,
            domain=self.domain,
            mechanism=ExponentialMechanism(plan=plan),
            keys=self.keys,
            quantiles=self.quantiles,
            confidence=terms.confidence,
            weight=self.weight,
        )

    def predicted(self, question: ExponentialQuestion) -> float:
        """The standard deviation of ranks, root mean square over the quantiles, where rows lie
        densely."""
        return root_mean_square(rank_errors(question.plan))
