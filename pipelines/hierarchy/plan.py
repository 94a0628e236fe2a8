"""The plan of a tree over a hierarchy, from its section of the configuration."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from dpcore.hierarchy.question import LEAST_SQUARES, HierarchyQuestion
from dpcore.hierarchy.relative_objective import RelativeObjective
from dpcore.hierarchy.relative_planner import noise_candidates, threshold_candidate
from dpcore.hierarchy.threshold_question import ThresholdQuestion
from dpcore.irregular.plan import IrregularPlan, Sensitivities, sum_sensitivities
from dpcore.irregular.planner import with_best_shares, with_equal_shares
from dpcore.privacy.budget import Budget, Neighbors
from dpcore.thresholds.forest import TreeThresholds
from dpcore.thresholds.plan import ThresholdPlan
from pipelines.hierarchy.section import HierarchyTree


def hierarchy_question(
    tree: HierarchyTree,
    *,
    budget: Budget,
    neighbors: Neighbors,
    confidence: float,
    total_known: bool = True,
) -> HierarchyQuestion:
    """The question that a section asks, with its plan.

    Args:
        tree: the section.
        budget: its share of the release's.
        neighbors: the neighbouring relation.
        confidence: of the intervals.
        total_known: the input gives as many rows on both of two neighbouring data sets.

    Raises:
        ValueError: the budget is too small or too large for it, or its choices do not fit.
    """
    plan, estimation = hierarchy_plan(
        tree, budget=budget, neighbors=neighbors, total_known=total_known
    )
    return HierarchyQuestion(
        name=tree.name,
        domain=tree.domain,
        plan=plan,
        keys=tree.keys,
        confidence=confidence,
        weight=tree.weight,
        weights=tree.weights,
        objective=tree.relative if tree.objective == "relative" else None,
        measure=None if tree.measure is None else tree.measure.measure,
        estimation=estimation,
    )


def threshold_question(
    tree: HierarchyTree,
    *,
    epsilon: Fraction,
    delta: Fraction | None,
    neighbors: Neighbors,
    confidence: float,
) -> ThresholdQuestion:
    """The question that a section asks, by thresholds.

    Args:
        tree: the section, of the objective relative.
        epsilon, delta: its share of the release's.
        neighbors: the neighbouring relation.
        confidence: of the intervals.

    Raises:
        ValueError: the tree is too large, or thresholds cannot rise for the objective.
    """
    if delta is None:
        raise ValueError("delta: the mechanism thresholds needs one beside epsilon")
    shape, objective = tree.domain.tree.shape, tree.relative
    found = _threshold_candidate(
        tree=shape,
        neighbors=neighbors,
        epsilon=epsilon,
        delta=delta,
        objective=objective,
        root_bound=tree.rows_at_most,
    )
    if found is None or not isinstance(found.plan, ThresholdPlan):
        raise ValueError(
            "mechanism: thresholds need a tree of at most 2^17 leaves and an error that is forgiven"
        )
    return ThresholdQuestion(
        name=tree.name,
        domain=tree.domain,
        plan=TreeThresholds(
            tree=shape,
            thresholds=found.plan,
            keyed=tree.keys is not None,
            rows_at_most=tree.rows_at_most,
        ),
        keys=tree.keys,
        confidence=confidence,
        weight=tree.weight,
        objective=objective,
    )


def public_level(tree: HierarchyTree, neighbors: Neighbors, total_known: bool = True) -> int | None:
    """The lowest level that is public: as declared, else the root where no row can be dropped under
    substitute, by the domain or before it, and no key and no value stand beside it.

    Raises:
        ValueError: levels are declared public where the relation or the keys forbid it.
    """
    if tree.public_level is not None:
        if neighbors is not Neighbors.SUBSTITUTE:
            raise ValueError(
                "invariants: under add_remove no count can be public, since neighbouring data sets "
                "differ in it; use substitute"
            )
        if tree.keys is not None:
            raise ValueError("invariants: does not go with by, whose keys a row may change")
        return tree.public_level
    total = (
        neighbors is Neighbors.SUBSTITUTE
        and total_known
        and tree.keys is None
        and tree.measure is None
        and not tree.domain.drops_rows
    )
    # A tree of one leaf would have nothing left to measure.
    return 0 if total and tree.domain.tree.shape.leaves > 1 else None


def hierarchy_plan(
    tree: HierarchyTree, *, budget: Budget, neighbors: Neighbors, total_known: bool = True
) -> tuple[IrregularPlan, str]:
    """How the tree of a section is measured, and the name of its estimation.

    Raises:
        ValueError: as `hierarchy_question`.
    """
    shape, keyed = tree.domain.tree.shape, tree.keys is not None
    public = public_level(tree, neighbors, total_known)
    sensitivities: Sensitivities = ()
    if tree.measure is not None:
        bounds = tree.measure.measure
        sensitivities = sum_sensitivities(
            shape, neighbors, lower=bounds.lower, upper=bounds.upper, keyed=keyed
        )
    amounts = tree.level_budgets
    leaves_only = IrregularPlan.leaves_only(
        tree=shape,
        neighbors=neighbors,
        budget=budget,
        public_level=public,
        keyed=keyed,
        sensitivities=sensitivities,
    )
    if isinstance(amounts, tuple):
        return replace(leaves_only, level_amounts=amounts), tree.estimation or LEAST_SQUARES
    if amounts == "equal" or (tree.mechanism == "tree" and amounts is None):
        return with_equal_shares(leaves_only), tree.estimation or LEAST_SQUARES
    if tree.objective == "relative":
        return _best_of_noise(leaves_only, tree.relative, tree.estimation)
    return with_best_shares(leaves_only, tree.weights), LEAST_SQUARES


# Searches of seconds, which comparing compositions asks for several times.
_threshold_candidate = lru_cache(maxsize=32)(threshold_candidate)


@lru_cache(maxsize=32)
def _best_of_noise(
    plan: IrregularPlan, objective: RelativeObjective, estimation: str | None
) -> tuple[IrregularPlan, str]:
    """The best split for errors relative to counts, and the name of its estimation: the one that is
    asked for, or of all."""
    found = noise_candidates(plan, objective)
    allowed = [each for each in found if estimation in (None, each.estimation)]
    best = min(allowed, key=lambda each: each.predicted)
    assert isinstance(best.plan, IrregularPlan)
    return best.plan, best.estimation
