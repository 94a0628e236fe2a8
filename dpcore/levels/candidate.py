"""A candidate: a mechanism that could measure a tree, before there is a budget.

The workload of a tree of known leaves holds one candidate, which makes a mechanism once the share
is known (`dpcore.ordered.workload`, `dpcore.hierarchy.workload`); where several are open,
`dpcore.chooser` chooses. A new mechanism implements `Candidate` in its own package, as
`dpcore.adaptive.candidate` and `dpcore.factorised.candidate` do; here are whole levels of uniform
trees, and in `dpcore.levels.irregular_candidate` levels of trees of any shape, and thresholds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Literal, TypeVar

from dptrees.dpcore.levels.planner import plan_mechanism, predicted_cdf_rmse, predicted_error
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.questions.mechanism import Mechanism
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.questions.workload import Noise, ReleaseTerms, Share, Way, Workload
from dptrees.dpcore.repair.error import assumed_rows
from dptrees.dpcore.repair.planner import plan_for_counts
from dptrees.dpcore.uniform.objectives import CDF, Objective
from dptrees.dpcore.uniform.plan import Consistency, Estimator
from dptrees.dpcore.uniform.setting import TreeSetting

Made = TypeVar("Made", bound=Mechanism[Any, Any])
Planned = TypeVar("Planned", bound=TreeQuestion[Any])

# The unit of errors in what a tree counts: rows, or sums of a column.
COUNTED = "counted"


@dataclass(frozen=True, kw_only=True)
class Candidate(ABC, Generic[Made]):
    """A mechanism that could measure a tree of known leaves."""

    @abstractmethod
    def mechanism(self, setting: Any) -> Made:
        """Return the mechanism, planned for a tree and a budget.

        Args:
            setting: the leaves, and what measuring them may cost: a `TreeSetting` of an ordered
                domain, an `IrregularSetting` of a hierarchy.

        Raises:
            ValueError: the budget is too small or too large, or choices do not fit each other.
        """

    def predicted(self, mechanism: Made) -> float:
        """Return the error of what the mechanism is for; 1 where it is not compared with others'.

        Args:
            mechanism: made by this candidate.
        """
        return 1.0

    def check(
        self, cells: int, noise: Noise, measure: Measure, *, delta: bool, is_ordered: bool
    ) -> None:
        """Check that the mechanism serves a domain under a guarantee.

        Args:
            cells: of the domain.
            noise: that is wanted.
            measure: of the release's budget.
            delta: whether a delta goes with it.
            is_ordered: whether the cells have an order.

        Raises:
            Refusal: naming the choice that does not fit.
        """
        return None

    @property
    def ways(self) -> frozenset[Way] | None:
        """Ways in which the tree can spend beside a delta; None: as its noise can."""
        return None

    @property
    def has_fixed_amounts(self) -> bool:
        """Whether the budgets of the levels are given as numbers."""
        return False

    @property
    def error_unit(self) -> str | None:
        """The unit of `predicted`, "leaves" for lengths in the domain, `COUNTED` for what the tree
        counts; None: not comparable."""
        return None

    def condition(self, mechanism: Made) -> str | None:
        """Condition under which the predicted error holds; None: it holds for any data.

        Args:
            mechanism: made by this candidate.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class WholeLevels(Candidate[UniformMechanism]):
    """Every node of some levels is measured.

    Args:
        objective: what the plan is best for.
        plan: "planned" or a mechanism of a paper, as for `plan_mechanism`.
        fanouts, level_budgets, estimator: as for `plan_mechanism`.
        consistency: which integers accompany the estimates.
        for_counts: whether the plan is best for those integers; of "planned" alone.
        guessed_rows: a public guess of the rows of a tree, for what is predicted of the integers.

    >>> from dptrees.dpcore.privacy.budget import Budget
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> setting = TreeSetting(leaves=120, unit=SUBSTITUTE_ROW, public_total=True,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> round(WholeLevels().predicted(WholeLevels().mechanism(setting)), 1)
    10.2
    """

    objective: Objective = CDF
    plan: str = "planned"
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
        efficient = self.estimator is Estimator.FULL and self.plan != "independent"
        return self.objective.unit if efficient else "rows"

    def condition(self, mechanism: UniformMechanism) -> str | None:
        return "of the estimates, not of the counts" if self.for_counts else None

    def mechanism(self, setting: TreeSetting) -> UniformMechanism:
        plan = plan_mechanism(
            self.plan,
            setting,
            objective=self.objective,
            fanouts=self.fanouts,
            level_budgets=self.level_budgets,
            estimator=self.estimator,
        )
        if self.for_counts:
            plan = plan_for_counts(
                plan,
                self.objective,
                self.guessed_rows or assumed_rows(setting),
                fixed_shape=self.fanouts is not None,
                shrunk=self.consistency is Consistency.SHRUNK,
            )
        return UniformMechanism(
            plan=plan,
            objective=self.objective,
            consistency=self.consistency,
            for_counts=self.for_counts,
            guessed_rows=self.guessed_rows,
        )

    def predicted(self, mechanism: UniformMechanism) -> float:
        """Return the error of what the plan is for; for inefficient estimates, of a CDF point."""
        if mechanism.plan.is_efficient:
            return predicted_error(mechanism.plan, mechanism.objective)
        return predicted_cdf_rmse(mechanism.plan)


@dataclass(frozen=True, kw_only=True)
class TreeWorkload(Workload[Planned]):
    """The workload of a tree of known leaves, measured by one mechanism.

    Args:
        domain: the map from rows to leaves.
        candidate: the mechanism.
    """

    domain: Any
    candidate: Candidate[Any]

    @property
    def may_add_up(self) -> bool:
        return True

    @property
    def ways(self) -> frozenset[Way]:
        own = self.candidate.ways
        return super().ways if own is None else own

    @property
    def has_fixed_amounts(self) -> bool:
        return self.candidate.has_fixed_amounts

    def check(self, measure: Measure, *, delta: bool) -> None:
        cells, is_ordered = self.domain.cells, getattr(self.domain, "is_ordered", False)
        self.candidate.check(cells, self.noise, measure, delta=delta, is_ordered=is_ordered)
        super().check(measure, delta=delta)

    @abstractmethod
    def setting(self, share: Share, terms: ReleaseTerms) -> Any:
        """Return the tree before it is planned, for its candidate.

        Raises:
            Refusal: choices that do not fit each other.
        """

    def predicted(self, question: Planned) -> float:
        return self.candidate.predicted(question.mechanism)

    def condition(self, question: Planned) -> str | None:
        return self.candidate.condition(question.mechanism)
