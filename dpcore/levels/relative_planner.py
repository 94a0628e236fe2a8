"""The choice among mechanisms for errors relative to the counts, by the error that is predicted.

Candidates, for one given tree:

- the Laplace tree and the Gaussian tree: every level gets the same part of the budget, every count
  is read as it was measured (Corollary 2.7 of Ghazi et al.; single children are pooled);
- least squares on either, at the same split, and at the split that is best for the objective;
- counts between thresholds (Ghazi et al., calibrated), under (epsilon, delta).

Under pure epsilon there are Laplace candidates only. Under (epsilon, delta) Laplace noise still
spends epsilon, Gaussian noise the rho that implies (epsilon, delta)
(`dpcore.privacy.conversion.zcdp_rho`). No data are touched, and the guarantee of none of them
depends on a prediction.

The split for an objective minimizes a weighted mean of variances (`dpcore.irregular.planner`) with
weights that are the slopes of the objective's mean in each level's variance, in turns; for the
largest error, the weights of the levels grow with their errors.

Source: derived here; the baselines from Ghazi, Kamath, Kumar, Manurangsi, Wu, Corollary 2.7.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.irregular.node_weights import NodeWeights
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import with_best_shares, with_equal_shares
from dptrees.dpcore.irregular.variances import plan_errors
from dptrees.dpcore.levels.relative_objective import RelativeObjective
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.privacy.group import GroupPrivacy
from dptrees.dpcore.thresholds.calibration import calibrate
from dptrees.dpcore.thresholds.errors import ThresholdErrors
from dptrees.dpcore.thresholds.plan import ThresholdPlan
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES
from dptrees.dpcore.trees.irregular import IrregularTree

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


def noise_candidates(
    plan: IrregularPlan, objective: RelativeObjective
) -> tuple[RelativeCandidate, ...]:
    """The candidates of one noise alone: as measured, and after least squares at two splits.

    Args:
        plan: of epsilon (Laplace) or rho (Gaussian); how its budget is split does not matter.
        objective: what the plan is best for.
    """
    equal, name = with_equal_shares(plan), _NAMES[plan.budget.measure]
    results = [
        RelativeCandidate(
            label=f"{name} tree",
            plan=equal,
            estimation="none",
            predicted=objective.predict_measurements(equal),
        )
    ]
    splits = [(equal, "equal split")]
    if 0 < plan.tree.height <= _TALLEST_SEARCH[plan.budget.measure]:
        splits.append((_best_split(equal, objective), "best split"))
    results += [
        RelativeCandidate(
            label=f"least squares, {name}, {split}",
            plan=each,
            estimation="least_squares",
            predicted=objective.predict_estimates(each),
        )
        for each, split in splits
    ]
    return tuple(results)


def threshold_candidate(
    tree: IrregularTree,
    unit: GroupPrivacy,
    objective: RelativeObjective,
    *,
    root_bound: int = MAX_COUNT,
) -> RelativeCandidate | None:
    """The candidate by thresholds alone; None where the tree is too large or nothing is forgiven.

    Guarantee: its plan keeps what the unit is promised.

    Args:
        tree: the shape, of one root.
        unit: the epsilon and delta, and the rows that they are for.
        objective: what the plan is best for.
        root_bound: a public bound of the rows of a tree, on which the prediction rests, though not
            the guarantee.

    Raises:
        ValueError: a guess above the bound, or one that does not fit the tree.
    """
    height = tree.height
    if tree.leaves > CHUNK_LEAVES:
        return None
    if objective.guess is not None and max(objective.guess) > root_bound:
        raise ValueError(
            f"guess: {max(objective.guess):g} rows are above root_bound, which is {root_bound}"
        )

    def score(errors: ThresholdErrors) -> float:
        return objective.bound_thresholds(errors, height)

    results: list[tuple[float, ThresholdPlan]] = []
    for alpha in _layouts(objective):
        plan = calibrate(unit, height=height, alpha=alpha, root_bound=root_bound, score=score)
        errors = ThresholdErrors(plan, height=height, root_bound=root_bound)
        results.append((score(errors), plan))
    if not results:
        return None
    predicted, plan = min(results, key=lambda pair: pair[0])
    return RelativeCandidate(
        label="thresholds", plan=plan, estimation="thresholds", predicted=predicted
    )


def _best_split(equal: IrregularPlan, objective: RelativeObjective) -> IrregularPlan:
    """The split of the least objective, found by turns of weights and splits."""
    height = equal.tree.height
    multipliers = objective.weights(height)
    best, best_value, plan = equal, objective.predict_estimates(equal), equal
    weights = np.zeros(height + 1)
    for _ in range(_TURNS[equal.budget.measure]):
        moved, multipliers = _turned(objective, plan, multipliers)
        if not moved.sum() > 0 or float(np.abs(moved - weights).max()) < _SETTLED:
            break
        weights = moved
        plan = with_best_shares(equal, NodeWeights(levels=tuple(weights.tolist())))
        value = objective.predict_estimates(plan)
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
            [
                float(objective.predict_from_variance(each, lv, height))
                for lv, each in enumerate(largest)
            ]
        )
        grown = multipliers * np.square(values)
        multipliers = grown / grown.sum() if grown.sum() > 0 else multipliers
    total = float(weights.sum())
    return (weights / total if total > 0 else weights), multipliers


def _layouts(objective: RelativeObjective) -> tuple[float, ...]:
    if objective.is_relative:
        return _LAYOUTS
    if not objective.alpha:
        return ()
    return (min(max(objective.alpha, _LEAST_LAYOUT), _MOST_LAYOUT),)
