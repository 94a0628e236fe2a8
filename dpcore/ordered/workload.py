"""The workload of a tree over an ordered domain, its plan, and published mechanisms to compare."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic

from dptrees.dpcore.levels.planner import Candidate, Made, TreeWorkload, WholeLevels, plan_tree
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.papers.cdf_mechanisms import (
    binary_mechanism,
    histogram_mechanism,
    independent_mechanism,
    tree_mechanism,
)
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
from dptrees.dpcore.questions.planning import ReleaseTerms, Share
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.uniform.objectives import CDF, NodeObjective, Objective
from dptrees.dpcore.uniform.plan import Estimator, TreePlan, TreeSetting

WHOLE_LEVELS = WholeLevels()


@dataclass(frozen=True, kw_only=True)
class OrderedWorkload(TreeWorkload[OrderedQuestion[Made]], Generic[Made]):
    """The CDF, quantiles, ranges or nodes of an ordered domain, measured by one mechanism.

    Args:
        domain: the map from rows to cells.
        quantiles: those that are released.
        candidate: the mechanism.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.ordered.domain_kinds import make_domain
    >>> from dptrees.dpcore.privacy.unit import Budget, Measure
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


@dataclass(frozen=True, kw_only=True)
class NamedPlan:
    """A plan under its name.

    Attributes:
        label: the mechanism: independent, histogram, binary, tree (the best before estimation);
            planned; or chosen, where the plan at hand is none of the planner's.
        plan: its plan; ``plan.estimator`` says which estimate its error speaks of.
    """

    label: str
    plan: TreePlan


def candidates(plan: TreePlan, objective: Objective = CDF) -> tuple[NamedPlan, ...]:
    """Mechanisms that a plan is compared with, for the same leaves, budget and guarantee; itself is
    the last.

    A mechanism whose noise would not fit 64-bit counts is left out.

    Args:
        plan: the plan.
        objective: what it is for.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.levels.planner import predicted_cdf_rmse
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
    >>> from dptrees.dpcore.uniform.plan import TreeSetting
    >>> plan = plan_tree(TreeSetting(
    ...     leaves=256, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     unit=SUBSTITUTE_ROW, public_total=True))
    >>> for each in candidates(plan):
    ...     error = predicted_cdf_rmse(each.plan)
    ...     print(f"{each.label:12}{each.plan.estimator.value:8}{error:8.1f}")
    independent full       359.9
    histogram   none        31.6
    histogram   full        18.3
    binary      none        45.2
    binary      below       35.1
    binary      full        21.5
    tree        none        21.9
    tree        refined     15.2
    tree        full        12.6
    planned     full        12.6
    """
    planned = plan_tree(plan.setting, objective=_for_any_shape(objective))
    shown = [*_published(plan), NamedPlan(label="planned", plan=planned)]
    if plan != planned:
        shown.append(NamedPlan(label="chosen", plan=plan))
    return tuple(shown)


def _for_any_shape(objective: Objective) -> Objective:
    """The objective, but that of the levels of a given tree says nothing of other trees."""
    return CDF if isinstance(objective, NodeObjective) else objective


def _fitting(label: str, plan: TreePlan) -> NamedPlan:
    _ = plan.laws  # refuses noise that does not fit 64-bit counts
    return NamedPlan(label=label, plan=plan)


def _published(plan: TreePlan) -> Iterator[NamedPlan]:
    with suppress(ValueError):
        yield _fitting("independent", independent_mechanism(plan.setting))
    none, below, full = Estimator.NONE, Estimator.BELOW, Estimator.FULL
    refined = (Estimator.REFINED,) if plan.public_total else ()
    for label, mechanism, estimators in (
        ("histogram", histogram_mechanism, (none, full)),
        ("binary", binary_mechanism, (none, below, full)),
        ("tree", tree_mechanism, (none, *refined, full)),
    ):
        for estimator in estimators:
            with suppress(ValueError):
                yield _fitting(label, mechanism(plan.setting, estimator=estimator))
