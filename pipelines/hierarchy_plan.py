"""The plan of a tree over a hierarchy, from its section of the configuration."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from dpcore.hierarchy_question import HierarchyQuestion
from dpcore.irregular_plan import IrregularPlan, Sensitivities, sum_sensitivities
from dpcore.irregular_planner import plan_irregular, with_equal_shares
from dpcore.privacy import Budget, Neighbors
from pipelines.hierarchy_tree import HierarchyTree


def hierarchy_question(
    tree: HierarchyTree, *, budget: Budget, neighbors: Neighbors, confidence: float
) -> HierarchyQuestion:
    """The question that a section asks, with its plan.

    Args:
        tree: the section.
        budget: its share of the release's.
        neighbors: the neighbouring relation.
        confidence: of the intervals.

    Raises:
        ValueError: the budget is too small or too large for it, or its choices do not fit.
    """
    return HierarchyQuestion(
        name=tree.name,
        domain=tree.domain,
        plan=hierarchy_plan(tree, budget=budget, neighbors=neighbors),
        keys=tree.keys,
        confidence=confidence,
        weight=tree.weight,
        weights=tree.weights,
        measure=None if tree.measure is None else tree.measure.measure,
    )


def public_level(tree: HierarchyTree, neighbors: Neighbors) -> int | None:
    """The lowest level that is public: as declared, else the root where no row can be dropped under
    substitute, no key and no value stand beside it.

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
        and tree.keys is None
        and tree.measure is None
        and not tree.domain.drops_rows
    )
    # A tree of one leaf would have nothing left to measure.
    return 0 if total and tree.domain.tree.shape.leaves > 1 else None


def hierarchy_plan(tree: HierarchyTree, *, budget: Budget, neighbors: Neighbors) -> IrregularPlan:
    """How the tree of a section is measured.

    Raises:
        ValueError: as `hierarchy_question`.
    """
    shape, keyed = tree.domain.tree.shape, tree.keys is not None
    public = public_level(tree, neighbors)
    sensitivities: Sensitivities = ()
    if tree.measure is not None:
        bounds = tree.measure.measure
        sensitivities = sum_sensitivities(
            shape, neighbors, lower=bounds.lower, upper=bounds.upper, keyed=keyed
        )
    amounts = tree.level_budgets
    leaves_only = IrregularPlan(
        tree=shape,
        neighbors=neighbors,
        budget=budget,
        level_amounts=(*[Fraction(0)] * shape.height, budget.amount),
        public_level=public,
        keyed=keyed,
        sensitivities=sensitivities,
    )
    if isinstance(amounts, tuple):
        return replace(leaves_only, level_amounts=amounts)
    if amounts == "equal":
        return with_equal_shares(leaves_only)
    return plan_irregular(
        tree=shape,
        budget=budget,
        neighbors=neighbors,
        weights=tree.weights,
        public_level=public,
        keyed=keyed,
        sensitivities=sensitivities,
    )
