"""Objectives that forgive errors in proportion to a count, and the choice of a mechanism by them.

Errors (alpha-RMSE, alpha-mRMSE, REL_kappa, root mean square relative errors) are predicted from a
plan alone, for public guesses of the counts or the worst ones: of least squares, from the variance
and fourth cumulant of every node's error; of measurements as they are, from the exact law of the
noise; of counts between thresholds, by upper bounds. Candidates for a given tree are the Laplace
and the Gaussian tree with equal shares, read as measured (Corollary 2.7 of Ghazi et al.; single
children are pooled); least squares on either, at that split and at the best for the objective; and
counts between thresholds under (epsilon, delta), where Laplace noise spends epsilon and Gaussian
noise the rho that implies (epsilon, delta) (`dpcore.privacy.conversion.zcdp_rho`). The split
minimizes a weighted mean of variances, in turns, with the slopes of the objective's mean in each
level's variance as weights (of the root mean square relative error they are 1 / max(z, kappa)^2,
and the first turn finds the best split); for the largest error, the weights of the levels grow with
their errors. No guarantee depends on a prediction. Source: derived here; Ghazi, Kamath, Kumar,
Manurangsi, Wu, Definition 1.4, Corollary 2.7 and Appendix B; Dawson, Ghazi, Kamath, Kumar et al.,
"Optimizing Hierarchical Queries for the Attribution Reporting API", AdKDD 2023, for the root mean
square relative error with a floor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.irregular.error_laws import IrregularErrors
from dptrees.dpcore.irregular.plan import IrregularPlan, plan_errors
from dptrees.dpcore.irregular.planner import NodeWeights, with_best_shares, with_equal_shares
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.dpcore.privacy.sensitivity import GroupPrivacy
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.specification import Coded, Refusal
from dptrees.dpcore.thresholds.calibration import calibrate
from dptrees.dpcore.thresholds.plan import ThresholdErrors, ThresholdPlan
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES
from dptrees.dpcore.trees.relative_errors import (
    gaussian_alpha_rmse,
    gaussian_smoothed_relative_error,
    law_alpha_rmse,
    law_smoothed_relative_error,
    mixed_alpha_rmse,
    mixed_smoothed_relative_error,
)
from dptrees.dpcore.trees.shapes import IrregularTree

# Of one level: errors, and how many nodes have each.
LevelErrors = tuple[Floats, Floats]

# In rows. Variances are divided by its square, which float64 holds for every budget.
LEAST_KAPPA = 1e-9
METRICS = ("alpha_rmse", "alpha_mrmse", "rel_kappa", "rms_rel_kappa")
_SLOPE_STEP = 0.01


@dataclass(frozen=True, kw_only=True)
class RelativeObjective(Coded):
    """A metric, its parameter, what is guessed of the counts, and the weights of the levels.

    alpha_rmse:  the root of the mean of RMSE_alpha^2, over each level's nodes, then the levels;
    alpha_mrmse: the largest RMSE_alpha of the nodes of all levels of positive weight;
    rel_kappa:   the mean of REL_kappa, over each level's nodes, then the levels;
    rms_rel_kappa: the root of the mean of (error / max(z, kappa))^2, over the same.

    Args:
        metric: "alpha_rmse", "alpha_mrmse", "rel_kappa" or "rms_rel_kappa".
        alpha: the forgiven multiple of a count, at least 0; for the first two.
        kappa: the count below which errors are not relative, at least 1e-9; for the last two.
        guess: (h + 1,) a public guess of the rows of a node of each level, root first; None for the
            worst counts that there can be.
        level_weights: (h + 1,) root first; None for all levels alike.

    Raises:
        ValueError: no such metric, its parameter missing or out of range, a negative guess, weights
            without one above 0.

    >>> RelativeObjective(metric="alpha_mrmse", alpha=0.5).unit
    'rows'
    """

    kind: ClassVar[str] = "relative"
    written = ("kind", "metric", "alpha", "kappa", "guess", "level_weights")

    metric: str
    alpha: float | None = None
    kappa: float | None = None
    guess: tuple[float, ...] | None = None
    level_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise Refusal.from_value(
                "metric", f"is {self.metric!r}; it must be one of {', '.join(METRICS)}"
            )
        if self.parameter == "kappa":
            if self.kappa is None or not LEAST_KAPPA <= self.kappa < math.inf:
                raise Refusal.from_value(
                    "kappa", f"is {self.kappa}; {self.metric} needs one of at least {LEAST_KAPPA:g}"
                )
        elif self.alpha is None or not 0 <= self.alpha < math.inf:
            raise Refusal.from_value(
                "alpha", f"is {self.alpha}; {self.metric} needs one of at least 0"
            )
        for name in ("guess", "level_weights"):
            if not all(0 <= value < math.inf for value in getattr(self, name) or ()):
                raise Refusal(name, "each must be finite and at least 0")
        if self.level_weights is not None and not sum(self.level_weights) > 0:
            raise Refusal("level_weights", "at least one must be above 0")

    @property
    def is_relative(self) -> bool:
        """Whether the metric is REL_kappa."""
        return self.metric == "rel_kappa"

    @property
    def parameter(self) -> str:
        """Name of the parameter that the metric has."""
        return "kappa" if self.metric in ("rel_kappa", "rms_rel_kappa") else "alpha"

    @property
    def unit(self) -> str:
        """Unit of the predicted error."""
        return "part of the count" if self.parameter == "kappa" else "rows"

    @property
    def reads(self) -> str:
        """Description of the errors that the objective covers, for a person."""
        counts = "for the worst counts" if self.guess is None else "for the guessed counts"
        kind = {"alpha_mrmse": "largest", "rms_rel_kappa": "root mean square"}
        name = f"REL_{self.kappa:g}" if self.parameter == "kappa" else f"{self.alpha:g}-RMSE"
        return f"the {kind.get(self.metric, 'mean')} {name}, {counts}"

    def check_height(self, height: int) -> None:
        """Refuse a tree of another height.

        Raises:
            ValueError: the guess or the weights are not one per level.
        """
        for name in ("guess", "level_weights"):
            values = getattr(self, name)
            if values is not None and len(values) != height + 1:
                raise Refusal(name, f"{len(values)} of them for {height + 1} levels")

    def weights(self, height: int) -> Floats:
        """(h + 1,) the weights of the levels, of sum 1."""
        self.check_height(height)
        given = np.array(self.level_weights or (1.0,) * (height + 1))
        return np.asarray(given / given.sum(), dtype=np.float64)

    def counts(self, height: int) -> Floats:
        """(h + 1,) the counts at which errors of unbiased noise are predicted."""
        self.check_height(height)
        return np.array(self.guess if self.guess is not None else (0.0,) * (height + 1))

    def _divided(self, errors: Floats, counts: npt.ArrayLike) -> Floats:
        """Root mean square errors in rows in the unit of the objective, at some counts."""
        if self.kappa is None or self.parameter == "alpha":
            return errors
        return np.asarray(errors / np.maximum(counts, self.kappa), dtype=np.float64)

    def combined(self, levels: Sequence[LevelErrors]) -> float:
        """The objective, from the errors of the nodes of every level.

        Args:
            levels: root first; (n,) the metric of nodes, and (n,) how many nodes have each.

        >>> objective = RelativeObjective(metric="alpha_rmse", alpha=0.1)
        >>> objective.combined([(np.array([2.0]), np.ones(1)), (np.array([0.0, 4.0]), np.ones(2))])
        2.449...
        """
        weights = self.weights(len(levels) - 1)
        if self.metric == "alpha_mrmse":
            return max(
                float(level.max())
                for (level, _), weight in zip(levels, weights, strict=True)
                if weight
            )
        means = [
            float(np.average(level if self.is_relative else np.square(level), weights=numbers))
            for level, numbers in levels
        ]
        mean = dot(weights, means)
        return mean if self.is_relative else math.sqrt(mean)

    def predict_from_variance(self, variance: npt.ArrayLike, level: int, height: int) -> Floats:
        """The metric of normal errors at the count of a level, for a search.

        Args:
            variance: (...) in rows^2.
            level: of the nodes.
            height: h.
        """
        truth, spread = self.counts(height)[level], np.sqrt(np.asarray(variance, dtype=np.float64))
        if self.kappa is not None and self.is_relative:
            return gaussian_smoothed_relative_error(spread, truth, self.kappa)
        return self._divided(gaussian_alpha_rmse(spread, truth, self.alpha or 0.0), truth)

    def slope(self, variance: float, level: int, height: int) -> float:
        """Derivative of the objective's mean in the variance of a level."""
        ends = np.array([variance * (1 - _SLOPE_STEP), variance * (1 + _SLOPE_STEP)])
        if not 0 < variance < math.inf:
            return 0.0
        values = self.predict_from_variance(ends, level, height)
        values = values if self.is_relative else np.square(values)
        return max(0.0, float(values[1] - values[0]) / (2 * _SLOPE_STEP * variance))

    def predict_estimates(self, plan: IrregularPlan) -> float:
        """Predict the objective after least squares on the measurements of a plan.

        >>> from dptrees.dpcore.trees.shapes import IrregularTree
        >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
        >>> from fractions import Fraction
        >>> plan = IrregularPlan(
        ...     tree=IrregularTree.from_fanouts([[2]]), unit=ADD_REMOVE_ROW,
        ...     budget=Budget(measure=Measure.RHO, amount=Fraction(1, 200)),
        ...     level_amounts=(Fraction(1, 400), Fraction(1, 400)))
        >>> objective = RelativeObjective(metric="alpha_mrmse", alpha=0.5)
        >>> round(objective.predict_estimates(plan), 3), round(objective.predict_measurements(plan),
        ...     3)
        (11.547, 14.142)
        """
        errors, tree = IrregularErrors(plan), plan.tree
        counts, levels = self.counts(tree.height), []
        for level in range(tree.height + 1):
            moments = errors.moments(level)
            is_leaf = level == tree.height > 0
            numbers = tree.fanouts[-1] if is_leaf else np.ones(tree.level_sizes[level])
            if self.kappa is not None and self.is_relative:
                values = mixed_smoothed_relative_error(
                    moments.variance, moments.fourth, counts[level], self.kappa
                )
            else:
                values = mixed_alpha_rmse(
                    moments.variance, moments.fourth, counts[level], self.alpha or 0.0
                )
                values = self._divided(values, counts[level])
            levels.append((values, np.asarray(numbers, dtype=np.float64)))
        return self.combined(levels)

    def predict_measurements(self, plan: IrregularPlan) -> float:
        """Predict the objective of the measurements of a plan as they are.

        A node whose single child repeats its count is read there. A node that is not measured has
        an infinite error.
        """
        counts = self.counts(plan.tree.height)
        levels = []
        for level, classes in enumerate(level_classes(plan)):
            every, numbers = np.unique(classes, axis=0, return_counts=True)
            values = [
                self._predict_class(plan, measured, chain, float(counts[level]))
                for measured, chain in every.tolist()
            ]
            levels.append((np.array(values), numbers.astype(np.float64)))
        return self.combined(levels)

    def _predict_class(self, plan: IrregularPlan, level: int, chain: int, count: float) -> float:
        law = plan.law(level, chain)
        if law is None:
            return 0.0 if plan.is_public(level, chain) else math.inf
        return self._predict_law(law, count)

    def _predict_law(self, law: NoiseLaw, count: float) -> float:
        if self.kappa is not None and self.is_relative:
            return float(law_smoothed_relative_error(law, count, self.kappa))
        return float(self._divided(law_alpha_rmse(law, count, self.alpha or 0.0), count))

    def bound_thresholds(self, errors: ThresholdErrors, height: int) -> float:
        """Bound the objective of counts between thresholds, from above.

        Args:
            errors: of the plan.
            height: h.
        """
        counts = errors.places if self.guess is None else self.counts(height)
        if self.kappa is not None and self.is_relative:
            bounds = errors.smoothed_relative_error(counts, self.kappa)
        else:
            bounds = self._divided(errors.alpha_rmse(counts, self.alpha or 0.0), counts)
        if self.guess is None:
            return float(bounds.max())
        return self.combined([(bounds[[level]], np.ones(1)) for level in range(height + 1)])


def level_classes(plan: IrregularPlan) -> list[Integers]:
    """Per level, (n_l, 2) the level and the chain of the measurement that holds each node's count:
    the node's own, or that of the lowest of the single children that repeat it."""
    tree, height = plan.tree, plan.tree.height
    chains = [*tree.chains]
    chains.append(
        tree.chains_below(height - 1, chains[-1]) if height else np.zeros(1, dtype=np.int64)
    )
    below = np.stack([np.full(tree.level_sizes[-1], height), chains[-1]], axis=1)
    result = [below]
    for level in reversed(range(height)):
        own = np.stack([np.full(tree.level_sizes[level], level), chains[level]], axis=1)
        # A public count is read where it is public.
        public = np.array([plan.is_public(level, chain) for chain in range(level + 1)])
        repeated = (tree.fanouts[level] == 1) & ~public[chains[level]]
        first = tree.child_starts[level][:-1]
        below = np.where(repeated[:, None], result[0][first], own)
        result.insert(0, below)
    return result


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
    if objective.parameter == "kappa":
        return _LAYOUTS
    if not objective.alpha:
        return ()
    return (min(max(objective.alpha, _LEAST_LAYOUT), _MOST_LAYOUT),)
