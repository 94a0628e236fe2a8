"""Workloads of trees of known leaves, and the interface of the planners that make their mechanisms.

A workload holds what a configuration requests of a tree. A planner has no state: it makes the
mechanism of a workload once the tree's part of the budget is known, and predicts its error.
`dpcore.mechanisms` names the planners. No data is touched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar, Generic, Literal, TypeVar

from dptrees.dpcore.mechanisms import ADAPTIVE, LEVELS, PLANNED, find_planner
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Measure, PrivacyUnit
from dptrees.dpcore.questions.planning import (
    UNPREDICTED,
    CloserQuantiles,
    Mechanism,
    Setting,
    Way,
    Workload,
)
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.uniform.objectives import CDF, Objective, QuantileObjective
from dptrees.dpcore.uniform.plan import Consistency, Estimator, TreeSetting

# Why a section has no key "intervals", but for one mechanism.
FREE_INTERVALS = "goes with the mechanism exponential; others have intervals without a share"
# The unit of errors in what a tree counts: rows, or sums of a column.
COUNTED = "counted"


class ReadAs(Enum):
    """Which of the two numbers of a node most readers will take, or that they take none."""

    COUNTS = "counts"  # nonnegative integers that add up
    ESTIMATES = "estimates"  # unbiased, with intervals
    QUANTILES = "quantiles"  # neither: nothing but the quantiles


W = TypeVar("W", bound="TreeWorkload")
# By the keys of a section: reasons, and values.
Reasons = Mapping[str, str]
Values = Mapping[str, tuple[object, ...]]


class Planner(ABC, Generic[W]):
    """A way to measure a tree of known leaves: plans a mechanism for a workload."""

    # Keys of a tree's section without effect, with the reason; and values that are accepted all
    # the same.
    refused: ClassVar[Reasons] = {}
    allowed: ClassVar[Values] = {}
    # The class of its mechanisms; a choice among planners has none.
    makes: ClassVar[type[Mechanism[Any, Any]]]
    # Whether answers of several periods of a series may be put together.
    may_add_up: ClassVar[bool] = True

    @abstractmethod
    def mechanism(self, workload: W, setting: Setting) -> Mechanism[Any, Any]:
        """Return the mechanism, planned for a workload and a budget.

        Args:
            workload: of the tree.
            setting: its budget and the terms of its release.

        Raises:
            ValueError: the budget is too small or too large, or choices do not fit each other.
        """

    def tree(self, workload: W, setting: Setting) -> Any:
        """Return the tree with its mechanism; arguments and errors as of `mechanism`."""
        return workload.measured_by(self.mechanism(workload, setting), setting)

    def if_closer(self, workload: W, setting: Setting, whole: W) -> Any:
        """Return the tree if it is expected to be closer than whole levels, else None.

        Args:
            workload: of the tree, measured by this planner.
            setting: as for `mechanism`.
            whole: the workload by whole levels.
        """
        return None

    def predicted(self, workload: W, mechanism: Any) -> float:
        """Return the error of what the mechanism is for; `UNPREDICTED` where none is compared.

        Args:
            workload: of the tree.
            mechanism: made by this planner.
        """
        return UNPREDICTED

    def error_unit(self, workload: W) -> str | None:
        """Return the unit of `predicted`: "leaves" for lengths in the domain, `COUNTED` for what
        the tree counts; None: not comparable."""
        return None

    def condition(self, workload: W, mechanism: Any) -> str | None:
        """Return the condition under which the predicted error holds; None: for any data."""
        return None

    def refusal(self, chosen: Mapping[str, object]) -> tuple[str, str] | None:
        """Return the first key of a section without effect, and why; None: there is none.

        Args:
            chosen: the keys that a section has, with their values.
        """
        for key, reason in self.refused.items():
            if key in chosen and chosen[key] not in self.allowed.get(key, ()):
                return key, reason
        return None

    def check(self, workload: W, measure: Measure, *, delta: bool) -> None:
        """Check that the mechanism serves the workload under a guarantee.

        Args:
            workload: of the tree.
            measure: of the release's budget.
            delta: whether a delta goes with it.

        Raises:
            Refusal: naming the choice that does not fit.
        """
        return None

    def ways(self, workload: W) -> frozenset[Way]:
        """Return the ways in which the tree can spend beside a delta."""
        return workload.noise.ways

    def resolved(self, workload: W, mechanism: Any) -> W:
        """Return the workload, restricted to the mechanism that a plan has."""
        return workload

    def linear(self, workload: W) -> W:
        """Return the workload by whole levels, where the mechanism is open."""
        return workload

    def why(self, workload: W, question: Any) -> str | None:
        """Return why a plan has its mechanism, in one line; None where no other was open."""
        return None


@dataclass(frozen=True, kw_only=True)
class TreeWorkload(Workload[Any]):
    """The workload of a tree of known leaves.

    Args:
        domain: the map from rows to leaves.
        mechanism: its name, as `dpcore.mechanisms` lists them; by default whole levels.
        level_budgets: of the levels: "equal", "optimal", or one a level; None: the best ones.
        guessed_rows: a public guess of the rows of a tree (of each key), or None.
    """

    domain: Any
    mechanism: str = LEVELS
    level_budgets: Literal["equal", "optimal"] | tuple[Fraction, ...] | None = None
    guessed_rows: Fraction | float | None = None

    @property
    @abstractmethod
    def planner(self) -> Planner[Any]:
        """What makes the mechanism."""

    @abstractmethod
    def measured_by(self, mechanism: Any, setting: Setting) -> Any:
        """Return the tree, measured by a mechanism.

        Args:
            mechanism: planned for this workload.
            setting: as for `Planner.mechanism`.
        """

    def planned(self, setting: Setting) -> Any:
        return self.planner.tree(self, setting)

    def predicted(self, question: Any) -> float:
        return self.planner.predicted(self, question.mechanism)

    def condition(self, question: Any) -> str | None:
        return self.planner.condition(self, question.mechanism)

    def error_in_rows(self, question: Any) -> float:
        own = self.resolved(question)
        if own is self:
            return super().error_in_rows(question)
        is_adaptive = own.mechanism == ADAPTIVE
        return self.predicted(question) if is_adaptive else own.error_in_rows(question)

    def why(self, question: Any) -> str | None:
        return self.planner.why(self, question)

    def resolved(self, question: Any) -> TreeWorkload:
        own: TreeWorkload = self.planner.resolved(self, question.mechanism)
        return own

    def linear(self) -> TreeWorkload:
        own: TreeWorkload = self.planner.linear(self)
        return own

    @property
    def ways(self) -> frozenset[Way]:
        return self.planner.ways(self)

    @property
    def may_add_up(self) -> bool:
        return self.planner.may_add_up

    @property
    def has_fixed_amounts(self) -> bool:
        return isinstance(self.level_budgets, tuple)

    def check(self, measure: Measure, *, delta: bool) -> None:
        self.planner.check(self, measure, delta=delta)
        super().check(measure, delta=delta)


@dataclass(frozen=True, kw_only=True)
class OrderedWorkload(TreeWorkload):
    """The CDF, quantiles, ranges or nodes of an ordered domain.

    Args:
        domain: the map from rows to cells.
        objective: what the plan is best for.
        quantiles: those that are released.
        read_as: which numbers are read; None: what is best for the mechanism.
        fanouts: the shape, where it is given.
        estimator: how counts are estimated.
        consistency: which integers accompany the estimates.
        interval_share: of the budget, where intervals are paid for; else 0.
        is_pure: whether the release has an epsilon and no delta.

    >>> from dptrees.dpcore.ordered.domain_kinds import make_domain
    >>> from dptrees.dpcore.privacy.unit import Budget
    >>> ages = OrderedWorkload(name="age", domain=make_domain(
    ...     {"column": "age", "type": "integer", "lower": 0, "upper": 120,
    ...      "outside": "clamp", "missing": "first"}))
    >>> question = ages.planned(Setting(
    ...     unit=SUBSTITUTE_ROW, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))))
    >>> question.mechanism.plan.public_total, round(ages.predicted(question), 1)
    (True, 10.2)

    Where quantiles alone are closer:

    >>> median = OrderedWorkload(
    ...     name="age", domain=ages.domain, mechanism="planned", quantiles=(0.5,),
    ...     objective=QuantileObjective(quantiles=(0.5,)))
    >>> one = Setting(
    ...     unit=SUBSTITUTE_ROW, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> closer = median.closer_quantiles(median.planned(one), one)
    >>> [round(each, 1) for each in closer]
    [2.8, 11.8, 14.4]
    """

    domain: OrderedDomain
    objective: Objective = CDF
    quantiles: tuple[float, ...] = ()
    read_as: ReadAs | None = None
    fanouts: tuple[int, ...] | None = None
    estimator: Estimator = Estimator.FULL
    consistency: Consistency = Consistency.TOP_DOWN
    interval_share: Fraction = Fraction(0)
    is_pure: bool = True

    @property
    def planner(self) -> Planner[Any]:
        planner: Planner[Any] = find_planner("ordered", self.mechanism)
        return planner

    @property
    def reads_counts(self) -> bool:
        """Whether the plan is best for the integers."""
        return self.read_as is ReadAs.COUNTS

    @property
    def guesses_values(self) -> bool:
        """Whether it is guessed where quantiles lie, and not only how many rows there are."""
        return isinstance(self.objective, QuantileObjective) and bool(self.objective.guesses)

    @property
    def guess_of_counts(self) -> int | None:
        """The guessed rows, unless they only say how far apart quantiles lie."""
        if self.guessed_rows is None or (self.guesses_values and self.read_as is None):
            return None
        return max(1, round(self.guessed_rows))

    @property
    def error_unit(self) -> str | None:
        unit = self.planner.error_unit(self)
        return unit if unit in ("rows", None) else f"{unit} of {self.name}"

    def closer_quantiles(self, question: Any, setting: Setting) -> CloserQuantiles | None:
        if self.mechanism != PLANNED:
            return None
        planner: Any = self.planner
        closer: CloserQuantiles | None = planner.closer_quantiles(self, question, setting)
        return closer

    def under(self, measure: Measure, *, delta: bool) -> OrderedWorkload:
        is_pure = self.is_pure and measure is Measure.EPSILON and not delta
        return replace(self, is_pure=is_pure)

    def public_total(self, unit: PrivacyUnit, *, drops_rows: bool) -> bool:
        """Whether the number of rows that are counted is public, so that the root is exact: under
        substitute, without keys, and where nothing drops rows."""
        return (
            unit == SUBSTITUTE_ROW
            and self.keys is None
            and not self.domain.drops_rows
            and not drops_rows
        )

    def counted_unit(self, setting: Setting) -> PrivacyUnit:
        """Return the privacy unit as the domain counts it.

        Raises:
            Refusal: privacy units that would count under several keys.
        """
        if self.domain.counts_units and self.keys is not None:
            raise Refusal("domain", "a tree of units by their rows goes with no by")
        return self.domain.counted(setting.unit, keyed=self.keys is not None)

    def tree_setting(self, setting: Setting) -> TreeSetting:
        """Return the leaves, and what measuring them may cost.

        Raises:
            Refusal: as of `counted_unit`.
        """
        return TreeSetting(
            leaves=self.domain.cells,
            budget=setting.budget,
            unit=self.counted_unit(setting),
            public_total=self.public_total(setting.unit, drops_rows=setting.drops_rows),
            keyed=self.keys is not None,
        )

    def measured_by(self, mechanism: Any, setting: Setting) -> OrderedQuestion[Any]:
        return OrderedQuestion(
            name=self.name,
            domain=self.domain,
            mechanism=mechanism,
            keys=self.keys,
            quantiles=self.quantiles,
            confidence=setting.confidence,
            weight=self.weight,
        )
