"""A candidate: a mechanism that could measure a tree, before there is a budget.

The workload of a tree of known leaves holds one candidate, which makes a mechanism once the share
is known (`dpcore.ordered.workload`, `dpcore.hierarchy.workload`); where several are open,
`dpcore.chooser` chooses. A new mechanism implements `Candidate` in its own package, as
`dpcore.adaptive.candidate` and `dpcore.factorised.candidate` do; here are whole levels of uniform
trees and of trees of any shape, and thresholds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from dpcore.irregular.node_weights import NodeWeights
from dpcore.irregular.plan import IrregularPlan
from dpcore.irregular.planner import with_best_shares, with_equal_shares
from dpcore.levels.irregular import LEAST_SQUARES, NONE, TOP_DOWN, IrregularMechanism
from dpcore.levels.planner import plan_mechanism, predicted_cdf_rmse, predicted_error
from dpcore.levels.relative_objective import RelativeObjective
from dpcore.levels.relative_planner import noise_candidates, threshold_candidate
from dpcore.levels.thresholds import ThresholdMechanism
from dpcore.levels.uniform import UniformMechanism
from dpcore.noise.source import MAX_COUNT
from dpcore.privacy.budget import Measure
from dpcore.privacy.group import GroupPrivacy
from dpcore.questions.mechanism import Mechanism
from dpcore.questions.tree_question import TreeQuestion
from dpcore.questions.workload import Noise, ReleaseTerms, Share, Way, Workload
from dpcore.refusal import Refusal
from dpcore.repair.error import assumed_rows
from dpcore.repair.planner import plan_for_counts
from dpcore.thresholds.forest import TreeThresholds
from dpcore.thresholds.plan import ThresholdPlan
from dpcore.uniform.objectives import CDF, Objective
from dpcore.uniform.plan import Consistency, Estimator
from dpcore.uniform.setting import TreeSetting

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

    >>> from dpcore.privacy.budget import Budget
    >>> from dpcore.privacy.unit import SUBSTITUTE_ROW
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


class IrregularSetting(NamedTuple):
    """A tree of any shape before it is planned.

    Attributes:
        plan: the shape, and what measuring it may cost; how its budget is split does not matter.
        delta: beside an epsilon that is the tree's own; None where it spends none.
    """

    plan: IrregularPlan
    delta: Fraction | None = None


# Searches of seconds. Comparing compositions repeats the searches for relative errors; the choice
# of an adaptive tree repeats the last split.
best_split = lru_cache(maxsize=1)(with_best_shares)
_threshold_candidate = lru_cache(maxsize=32)(threshold_candidate)


@dataclass(frozen=True, kw_only=True)
class Thresholds(Candidate[ThresholdMechanism]):
    """Counts between thresholds, of a tree of any shape.

    Args:
        objective: of errors relative to counts.
        rows_at_most: a public bound for the rows of a tree.
    """

    objective: RelativeObjective
    rows_at_most: int = MAX_COUNT

    @property
    def ways(self) -> frozenset[Way]:
        return frozenset({Way.OWN})

    @property
    def error_unit(self) -> str:
        return self.objective.unit

    def check(
        self, cells: int, noise: Noise, measure: Measure, *, delta: bool, is_ordered: bool
    ) -> None:
        if delta and noise is not Noise.BEST:
            raise Refusal(
                "noise",
                "does not go with the mechanism thresholds, whose noise is truncated Laplace noise",
            )

    def mechanism(self, setting: IrregularSetting) -> ThresholdMechanism:
        """
        Raises:
            Refusal: there is no delta, the tree is too large, or thresholds cannot rise for the
                objective.
        """
        if setting.delta is None:
            raise Refusal("delta", "the mechanism thresholds needs one beside epsilon")
        own, most = setting.plan, self.rows_at_most
        group = GroupPrivacy(epsilon=own.budget.amount, delta=setting.delta, unit=own.unit)
        found = _threshold_candidate(own.tree, group, self.objective, root_bound=most)
        if found is None or not isinstance(found.plan, ThresholdPlan):
            raise Refusal(
                "mechanism",
                "thresholds need a tree of at most 2^17 leaves and an error that is forgiven",
            )
        plan = TreeThresholds(
            tree=own.tree, thresholds=found.plan, keyed=own.keyed, rows_at_most=most
        )
        return ThresholdMechanism(plan=plan, objective=self.objective)

    def predicted(self, mechanism: ThresholdMechanism) -> float:
        return mechanism.predicted_error


@dataclass(frozen=True, kw_only=True)
class IrregularLevels(Candidate[Any]):
    """Noise on the levels of a tree of any shape; or thresholds, where that is open.

    Args:
        weights: what errors in rows are worth, by level and node; None: 1 for each level.
        objective: of errors relative to counts, which goes before the weights; or None.
        estimation: "least_squares" or "none"; None: the better one.
        consistency: "top_down" or "smallest_first".
        level_budgets: "equal", or one a level; None: the best ones.
        thresholds: are taken where the tree has a delta of its own; None: it has none.

    Raises:
        Refusal: counts as they were measured, with the best budgets of least squares.
    """

    weights: NodeWeights | None = None
    objective: RelativeObjective | None = None
    estimation: str | None = None
    consistency: str = TOP_DOWN
    level_budgets: Literal["equal"] | tuple[Fraction, ...] | None = None
    thresholds: Thresholds | None = None

    def __post_init__(self) -> None:
        if self.estimation == NONE and self.level_budgets is None:
            raise Refusal("estimation", "none goes with the mechanism tree")

    @property
    def ways(self) -> frozenset[Way] | None:
        return None if self.thresholds is None else Noise.BEST.ways | self.thresholds.ways

    @property
    def has_fixed_amounts(self) -> bool:
        return isinstance(self.level_budgets, tuple)

    @property
    def error_unit(self) -> str:
        return COUNTED if self.objective is None else self.objective.unit

    def mechanism(self, setting: IrregularSetting) -> IrregularMechanism | ThresholdMechanism:
        if setting.delta is not None and self.thresholds is not None:
            return self.thresholds.mechanism(setting)
        plan, estimation = self._split(setting.plan)
        return IrregularMechanism(
            plan=plan,
            weights=self.weights,
            objective=self.objective,
            estimation=estimation,
            consistency=self.consistency,
        )

    def predicted(self, mechanism: IrregularMechanism | ThresholdMechanism) -> float:
        return mechanism.predicted_error

    def _split(self, plan: IrregularPlan) -> tuple[IrregularPlan, str]:
        """The plan with its budget split, and the name of its estimation."""
        amounts, estimation = self.level_budgets, self.estimation or LEAST_SQUARES
        if isinstance(amounts, tuple):
            return replace(plan, level_amounts=amounts), estimation
        if amounts == "equal":
            return with_equal_shares(plan), estimation
        if self.objective is not None:
            return _best_of_noise(plan, self.objective, self.estimation)
        return best_split(plan, self.weights), estimation


@lru_cache(maxsize=32)
def _best_of_noise(
    plan: IrregularPlan, objective: RelativeObjective, estimation: str | None
) -> tuple[IrregularPlan, str]:
    """The best split for errors relative to counts, and the name of its estimation: the one that is
    requested, or of all."""
    found = noise_candidates(plan, objective)
    allowed = (each for each in found if estimation in (None, each.estimation))
    best = min(allowed, key=lambda each: each.predicted)
    assert isinstance(best.plan, IrregularPlan)
    return best.plan, best.estimation


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
