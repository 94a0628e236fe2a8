"""Candidates for trees of any shape: noise on their levels, and counts between thresholds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from dptrees.dpcore.irregular.node_weights import NodeWeights
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import with_best_shares, with_equal_shares
from dptrees.dpcore.levels.candidate import COUNTED, Candidate
from dptrees.dpcore.levels.irregular import LEAST_SQUARES, NONE, TOP_DOWN, IrregularMechanism
from dptrees.dpcore.levels.relative_objective import RelativeObjective
from dptrees.dpcore.levels.relative_planner import noise_candidates, threshold_candidate
from dptrees.dpcore.levels.thresholds import ThresholdMechanism
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.privacy.group import GroupPrivacy
from dptrees.dpcore.questions.workload import Noise, Way
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.thresholds.forest import TreeThresholds
from dptrees.dpcore.thresholds.plan import ThresholdPlan


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
