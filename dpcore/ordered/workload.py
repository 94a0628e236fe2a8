"""The workload of a tree over an ordered domain, and its plan once there is a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

from dptrees.dpcore.levels.candidate import Candidate, Made, TreeWorkload, WholeLevels
from dptrees.dpcore.ordered.make import OrderedDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
from dptrees.dpcore.questions.workload import ReleaseTerms, Share
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.uniform.setting import TreeSetting

WHOLE_LEVELS = WholeLevels()


@dataclass(frozen=True, kw_only=True)
class OrderedWorkload(TreeWorkload[OrderedQuestion[Made]], Generic[Made]):
    """The CDF, quantiles, ranges or nodes of an ordered domain, measured by one mechanism.

    Args:
        domain: the map from rows to cells.
        quantiles: those that are released.
        candidate: the mechanism.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.ordered.make import make_domain
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> ages = OrderedWorkload(name="age", domain=make_domain(
    ...     {"column": "age", "type": "integer", "lower": 0, "upper": 120,
    ...      "outside": "clamp", "missing": "first"}))
    >>> one = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> question = ages.planned(one, ReleaseTerms(unit=SUBSTITUTE_ROW))
    >>> question.mechanism.plan.public_total, round(ages.predicted(question), 1)
    (True, 10.2)
    """

    domain: OrderedDomain
    quantiles: tuple[float, ...] = ()
    candidate: Candidate[Any] = WHOLE_LEVELS

    @property
    def error_unit(self) -> str | None:
        unit = self.candidate.error_unit
        return unit if unit in ("rows", None) else f"{unit} of {self.name}"

    def public_total(self, terms: ReleaseTerms) -> bool:
        """Whether the number of rows that are counted is public, so that the root is exact: under
        substitute, without keys, and where nothing drops rows."""
        return (
            terms.unit == SUBSTITUTE_ROW
            and self.keys is None
            and not self.domain.drops_rows
            and not terms.drops_rows
        )

    def setting(self, share: Share, terms: ReleaseTerms) -> TreeSetting:
        """Return what is given of the tree before it is planned.

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

    def planned(self, share: Share, terms: ReleaseTerms) -> OrderedQuestion[Made]:
        return OrderedQuestion(
            name=self.name,
            domain=self.domain,
            mechanism=self.candidate.mechanism(self.setting(share, terms)),
            keys=self.keys,
            quantiles=self.quantiles,
            confidence=terms.confidence,
            weight=self.weight,
        )
