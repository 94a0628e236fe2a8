"""The choice among mechanisms for errors relative to the counts, by the error that is predicted.

Candidates, for one given tree:

- the Laplace tree and the Gaussian tree: every level gets the same part of the budget, every count
  is read as it was measured (Corollary 2.7 of Ghazi et al.; single children are pooled);
- least squares on either, at the same split, and at the split that is best for the objective;
- counts between thresholds (Ghazi et al., calibrated), under (epsilon, delta).

Under pure epsilon there are Laplace candidates only. Under (epsilon, delta) Laplace noise still
spends epsilon, Gaussian noise the rho that implies (epsilon, delta)
(`dpcore.privacy.conversion.rho_of`). No data are touched, and the guarantee of none of them depends
on a prediction.

The split for an objective minimises a weighted mean of variances (`dpcore.irregular.planner`) with
weights that are the slopes of the objective's mean in each level's variance, in turns; for the
largest error, the weights of the levels grow with their errors.

Source: derived here; the baselines from Ghazi, Kamath, Kumar, Manurangsi, Wu, Corollary 2.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpcore.arrays import Floats
from dpcore.hierarchy.relative_objective import RelativeObjective
from dpcore.irregular.node_weights import NodeWeights
from dpcore.irregular.plan import IrregularPlan, Sensitivities
from dpcore.irregular.planner import with_best_shares, with_equal_shares
from dpcore.irregular.variances import plan_errors
from dpcore.noise.source import MAX_COUNT
from dpcore.privacy.budget import Budget, Measure, Neighbors
from dpcore.privacy.conversion import rho_of
from dpcore.thresholds.calibration import calibrate
from dpcore.thresholds.errors import ThresholdErrors
from dpcore.thresholds.plan import ThresholdPlan
from dpcore.trees.chunks import CHUNK_LEAVES
from dpcore.trees.irregular import IrregularTree

__all__ = [
    "RelativeCandidate",
    "RelativeChoice",
    "noise_candidates",
    "plan_relative",
    "threshold_candidate",
]


_NAMES = {Measure.EPSILON: "Laplace", Measure.RHO: "Gaussian"}
# The search of a split for epsilon tries sets of levels, too many in a taller tree.
_TALLEST_SEARCH = {Measure.EPSILON: 24, Measure.RHO: 300}
# A turn is quick for rho, where the search is convex.
_TURNS = {Measure.EPSILON: 3, Measure.RHO: 8}
_SETTLED = 0.01
# Relative errors that the rounds of thresholds are laid out for, where the metric names none.
_LAYOUTS = (0.3, 0.5, 0.8)
_LEAST_LAYOUT, _MOST_LAYOUT = 0.02, 0.98


@dataclass(frozen=True, kw_only=True)
class RelativeCandidate:
    """One way to release the counts of a tree.

    Args:
        label: for a person.
        plan: what is measured; an `IrregularPlan`, or a `ThresholdPlan`.
        estimation: "none" (measurements as they are), "least_squares" or "thresholds".
        predicted: the objective, in its unit; of thresholds an upper bound.
    """

    label: str
    plan: IrregularPlan | ThresholdPlan
    estimation: str
    predicted: float


@dataclass(frozen=True, kw_only=True)
class RelativeChoice:
    """All candidates and the best of them.

    Args:
        candidates: at least one, by rising predicted error.

    Raises:
        ValueError: no candidates, or not in order.
    """

    candidates: tuple[RelativeCandidate, ...]

    def __post_init__(self) -> None:
        predicted = [each.predicted for each in self.candidates]
        if not predicted or predicted != sorted(predicted):
            raise ValueError("candidates: there must be some, by rising predicted error")

    @property
    def best(self) -> RelativeCandidate:
        """The candidate of the least predicted error."""
        return self.candidates[0]

    @property
    def plan(self) -> IrregularPlan | ThresholdPlan:
        """Of the best candidate."""
        return self.best.plan

    @property
    def predicted(self) -> float:
        """Of the best candidate."""
        return self.best.predicted

    @property
    def label(self) -> str:
        """Of the best candidate."""
        return self.best.label


def plan_relative(
    *,
    tree: IrregularTree,
    neighbors: Neighbors,
    epsilon: Fraction,
    objective: RelativeObjective,
    delta: Fraction | None = None,
    rows: int = 1,
    public_level: int | None = None,
    keyed: bool = False,
    sensitivities: Sensitivities = (),
    root_bound: int = MAX_COUNT,
) -> RelativeChoice:
    """The best of the mechanisms by predicted error, and all others beside it.

    Guarantee: each candidate's plan is epsilon-DP, or (epsilon, delta)-DP where delta is given.

    Args:
        tree: the shape, of one root.
        neighbors: the neighbouring relation.
        epsilon: positive.
        objective: what the plan is best for.
        delta: above 0 and below 1, or None for pure epsilon.
        rows: the most rows of a privacy unit, for thresholds; other plans take it by
            `sensitivities`.
        public_level, keyed, sensitivities: as for `IrregularPlan`.
        root_bound: a public bound of the rows of a tree, on which the prediction for thresholds
            rests, though not the guarantee.

    Raises:
        ValueError: an argument out of range.

    >>> choice = plan_relative(
    ...     tree=IrregularTree.from_fanouts([[3], [2, 2, 2]]), neighbors=Neighbors.ADD_REMOVE,
    ...     epsilon=Fraction(1), objective=RelativeObjective(metric="alpha_mrmse", alpha=0.1))
    >>> [(each.label, round(each.predicted, 2)) for each in choice.candidates]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('least squares, Laplace, best split', 3.32), ('least squares, Laplace, equal split', 3.45),
     ('Laplace tree', 4.22)]
    """
    objective.check_height(tree.height)
    budgets = [Budget(measure=Measure.EPSILON, amount=epsilon)]
    if delta is not None:
        budgets.append(Budget(measure=Measure.RHO, amount=rho_of(epsilon, delta)))
    found: list[RelativeCandidate] = []
    for budget in budgets:
        leaves_only = IrregularPlan.leaves_only(
            tree=tree,
            neighbors=neighbors,
            budget=budget,
            public_level=public_level,
            keyed=keyed,
            sensitivities=sensitivities,
        )
        found += noise_candidates(leaves_only, objective)
    if delta is not None:
        thresholds = threshold_candidate(
            tree=tree,
            neighbors=neighbors,
            epsilon=epsilon,
            delta=delta,
            objective=objective,
            rows=rows,
            root_bound=root_bound,
        )
        found += [] if thresholds is None else [thresholds]
    return RelativeChoice(candidates=tuple(sorted(found, key=lambda each: each.predicted)))


def noise_candidates(
    plan: IrregularPlan, objective: RelativeObjective
) -> tuple[RelativeCandidate, ...]:
    """The candidates of one noise alone: as measured, and after least squares at two splits.

    Args:
        plan: of epsilon (Laplace) or rho (Gaussian); how its budget is split does not matter.
        objective: what the plan is best for.
    """
    equal, name = with_equal_shares(plan), _NAMES[plan.budget.measure]
    found = [
        RelativeCandidate(
            label=f"{name} tree",
            plan=equal,
            estimation="none",
            predicted=objective.of_measurements(equal),
        )
    ]
    splits = [(equal, "equal split")]
    if 0 < plan.tree.height <= _TALLEST_SEARCH[plan.budget.measure]:
        splits.append((_best_split(equal, objective), "best split"))
    found += [
        RelativeCandidate(
            label=f"least squares, {name}, {split}",
            plan=each,
            estimation="least_squares",
            predicted=objective.of_estimates(each),
        )
        for each, split in splits
    ]
    return tuple(found)


def threshold_candidate(
    *,
    tree: IrregularTree,
    neighbors: Neighbors,
    epsilon: Fraction,
    delta: Fraction,
    objective: RelativeObjective,
    rows: int = 1,
    root_bound: int = MAX_COUNT,
) -> RelativeCandidate | None:
    """The candidate by thresholds alone; None where the tree is too large or nothing is forgiven.

    Args:
        tree, neighbors, epsilon, delta, objective, rows, root_bound: as for `plan_relative`.
    """
    height = tree.height
    if tree.leaves > CHUNK_LEAVES:
        return None
    if objective.guess is not None and max(objective.guess) > root_bound:
        raise ValueError(
            f"guess: {max(objective.guess):g} rows are above root_bound, which is {root_bound}"
        )
    found: list[tuple[float, ThresholdPlan]] = []
    for layout in _layouts(objective):
        plan = calibrate(
            height=height,
            epsilon=epsilon,
            delta=delta,
            neighbors=neighbors,
            rows=rows,
            alpha=layout,
            root_bound=root_bound,
            score=lambda errors: objective.of_thresholds(errors, height),
        )
        errors = ThresholdErrors(plan, height=height, root_bound=root_bound)
        found.append((objective.of_thresholds(errors, height), plan))
    if not found:
        return None
    predicted, plan = min(found, key=lambda pair: pair[0])
    return RelativeCandidate(
        label="thresholds", plan=plan, estimation="thresholds", predicted=predicted
    )


def _best_split(equal: IrregularPlan, objective: RelativeObjective) -> IrregularPlan:
    """The split of the least objective, found by turns of weights and splits."""
    height = equal.tree.height
    multipliers = objective.weights(height)
    best, best_value, plan = equal, objective.of_estimates(equal), equal
    weights = np.zeros(height + 1)
    for _ in range(_TURNS[equal.budget.measure]):
        moved, multipliers = _turned(objective, plan, multipliers)
        if not moved.sum() > 0 or float(np.abs(moved - weights).max()) < _SETTLED:
            break
        weights = moved
        plan = with_best_shares(equal, NodeWeights(levels=tuple(weights.tolist())))
        value = objective.of_estimates(plan)
        if value < best_value:
            best, best_value = plan, value
    return best


def _turned(
    objective: RelativeObjective, plan: IrregularPlan, multipliers: Floats
) -> tuple[Floats, Floats]:
    """The weights of the levels' variances, of sum 1, and the multipliers of the next turn."""
    height, estimates = plan.tree.height, plan_errors(plan)
    variances = np.array(estimates.level_means)
    slopes = np.array(
        [objective.slope(float(each), level, height) for level, each in enumerate(variances)]
    )
    weights = multipliers * slopes
    if objective.metric == "alpha_mrmse":
        largest = [float(level.max()) for level in [*estimates.estimates, estimates.leaf_estimates]]
        values = np.array(
            [float(objective.of_variance(each, lv, height)) for lv, each in enumerate(largest)]
        )
        grown = multipliers * values**2
        multipliers = grown / grown.sum() if grown.sum() > 0 else multipliers
    total = float(weights.sum())
    return (weights / total if total > 0 else weights), multipliers


def _layouts(objective: RelativeObjective) -> tuple[float, ...]:
    if objective.is_relative:
        return _LAYOUTS
    if not objective.alpha:
        return ()
    return (min(max(objective.alpha, _LEAST_LAYOUT), _MOST_LAYOUT),)
