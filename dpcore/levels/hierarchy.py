"""The workload of a hierarchy, and the planners of its levels and of thresholds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.irregular.plan import IrregularPlan, Sensitivities, sum_sensitivities
from dptrees.dpcore.irregular.planner import NodeWeights, with_best_shares, with_equal_shares
from dptrees.dpcore.levels.irregular import (
    FEWEST,
    LEAST_SQUARES,
    NONE,
    TOP_DOWN,
    IrregularMechanism,
    ThresholdMechanism,
)
from dptrees.dpcore.levels.mechanism_choice import MechanismChoice
from dptrees.dpcore.levels.relative_errors import (
    RelativeObjective,
    noise_candidates,
    threshold_candidate,
)
from dptrees.dpcore.levels.workload import COUNTED, Planner, TreeWorkload
from dptrees.dpcore.mechanisms import ADAPTIVE, TREE, find_planner
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.dpcore.privacy.sensitivity import GroupPrivacy
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Measure
from dptrees.dpcore.questions.planning import Noise, Setting, Way
from dptrees.dpcore.rows.policies import MeasureColumn
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.thresholds.forest import TreeThresholds
from dptrees.dpcore.thresholds.plan import ThresholdPlan


@dataclass(frozen=True, kw_only=True)
class HierarchyWorkload(TreeWorkload):
    """The counts, or bounded sums, of all nodes of a public universe.

    Args:
        domain: the universe, and how rows fall into its leaves.
        measure: the column that is summed, None where rows are counted.
        public_level: the lowest level whose counts are declared public, or None.
        weights: what errors in rows are worth, by level and node; None: 1 for each level.
        objective: of errors relative to counts, which goes before the weights; or None.
        estimation: `LEAST_SQUARES` or `NONE`; None: the better one.
        consistency: `TOP_DOWN` or `FEWEST`; None: the latter, where rows are counted and levels are
            measured whole.
        reads_counts: whether counts of an adaptive tree are read, and not estimates.
        rows_at_most: a public bound for the rows of a tree, for thresholds.
        may_use_thresholds: they are taken where the tree has a delta of its own.

    Raises:
        Refusal: counts as they were measured, with the best budgets of least squares.
    """

    domain: HierarchyDomain
    measure: MeasureColumn | None = None
    public_level: int | None = None
    weights: NodeWeights | None = None
    objective: RelativeObjective | None = None
    estimation: str | None = None
    consistency: str | None = None
    reads_counts: bool = False
    rows_at_most: int = MAX_COUNT
    may_use_thresholds: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimation == NONE and self.level_budgets is None and self.mechanism != TREE:
            raise Refusal("estimation", "none goes with the mechanism tree")

    @property
    def planner(self) -> Planner[Any]:
        planner: Planner[Any] = find_planner("hierarchy", self.mechanism)
        return planner

    @property
    def error_unit(self) -> str | None:
        unit = self.planner.error_unit(self)
        if unit != COUNTED:
            return unit
        return "rows" if self.measure is None else f"sums of {self.measure.column}"

    def error_in_rows(self, question: Any) -> float:
        """A sum's error in rows of the largest value."""
        if self.measure is None or self.planner.error_unit(self) != COUNTED:
            return super().error_in_rows(question)
        largest = max(abs(self.measure.lower), abs(self.measure.upper), 1)
        return self.predicted(question) / largest

    def whole_budget(self, setting: Setting) -> IrregularPlan:
        """Return the shape and what measuring it may cost, with a budget that is not split yet."""
        shape, keyed = self.domain.tree.shape, self.keys is not None
        sensitivities: Sensitivities = ()
        if (sums := self.measure) is not None:
            sensitivities = sum_sensitivities(
                shape, setting.unit, lower=sums.lower, upper=sums.upper, keyed=keyed
            )
        return IrregularPlan(
            tree=shape,
            unit=setting.unit,
            budget=setting.budget,
            public_level=self._public_level(setting),
            keyed=keyed,
            sensitivities=sensitivities,
        )

    def measured_by(self, mechanism: Any, setting: Setting) -> HierarchyQuestion[Any]:
        return HierarchyQuestion(
            name=self.name,
            domain=self.domain,
            mechanism=mechanism,
            keys=self.keys,
            confidence=setting.confidence,
            weight=self.weight,
            measure=self.measure,
        )

    def _public_level(self, setting: Setting) -> int | None:
        """The lowest level that is public: as declared, else the root where no row can be dropped
        under substitute, by the domain or before it, and no key and no value accompany it.

        Raises:
            Refusal: levels are declared public where the relation or the keys forbid it.
        """
        if self.public_level is not None:
            if not setting.unit.is_row:
                raise Refusal(
                    "invariants", "need a unit that is the row: rows of other units may be left out"
                )
            if not setting.unit.substitutes:
                raise Refusal(
                    "invariants",
                    "under add_remove no count can be public, since neighboring data sets differ "
                    "in it; use substitute",
                )
            if self.keys is not None:
                raise Refusal("invariants", "not possible with group_by: a row may change its key")
            return self.public_level
        total = (
            setting.unit == SUBSTITUTE_ROW
            and not setting.drops_rows
            and self.keys is None
            and self.measure is None
            and not self.domain.drops_rows
        )
        # A tree of one leaf would have nothing left to measure.
        return 0 if total and self.domain.tree.shape.leaves > 1 else None


# Searches of seconds. Comparing compositions repeats the searches for relative errors; the choice
# of an adaptive tree repeats the last split.
best_split = lru_cache(maxsize=1)(with_best_shares)
_threshold_candidate = lru_cache(maxsize=32)(threshold_candidate)


class Thresholds(Planner[HierarchyWorkload]):
    """Counts between thresholds, of a tree of any shape."""

    makes = ThresholdMechanism

    def ways(self, workload: HierarchyWorkload) -> frozenset[Way]:
        return frozenset({Way.OWN})

    def error_unit(self, workload: HierarchyWorkload) -> str:
        return _relative(workload).unit

    def check(self, workload: HierarchyWorkload, measure: Measure, *, delta: bool) -> None:
        if delta and workload.noise is not Noise.BEST:
            raise Refusal(
                "noise",
                "does not go with the mechanism thresholds, whose noise is truncated Laplace noise",
            )

    def mechanism(self, workload: HierarchyWorkload, setting: Setting) -> ThresholdMechanism:
        """
        Raises:
            Refusal: there is no delta, the tree is too large, or thresholds cannot rise for the
                objective.
        """
        if setting.delta is None:
            raise Refusal("delta", "the mechanism thresholds needs one beside epsilon")
        own, most = workload.whole_budget(setting), workload.rows_at_most
        group = GroupPrivacy(epsilon=own.budget.amount, delta=setting.delta, unit=own.unit)
        objective = _relative(workload)
        result = _threshold_candidate(own.tree, group, objective, root_bound=most)
        if result is None or not isinstance(result.plan, ThresholdPlan):
            raise Refusal(
                "mechanism",
                "thresholds need a tree of at most 2^17 leaves and an error that is forgiven",
            )
        plan = TreeThresholds(
            tree=own.tree, thresholds=result.plan, keyed=own.keyed, rows_at_most=most
        )
        return ThresholdMechanism(plan=plan, objective=objective)

    def predicted(self, workload: HierarchyWorkload, mechanism: ThresholdMechanism) -> float:
        return mechanism.predicted_error


def _relative(workload: HierarchyWorkload) -> RelativeObjective:
    assert workload.objective is not None
    return workload.objective


class IrregularLevels(Planner[HierarchyWorkload]):
    """Noise on the levels of a tree of any shape; or thresholds, where they may be used."""

    def ways(self, workload: HierarchyWorkload) -> frozenset[Way]:
        if not workload.may_use_thresholds:
            return super().ways(workload)
        return Noise.BEST.ways | Thresholds().ways(workload)

    def error_unit(self, workload: HierarchyWorkload) -> str:
        return COUNTED if workload.objective is None else workload.objective.unit

    def mechanism(
        self, workload: HierarchyWorkload, setting: Setting
    ) -> IrregularMechanism | ThresholdMechanism:
        if setting.delta is not None and workload.may_use_thresholds:
            return Thresholds().mechanism(workload, setting)
        plan, estimation = _split(workload, workload.whole_budget(setting))
        default = FEWEST if workload.measure is None else TOP_DOWN
        return IrregularMechanism(
            plan=plan,
            weights=workload.weights,
            objective=workload.objective,
            estimation=estimation,
            consistency=workload.consistency or default,
        )

    def predicted(
        self, workload: HierarchyWorkload, mechanism: IrregularMechanism | ThresholdMechanism
    ) -> float:
        return mechanism.predicted_error


class HierarchyChoice(MechanismChoice[HierarchyWorkload]):
    """A hierarchy's choice: an adaptive tree, where rows are guessed and repaired top down."""

    def others(self, workload: HierarchyWorkload) -> tuple[HierarchyWorkload, ...]:
        may_adapt = workload.guessed_rows is not None and workload.consistency != FEWEST
        return (replace(workload, mechanism=ADAPTIVE),) if may_adapt else ()

    def ways(self, workload: HierarchyWorkload) -> frozenset[Way]:
        whole = self.levels(workload)
        return super().ways(workload) if self.others(workload) else whole.planner.ways(whole)


def _split(workload: HierarchyWorkload, plan: IrregularPlan) -> tuple[IrregularPlan, str]:
    """The plan with its budget split, and the name of its estimation."""
    amounts, estimation = workload.level_budgets, workload.estimation or LEAST_SQUARES
    if isinstance(amounts, tuple):
        return replace(plan, level_amounts=amounts), estimation
    if amounts == "equal" or (amounts is None and workload.mechanism == TREE):
        return with_equal_shares(plan), estimation
    if workload.objective is not None:
        return _best_of_noise(plan, workload.objective, workload.estimation)
    return best_split(plan, workload.weights), estimation


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
