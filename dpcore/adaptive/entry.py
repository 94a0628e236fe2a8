"""Manifest entry of an adaptive tree: its levels, when a node is split, and the method."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.trees.irregular import IrregularTree


def level_entries(plan: AdaptivePlan) -> list[dict[str, object]]:
    """The budget of each level, the noise of its nodes, and the count from which on they are
    split."""
    measure, levels = plan.budget.measure.value, list[dict[str, object]]()
    for level, (size, amount) in enumerate(
        zip(plan.tree.level_sizes, plan.level_amounts, strict=True)
    ):
        public = plan.public_total and level == 0
        entry: dict[str, object] = {"level": level, "nodes": size, measure: str(amount)}
        law = plan.laws[level]
        unmeasured = "exact: the number of rows is public" if public else "not measured"
        entry["noise"] = unmeasured if law is None else exact_scale(law)
        if level < plan.tree.height and plan.decides(level):
            decision, last = plan.decision_laws[level], plan.last_laws[level]
            entry["split_from"] = plan.thresholds[level]
            entry["noise_of_decision"] = (
                "the measurement's" if decision is None else exact_scale(decision)
            )
            entry["noise_of_second_measurement"] = None if last is None else exact_scale(last)
        levels.append(entry)
    return levels


def in_words(plan: AdaptivePlan) -> str:
    """Describe how the tree is drawn, as a paragraph for a statistician."""
    if plan.decision_part:
        decided = (
            f"a number of its own, with {plan.decision_part} of its level's part of the budget, so "
            "that estimates are unbiased given the tree that came out, and standard errors are "
            "those given this tree"
        )
    else:
        decided = (
            "the measurement itself, which counts and estimates then use too: standard errors are "
            "those of a tree that had been known before, and intervals are a fifth wider, with "
            "which they were measured to hold as often as stated"
        )
    return (
        "An adaptive tree, drawn from the root down. A node that is reached is measured with its "
        "level's part of the budget; if a noisy number is below split_from it is not split, and is "
        "measured again with all that is left of the budget below it; else its children are "
        f"reached. What decides is {decided}. Every path from the root to a leaf of the tree that "
        "came out spends the budget, whatever comes out. The column ended of the nodes says which "
        "nodes were split (null), which were not (their own level), and which lie inside one that "
        "was not (its level): these share its count evenly and have no standard error."
    )


def named_level_entries(plan: AdaptivePlan, names: Sequence[str]) -> list[dict[str, object]]:
    """The budget of each level of an adaptive hierarchy, the noise of its nodes, and the count from
    which on they are split.

    ``chain`` is as in a hierarchy that splits every node: how many nodes above share a node's
    measurement.
    """
    levels: list[dict[str, object]] = []
    for level, name in enumerate(names):
        noise = [
            {"chain": chain, **exact_scale(law)}
            for chain in _chains(plan, level)
            if (law := plan.law(level, chain)) is not None
        ]
        public = level == 0 and plan.public_total
        said: dict[str, object] = {
            "level": level,
            "name": name,
            "nodes": plan.tree.level_sizes[level],
            plan.budget.measure.value: str(plan.level_amounts[level]),
            "noise": noise or ("none: public and exact" if public else "not measured"),
        }
        if plan.decides(level):
            last, decision = plan.last_law(level), plan.decision_law(level)
            said["split_from"] = plan.thresholds[level]
            said["decided_by"] = "the measurement" if decision is None else exact_scale(decision)
            said["measured_again"] = None if last is None else exact_scale(last)
        levels.append(said)
    return levels


def _chains(plan: AdaptivePlan, level: int) -> list[int]:
    """The lengths of the chains above the nodes of a level that are measured when reached."""
    tree = plan.tree
    assert isinstance(tree, IrregularTree)
    if level == tree.height > 0:
        # Leaves with one parent are alike.
        lengths = np.where(tree.fanouts[-1] == 1, tree.chains[-1] + 1, 0)
    else:
        passed = np.broadcast_to(plan.passed_on(level), (tree.level_sizes[level],))
        lengths = plan.chains(level)[~passed]
    result: list[int] = np.unique(lengths).tolist()
    return result
