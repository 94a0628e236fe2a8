"""Budget shares and thresholds of adaptive hierarchies, and their predicted errors.

Splitting a node adds the noise of its n children, of variance s each, so it is not split where
its noisy count is below a multiple of sqrt(n s). The multiples were chosen by measurement
(docs/census.md). With a public guess of the rows, plans are compared by a model that spreads each
level's rows evenly over its nodes: a node of c rows whose estimate has variance v is off by v,
where counts are read by c^2 + c sqrt(v) at most, and below a node that is not split by its own
count. No data is read. Source: derived here; compared with simulated releases in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.planner import AdaptivePlanner, guessed_float
from dptrees.dpcore.arithmetic.elementary import exp, log
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.irregular.plan import IrregularPlan, NodeVariances
from dptrees.dpcore.irregular.planner import NodeWeights, predicted_level_rmse
from dptrees.dpcore.levels.hierarchy import HierarchyWorkload, best_split
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.trees.shapes import IrregularTree, Shape

# A node is split where its noisy count is at least so many times the error that splitting adds.
_MULTIPLES = {Measure.EPSILON: 2.0, Measure.RHO: 1.5}
# Of the budget, what levels that decide are given at least; the first where there is no guess.
_LEAST_SHARES = (0.1, 0.05, 0.15)
# Of a level's amount, what only decides where estimates are read.
_DECISION_PART = Fraction(1, 5)
# A tree that splits every node is left for one that the model calls so much better.
_WORTH = 0.97


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan and the model's errors.

    Attributes:
        plan: of the adaptive tree.
        level_errors: (h + 1,) the predicted root mean square errors of each level's nodes, in rows,
            for the guess; where there is none, as if every node were split.
        ends: the level at which the model expects nodes to end, the leaves' where there is no
            guess.
    """

    plan: AdaptivePlan
    level_errors: tuple[float, ...]
    ends: int


def plan_adaptive_hierarchy(
    split: IrregularPlan,
    weights: NodeWeights | None,
    *,
    counts: bool,
    guessed_rows: float | None,
) -> Planned:
    """The best shares and thresholds for an adaptive tree over a hierarchy.

    Args:
        split: the best plan that splits every node; a public level is the root.
        weights: what errors are worth by level; None: 1 for each level.
        counts: counts are read, so measurements may decide; else a part of each level's amount
            only decides, and estimates stay unbiased.
        guessed_rows: a public guess of the rows of a tree (of each key), or None.

    Returns:
        Of the plans that were tried the one whose levels' errors have the smallest weighted
        geometric mean: a change that makes one level better by a tenth may make another worse by
        as much.
    """
    levels = _level_weights(split.tree, weights)
    results = [
        modelled_errors(
            _with_thresholds(split, amounts, counts=counts), guessed_rows, counts=counts
        )
        for amounts in _candidates(split, guessed=guessed_rows is not None)
    ]
    return min(results, key=lambda each: _geometric_mean(each.level_errors, levels))


def is_worth_it(
    found: Planned,
    split: IrregularPlan,
    weights: NodeWeights | None,
    *,
    counts: bool,
    guessed_rows: float,
) -> bool:
    """Whether an adaptive tree is expected to be better than one that splits every node.

    Args:
        found: the adaptive tree, planned for the guess.
        split: the plan that splits every node.
        weights: as for `plan_adaptive_hierarchy`.
        counts: likewise.
        guessed_rows: likewise.
    """
    levels = _level_weights(split.tree, weights)
    own = _repaired(
        np.square(predicted_level_rmse(split)).tolist(),
        _even_counts(split.tree, guessed_rows),
        counts,
    )
    is_better = _geometric_mean(found.level_errors, levels) < _WORTH * _geometric_mean(own, levels)
    return found.ends < split.tree.height and is_better


def modelled_errors(plan: AdaptivePlan, guessed_rows: float | None, *, counts: bool) -> Planned:
    """The errors of a plan by the model.

    Args:
        plan: any over an irregular tree.
        guessed_rows: a public guess of the rows of a tree, or None.
        counts: of counts, or of estimates.
    """
    height = plan.tree.height
    if guessed_rows is None:
        errors = tuple(math.sqrt(each) for each in _ended_variances(plan, height))
        return Planned(plan=plan, level_errors=errors, ends=height)
    rows = _even_counts(plan.tree, guessed_rows)
    sparse = [
        level
        for level, threshold in enumerate(plan.thresholds)
        if plan.decides(level) and rows[level] < threshold
    ]
    squares = _squares(plan, height, rows, counts)
    for level in reversed(sparse):
        # Some are split although their rows are few, as the noise of their decisions has it.
        part = _part_above(plan, level, plan.thresholds[level] - rows[level])
        squares = (1 - part) * _squares(plan, level, rows, counts) + part * squares
    errors = tuple(np.sqrt(squares).tolist())
    return Planned(plan=plan, level_errors=errors, ends=sparse[0] if sparse else height)


def level_errors(mechanism: AdaptiveMechanism) -> tuple[float, ...]:
    """Return (h + 1,) the errors that the planner's model predicts: `Planned.level_errors`."""
    plan, guess = mechanism.plan, mechanism.guessed_rows
    return modelled_errors(plan, guess, counts=mechanism.counts).level_errors


def split_errors(mechanism: AdaptiveMechanism) -> tuple[float, ...]:
    """Return (h + 1,) the root mean square errors of each level's estimates if every node is
    split."""
    return modelled_errors(mechanism.plan, None, counts=mechanism.counts).level_errors


def predicted_rmse(mechanism: AdaptiveMechanism) -> float:
    """Return the root of the weighted mean, over levels, of the squares of `level_errors`."""
    errors = level_errors(mechanism)
    weights = (1.0,) * len(errors)
    if mechanism.weights is not None and any(mechanism.weights.levels):
        weights = mechanism.weights.levels
    return float(np.sqrt(np.average(np.square(errors), weights=weights)))


def _squares(plan: AdaptivePlan, ends: int, rows: Sequence[float], counts: bool) -> Floats:
    """(h + 1,) the mean squared errors of each level's nodes if all nodes of a level end."""
    sizes = np.array(plan.tree.level_sizes, dtype=np.float64)
    known = np.square(_repaired(_ended_variances(plan, ends), rows, counts))
    inside = known[-1] * np.square(sizes[ends] / sizes[ends + 1 :]) + np.square(rows[ends + 1 :])
    result: Floats = np.concatenate([known, inside])
    return result


def _candidates(plan: IrregularPlan, *, guessed: bool) -> Iterator[tuple[Fraction, ...]]:
    """Splits of the budget by the levels that decide: those above the leaves, from each on."""
    tree, shares = plan.tree, np.array([float(each) for each in plan.level_amounts])
    first = 0 if plan.public_level is None else plan.public_level + 1
    # Levels of single children are never split by a decision.
    deciding = [
        level
        for level in range(first, tree.height)
        if tree.level_sizes[level + 1] > tree.level_sizes[level]
    ]
    if not deciding:
        yield plan.level_amounts
        return
    for least in _LEAST_SHARES if guessed else _LEAST_SHARES[:1]:
        for upmost in deciding if guessed else deciding[-1:]:
            raised = shares / float(plan.budget.amount)
            chosen = [level for level in deciding if level >= upmost]
            raised[chosen] = np.maximum(raised[chosen], least)
            yield plan.budget.split(raised / raised.sum())


def _with_thresholds(
    plan: IrregularPlan, amounts: tuple[Fraction, ...], *, counts: bool
) -> AdaptivePlan:
    """The adaptive plan of these amounts, each level's threshold from the noise below it."""
    whole = AdaptivePlan(
        tree=plan.tree,
        unit=plan.unit,
        budget=plan.budget,
        level_amounts=amounts,
        thresholds=(0,) * plan.tree.height,
        decision_part=Fraction(0) if counts else _DECISION_PART,
        public_total=plan.public_level == 0,
        keyed=plan.keyed,
    )
    multiple = _MULTIPLES[plan.budget.measure]
    thresholds = tuple(
        round(multiple * _error_of_splitting(whole, level)) for level in range(plan.tree.height)
    )
    return replace(whole, thresholds=thresholds)


def _error_of_splitting(plan: AdaptivePlan, level: int) -> float:
    """The noise in the sum of what is measured next below a node of a level, in rows."""
    below = next(low for low in range(level + 1, plan.tree.height + 1) if plan.level_amounts[low])
    sizes = plan.tree.level_sizes
    return math.sqrt(sizes[below] / sizes[level] * _variance(plan.law(below)))


def _variance(law: NoiseLaw | None) -> float:
    return math.inf if law is None else law.variance


def _part_above(plan: AdaptivePlan, level: int, distance: float) -> float:
    """The part of a level's nodes that are split, so many rows below the threshold; of the tails
    of Laplace noise, which are wider than Gaussian ones."""
    spread = math.sqrt(_variance(plan.decision_law(level) or plan.law(level)))
    return 0.5 * exp(-math.sqrt(2) * distance / spread)


def _even_counts(tree: Shape, rows: float) -> list[float]:
    return [rows / size for size in tree.level_sizes]


def _repaired(variances: Sequence[float], rows: Sequence[float], counts: bool) -> tuple[float, ...]:
    """Root mean square errors: of counts, those that come of keeping them nonnegative."""
    return tuple(
        math.sqrt(min(own, count * count + count * math.sqrt(own)) if counts else own)
        for own, count in zip(variances, rows, strict=False)
    )


def _ended_variances(plan: AdaptivePlan, ends: int) -> list[float]:
    """(ends + 1,) the mean variances of estimates if all nodes of a level end, and none above."""
    tree = plan.tree
    assert isinstance(tree, IrregularTree)
    measured = [_node_variances(plan, level, last=level == ends) for level in range(ends + 1)]
    if ends < tree.height:
        # What is left of the path measures it again.
        measured[-1] = 1 / (1 / measured[-1] + 1 / _variance(plan.last_law(ends)))
    if ends == 0:
        return [0.0 if plan.public_total else float(measured[0][0])]
    if plan.public_total:
        measured[0] = np.zeros(1)
    starts = tree.child_starts[ends - 1][:-1]
    means = NodeVariances(
        tree=tree.top(ends), variances=measured[:-1], leaf_variances=measured[-1][starts]
    ).level_means
    return [float(each) for each in means]


def _node_variances(plan: AdaptivePlan, level: int, *, last: bool) -> Floats:
    """(n,) of the measurements of the nodes of a level, if all of them are reached."""
    chains = np.broadcast_to(plan.chains(level), (plan.tree.level_sizes[level],))
    passed = np.broadcast_to(plan.passed_on(level) & (not last), chains.shape)
    result: Floats = np.where(passed, np.inf, plan.class_variances[level][chains])
    return result


def _level_weights(tree: IrregularTree, weights: NodeWeights | None) -> tuple[float, ...]:
    if weights is None or not any(weights.levels):
        return (1.0,) * (tree.height + 1)
    return weights.levels


def _geometric_mean(errors: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted geometric mean of the errors above 0; a public root has no error and is
    left out."""
    pairs = [(error, own) for error, own in zip(errors, weights, strict=True) if error and own]
    total = math.fsum(own for _, own in pairs)
    logs = math.fsum(own * log(error) for error, own in pairs)
    return exp(logs / total) if total else 0.0


class AdaptiveHierarchy(AdaptivePlanner[HierarchyWorkload]):
    """An adaptive tree of any shape. Its error is predicted for a guess of the rows alone."""

    otherwise = "every node is split"
    compared = "where every node is split"

    def error_unit(self, workload: HierarchyWorkload) -> str | None:
        return None if workload.guessed_rows is None else "rows"

    def condition(self, workload: HierarchyWorkload, mechanism: AdaptiveMechanism) -> str | None:
        if workload.guessed_rows is None:
            return None
        return f"for {workload.guessed_rows:,.0f} rows, spread evenly"

    def mechanism(self, workload: HierarchyWorkload, setting: Setting) -> AdaptiveMechanism:
        """
        Raises:
            ValueError: the budget is too small or too large for its decisions.
        """
        return self._of_plan(workload, workload.whole_budget(setting))

    def _of_plan(self, workload: HierarchyWorkload, plan: IrregularPlan) -> AdaptiveMechanism:
        result = _planned(workload, best_split(plan, workload.weights)).plan
        rows = guessed_float(workload)
        return AdaptiveMechanism(plan=result, weights=workload.weights, guessed_rows=rows)

    def predicted(self, workload: HierarchyWorkload, mechanism: AdaptiveMechanism) -> float:
        """Return the weighted root mean square error in rows: for the guess; without one, if every
        node is split."""
        return predicted_rmse(mechanism)

    def is_better(self, workload: HierarchyWorkload, setting: Setting) -> bool:
        rows, weights = guessed_float(workload), workload.weights
        if rows is None:
            return False
        split = best_split(workload.whole_budget(setting), weights)
        return is_worth_it(
            _planned(workload, split),
            split,
            weights,
            counts=workload.reads_counts,
            guessed_rows=rows,
        )

    def why_not(self, workload: HierarchyWorkload, whole: TreeQuestion[Any]) -> str:
        _ = replace(whole, mechanism=self._of_plan(workload, whole.mechanism.plan))
        read = "counts" if workload.reads_counts else "estimates"
        return f"{read} of an adaptive tree are not expected to be closer"


def _planned(workload: HierarchyWorkload, split: IrregularPlan) -> Planned:
    counts, rows = workload.reads_counts, guessed_float(workload)
    return plan_adaptive_hierarchy(split, workload.weights, counts=counts, guessed_rows=rows)
