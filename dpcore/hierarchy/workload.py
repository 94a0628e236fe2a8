"""The workload of a tree over a hierarchy, and its plan once there is a budget.

One of three estimations: least squares, counts as they were measured, or counts between thresholds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from dpcore.arithmetic.sums import dot
from dpcore.hierarchy.domain import HierarchyDomain
from dpcore.hierarchy.question import HierarchyQuestion
from dpcore.irregular.as_measured import AsMeasuredForest
from dpcore.irregular.node_weights import NodeWeights
from dpcore.irregular.plan import IrregularPlan, Sensitivities, sum_sensitivities
from dpcore.irregular.planner import predicted_node_rmse, with_best_shares, with_equal_shares
from dpcore.levels.irregular import LEAST_SQUARES, NONE, TOP_DOWN, IrregularMechanism
from dpcore.levels.relative_objective import RelativeObjective
from dpcore.levels.relative_planner import noise_candidates, threshold_candidate
from dpcore.levels.thresholds import ThresholdMechanism
from dpcore.noise.source import MAX_COUNT
from dpcore.privacy.budget import Budget, Measure
from dpcore.privacy.group import GroupPrivacy
from dpcore.privacy.unit import SUBSTITUTE_ROW
from dpcore.questions.workload import Noise, ReleaseTerms, Share, Way, Workload
from dpcore.refusal import Refusal
from dpcore.rows.sums import MeasureColumn
from dpcore.thresholds.forest import TreeThresholds
from dpcore.thresholds.plan import ThresholdPlan

# The mechanisms by their names: the best one, noise on every level, or thresholds.
PLANNED, TREE, THRESHOLDS = "planned", "tree", "thresholds"


@dataclass(frozen=True, kw_only=True)
class HierarchyWorkload(
    Workload[HierarchyQuestion[IrregularMechanism] | HierarchyQuestion[ThresholdMechanism]]
):
    """The counts, or bounded sums, of all nodes of a public universe.

    Args:
        domain: the universe, and how rows fall into its leaves.
        weights: what errors in rows are worth, by level and node; None: 1 for each level.
        objective: of errors relative to counts, which goes before the weights; or None.
        measure: the column that is summed, None where rows are counted.
        mechanism: "planned", "tree" or, for an objective, "thresholds".
        estimation: "least_squares" or "none"; None: the better one.
        consistency: "top_down" or "smallest_first", of counts that are not between thresholds.
        level_budgets: "equal", or one a level; None: the best ones.
        public_level: the lowest level whose counts are declared public, or None.
        rows_at_most: a public bound for the rows of a tree, which thresholds need.
    """

    domain: HierarchyDomain
    weights: NodeWeights | None = None
    objective: RelativeObjective | None = None
    measure: MeasureColumn | None = None
    mechanism: str = PLANNED
    estimation: str | None = None
    consistency: str = TOP_DOWN
    level_budgets: Literal["equal"] | tuple[Fraction, ...] | None = None
    public_level: int | None = None
    rows_at_most: int = MAX_COUNT

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mechanism not in (PLANNED, TREE, THRESHOLDS):
            raise Refusal("mechanism", f"there is none of the name {self.mechanism!r}")
        if self.mechanism == THRESHOLDS and self.objective is None:
            raise Refusal("mechanism", "thresholds go with an objective of relative errors")
        if self.mechanism == PLANNED and self.estimation == NONE:
            raise Refusal("estimation", "none goes with the mechanism tree")

    @property
    def ways(self) -> frozenset[Way]:
        if self.mechanism == THRESHOLDS:
            return frozenset({Way.OWN})
        open_ = (
            self.objective is not None
            and self.mechanism == PLANNED
            and self.measure is None
            and self.public_level is None
            and self.level_budgets is None
            and self.estimation is None
            and self.consistency == TOP_DOWN
            and self.noise is Noise.BEST
        )
        return self.noise.ways | {Way.OWN} if open_ else self.noise.ways

    @property
    def has_fixed_amounts(self) -> bool:
        return isinstance(self.level_budgets, tuple)

    @property
    def error_unit(self) -> str:
        if self.objective is not None:
            return self.objective.unit
        return "rows" if self.measure is None else f"sums of {self.measure.column}"

    def check(self, measure: Measure, *, delta: bool) -> None:
        super().check(measure, delta=delta)
        if delta and self.mechanism == THRESHOLDS and self.noise is not Noise.BEST:
            raise Refusal(
                "noise",
                "does not go with the mechanism thresholds, whose noise is truncated Laplace noise",
            )

    def planned(
        self, share: Share, terms: ReleaseTerms
    ) -> HierarchyQuestion[IrregularMechanism] | HierarchyQuestion[ThresholdMechanism]:
        if share.delta is not None or self.mechanism == THRESHOLDS:
            return self._by_thresholds(share, terms)
        plan, estimation = self._measured(share.budget, terms)
        return HierarchyQuestion(
            name=self.name,
            domain=self.domain,
            mechanism=IrregularMechanism(
                plan=plan,
                weights=self.weights,
                objective=self.objective,
                estimation=estimation,
                consistency=self.consistency,
            ),
            keys=self.keys,
            confidence=terms.confidence,
            weight=self.weight,
            measure=self.measure,
        )

    def predicted(
        self,
        question: HierarchyQuestion[IrregularMechanism] | HierarchyQuestion[ThresholdMechanism],
    ) -> float:
        if isinstance(question.mechanism, ThresholdMechanism):
            return predicted_threshold_error(question)
        return predicted_hierarchy_error(question)

    def _by_thresholds(
        self, share: Share, terms: ReleaseTerms
    ) -> HierarchyQuestion[ThresholdMechanism]:
        """
        Raises:
            Refusal: there is no delta, the tree is too large, or thresholds cannot rise for the
                objective.
        """
        if share.delta is None:
            raise Refusal("delta", "the mechanism thresholds needs one beside epsilon")
        assert self.objective is not None
        candidate = _threshold_candidate(
            self.domain.tree.shape,
            GroupPrivacy(epsilon=share.budget.amount, delta=share.delta, unit=terms.unit),
            self.objective,
            root_bound=self.rows_at_most,
        )
        if candidate is None or not isinstance(candidate.plan, ThresholdPlan):
            raise Refusal(
                "mechanism",
                "thresholds need a tree of at most 2^17 leaves and an error that is forgiven",
            )
        return HierarchyQuestion(
            name=self.name,
            domain=self.domain,
            mechanism=ThresholdMechanism(
                plan=TreeThresholds(
                    tree=self.domain.tree.shape,
                    thresholds=candidate.plan,
                    keyed=self.keys is not None,
                    rows_at_most=self.rows_at_most,
                ),
                objective=self.objective,
            ),
            keys=self.keys,
            confidence=terms.confidence,
            weight=self.weight,
        )

    def _public_level(self, terms: ReleaseTerms) -> int | None:
        """The lowest level that is public: as declared, else the root where no row can be dropped
        under substitute, by the domain or before it, and no key and no value accompany it.

        Raises:
            Refusal: levels are declared public where the relation or the keys forbid it.
        """
        if self.public_level is not None:
            if not terms.unit.is_row:
                raise Refusal(
                    "invariants", "need a unit that is the row: rows of other units may be left out"
                )
            if not terms.unit.substitutes:
                raise Refusal(
                    "invariants",
                    "under add_remove no count can be public, since neighbouring data sets differ "
                    "in it; use substitute",
                )
            if self.keys is not None:
                raise Refusal("invariants", "does not go with by, whose keys a row may change")
            return self.public_level
        total = (
            terms.unit == SUBSTITUTE_ROW
            and not terms.drops_rows
            and self.keys is None
            and self.measure is None
            and not self.domain.drops_rows
        )
        # A tree of one leaf would have nothing left to measure.
        return 0 if total and self.domain.tree.shape.leaves > 1 else None

    def _measured(self, budget: Budget, terms: ReleaseTerms) -> tuple[IrregularPlan, str]:
        """The mechanism that measures the tree, and the name of its estimation."""
        shape, keyed = self.domain.tree.shape, self.keys is not None
        sensitivities: Sensitivities = ()
        if self.measure is not None:
            sensitivities = sum_sensitivities(
                shape,
                terms.unit,
                lower=self.measure.lower,
                upper=self.measure.upper,
                keyed=keyed,
            )
        leaves_only = IrregularPlan(
            tree=shape,
            unit=terms.unit,
            budget=budget,
            public_level=self._public_level(terms),
            keyed=keyed,
            sensitivities=sensitivities,
        )
        amounts, estimation = self.level_budgets, self.estimation or LEAST_SQUARES
        if isinstance(amounts, tuple):
            return replace(leaves_only, level_amounts=amounts), estimation
        if amounts == "equal" or (self.mechanism == TREE and amounts is None):
            return with_equal_shares(leaves_only), estimation
        if self.objective is not None:
            return _best_of_noise(leaves_only, self.objective, self.estimation)
        return with_best_shares(leaves_only, self.weights), LEAST_SQUARES


def predicted_hierarchy_error(
    question: HierarchyQuestion[IrregularMechanism],
) -> float:
    """Predicted error that a hierarchy is planned for: the weighted root mean square error in rows,
    or the objective of errors relative to counts."""
    if question.mechanism.objective is not None:
        objective = question.mechanism.objective
        least_squares = question.mechanism.estimation == LEAST_SQUARES
        of = objective.predict_estimates if least_squares else objective.predict_measurements
        return of(question.mechanism.plan)
    plan, forest = question.mechanism.plan, question.forest
    weights = question.mechanism.weights or NodeWeights(levels=(1.0,) * (plan.tree.height + 1))
    if not isinstance(forest, AsMeasuredForest):
        return predicted_node_rmse(plan, weights)
    if plan.tree.height == 0:
        return math.sqrt(forest.node_variances[0][0])
    above, leaves = weights.on_nodes(plan.tree)
    parts = zip((*above, leaves), forest.node_variances, strict=True)
    return math.sqrt(math.fsum(dot(own, each) for own, each in parts) / weights.total)


def predicted_threshold_error(
    question: HierarchyQuestion[ThresholdMechanism],
) -> float:
    """The bound of the objective of a hierarchy that is measured by thresholds."""
    plan = question.mechanism.plan
    return question.mechanism.objective.bound_thresholds(plan.errors, plan.tree.height)


# Searches of seconds, which comparing compositions needs several times.
_threshold_candidate = lru_cache(maxsize=32)(threshold_candidate)


@lru_cache(maxsize=32)
def _best_of_noise(
    plan: IrregularPlan, objective: RelativeObjective, estimation: str | None
) -> tuple[IrregularPlan, str]:
    """The best split for errors relative to counts, and the name of its estimation: the one that is
    requested, or of all."""
    candidates = noise_candidates(plan, objective)
    allowed = [each for each in candidates if estimation in (None, each.estimation)]
    best = min(allowed, key=lambda each: each.predicted)
    assert isinstance(best.plan, IrregularPlan)
    return best.plan, best.estimation
