"""Planner for a given irregular tree: each level's share of the budget for the smallest error.

The error is a weighted mean, over levels and named nodes, of the variance of the estimated counts
after least squares, with the discrete noise of a release. No data is touched. Shares x_l are
improved in turns. Given the estimate, the error is a sum over the classes of pooled levels of c_k
s(r_k), where c_k is the derivative in the class's variance (`dpcore.irregular.plan`), r_k = sum
of x_l / sensitivity_l over its levels, and s the variance of the noise, which falls as r^-p.
Since r^-p is convex, c_k r_k^-p is at most the sum over its levels of c_k lambda_l^(p + 1) (x_l /
sensitivity_l)^-p, lambda_l the part of level l in r_k before the step, where the two are equal.
That sum is least for

    x_l  ~  x_l (sum_k -c_k s'(r_k) / sensitivity_l)^(1 / (p + 1)),

which without pooling is the step of `dpcore.uniform.strategies`. Neither turn makes the error
larger. Of discrete noise p is the largest exponent -r s' / s of a class. For rho (sigma^2 >= 1)
the error is convex in the shares and one start suffices. For epsilon it is not, and a level
without budget stays without: so all sets of measured levels are tried, or in a large tree levels
are left out, put back or exchanged for their neighbors, as long as the error falls. Source:
derived here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, power
from dptrees.dpcore.arithmetic.sums import dot, integer_power, ordered_sum
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.irregular.plan import IrregularPlan, NodeVariances, plan_errors
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.specification import Coded
from dptrees.dpcore.trees.shapes import IrregularTree


@dataclass(frozen=True, kw_only=True)
class NodeWeights(Coded):
    """Weights of each count's variance.

    Args:
        levels: (h + 1,) the weight of the mean over each level's nodes, root first.
        nodes: (level, node, weight) of single nodes, named besides.

    Raises:
        ValueError: a negative weight, or none above 0.

    >>> NodeWeights(levels=(1, 0, 1)).total
    2.0
    """

    levels: tuple[float, ...]
    nodes: tuple[tuple[int, int, float], ...] = ()

    def __post_init__(self) -> None:
        given = [*self.levels, *(weight for _, _, weight in self.nodes)]
        if not all(0 <= weight < math.inf for weight in given):
            raise ValueError("weights: each must be finite and at least 0")
        if not self.total > 0:
            raise ValueError("weights: at least one must be above 0")

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return ordered_sum(self.levels) + ordered_sum(weight for _, _, weight in self.nodes)

    def on_nodes(self, tree: IrregularTree) -> tuple[list[Floats], Floats]:
        """The weights as `NodeVariances` takes them.

        Raises:
            ValueError: another number of levels than the tree's, or a node that it does not have.
        """
        sizes, height = tree.level_sizes, tree.height
        if len(self.levels) != height + 1:
            raise ValueError(f"weights: {len(self.levels)} levels, the tree has {height + 1}")
        above: list[Floats] = [
            np.full(n, weight / n) for n, weight in zip(sizes[:-1], self.levels[:-1], strict=True)
        ]
        leaves = tree.fanouts[-1].astype(np.float64) * (self.levels[-1] / sizes[-1])
        for level, node, weight in self.nodes:
            if not (0 <= level <= height and 0 <= node < sizes[level]):
                raise ValueError(f"weights: level {level} has no node {node}")
            if level < height:
                above[level][node] += weight
            else:
                leaves[np.searchsorted(tree.child_starts[-1], node, side="right") - 1] += weight
        return above, leaves


# A level that is given less than this is not worth a measurement.
_SMALLEST_SHARE = 1e-3
# Leaves are measured even where nobody needs them.
_LEAST_LEAF_SHARE = 2e-5
# All sets of measured levels are tried where parents times sets are no more than this.
_EXHAUSTIVE = 2**22
# Shares that move less than this in a step have converged.
_SETTLED = {"rough": 1e-3, "final": 1e-7}
_STEPS = {"rough": 12, "final": 200}
# What a change of the measured levels must gain, so that rounding decides nothing.
_WORTH = 1 - 1e-7


def with_best_shares(plan: IrregularPlan, weights: NodeWeights | None = None) -> IrregularPlan:
    """The plan with its budget split for the smallest predicted error.

    Args:
        plan: any; how its budget is split does not matter.
        weights: what the split is best for; by default each level's mean alike.

    Returns:
        The plan. Its level amounts sum to the budget; levels not worth a measurement have none.

    Raises:
        ValueError: weights that do not fit the tree.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget
    >>> from dptrees.dpcore.trees.shapes import IrregularTree
    >>> plan = with_best_shares(
    ...     IrregularPlan(
    ...         tree=IrregularTree.from_fanouts([[3], [40, 1, 60]]),
    ...         unit=ADD_REMOVE_ROW,
    ...         budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))),
    ...     NodeWeights(levels=(1, 1, 1)))
    >>> [round(float(amount), 2) for amount in plan.level_amounts]
    [0.0, 0.58, 0.42]
    """
    height = plan.tree.height
    if height == 0:
        return plan
    weights = weights or NodeWeights(levels=(1.0,) * (height + 1))
    return with_shares(plan, _Search(plan, weights).best())


def with_shares(plan: IrregularPlan, shares: Sequence[float] | Floats) -> IrregularPlan:
    """The plan with its budget split anew, see `Budget.split`.

    Args:
        plan: any.
        shares: (h + 1,) of sum 1, root first.
    """
    return replace(plan, level_amounts=plan.budget.split(shares))


def with_equal_shares(plan: IrregularPlan) -> IrregularPlan:
    """The plan with its budget split equally, to the last digit, over the levels that are not
    public."""
    public = 0 if plan.public_level is None else plan.public_level + 1
    measured = plan.tree.height + 1 - public
    part = plan.budget.amount / measured
    return replace(plan, level_amounts=(Fraction(0),) * public + (part,) * measured)


def predicted_level_rmse(plan: IrregularPlan) -> tuple[float, ...]:
    """(h + 1,) the root mean, over each level's nodes, of the variance of the estimated count.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget
    >>> from dptrees.dpcore.trees.shapes import IrregularTree
    >>> plan = IrregularPlan(
    ...     tree=IrregularTree.from_fanouts([[4]]), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.RHO, amount=Fraction(1, 2)))
    >>> plan = with_best_shares(plan, NodeWeights(levels=(1, 1)))
    >>> [round(rmse, 2) for rmse in predicted_level_rmse(plan)]
    [1.31, 1.2]
    """
    if plan.tree.height == 0:
        return (math.sqrt(plan.class_variances[0][0]),)
    return tuple(math.sqrt(mean) for mean in plan_errors(plan).level_means)


def predicted_node_rmse(plan: IrregularPlan, weights: NodeWeights) -> float:
    """The root of the weighted mean of the variances of the estimated counts, in rows."""
    if plan.tree.height == 0:
        return predicted_level_rmse(plan)[0]
    total = plan_errors(plan).weighted_sum(*weights.on_nodes(plan.tree))
    return math.sqrt(total / weights.total)


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    shares: Floats
    error: float


class _Search:
    """One search: the classes of the tree's nodes, and what is to be made small."""

    def __init__(self, plan: IrregularPlan, weights: NodeWeights) -> None:
        self._plan, self._tree = plan, plan.tree
        self._weights = weights.on_nodes(plan.tree)
        self._measure = plan.budget.measure
        order = 0 if self._measure is Measure.EPSILON else 1
        # The rate that a share of 1 gives to a level's counts.
        self._unit_rates = np.array(
            [float(plan.budget.amount / pair[order]) for pair in plan.sensitivities]
        )
        tree, height = plan.tree, plan.tree.height
        # A node's class by its chain; of nodes that a single child repeats, the class after all.
        self._classes = [
            np.where(tree.fanouts[level] == 1, level + 1, tree.chains[level])
            for level in range(height)
        ]
        single = tree.fanouts[-1] == 1
        self._leaf_classes = np.where(single, tree.chains[-1] + 1, 0)
        self._public = 0 if plan.public_level is None else plan.public_level + 1
        self._parents = sum(tree.level_sizes[:-1])
        # Discrete noise of sigma^2 below 1 falls faster than 1 / r.
        self._is_convex = self._measure is Measure.RHO and float(self._unit_rates.max()) <= 0.5
        self._step_length = 1.5 if self._is_convex else 1.0
        self._known: dict[tuple[bool, ...], _Candidate] = {}

    def best(self) -> Floats:
        """(h + 1,) the best shares found."""
        inner = range(self._public, self._tree.height)
        if not self._is_convex and self._parents << len(inner) <= _EXHAUSTIVE:
            for kept in itertools.product((0.0, 1.0), repeat=len(inner)):
                self._try(np.array([*[0.0] * self._public, *kept, 1.0]))
        else:
            levels = np.ones(self._tree.height + 1)
            levels[: self._public] = 0.0
            self._try(levels)
            if not self._is_convex:
                self._exchange(inner)
        return self._descend(self._best().shares, "final").shares

    def _best(self) -> _Candidate:
        return min(self._known.values(), key=lambda found: found.error)

    def _exchange(self, inner: range) -> None:
        """Changes of the measured levels, the best one first (in a large tree the first one that is
        better), as long as the error falls."""
        patient = self._parents * len(inner) ** 2 <= _EXHAUSTIVE
        improved = True
        while improved:
            best, improved = self._best(), False
            for changed in self._changes(best.shares, inner):
                self._try(changed)
                improved = self._best().error < best.error * _WORTH
                if improved and not patient:
                    break

    @staticmethod
    def _changes(shares: Floats, inner: range) -> Iterator[Floats]:
        """A level left out, small shares first; put back; or exchanged for its neighbor."""
        measured = [level for level in inner if shares[level] > 0]
        for level in sorted(measured, key=lambda each: float(shares[each])):
            changed = shares.copy()
            changed[level] = 0.0
            yield changed
        for level in inner:
            if shares[level] == 0:
                changed = shares.copy()
                changed[level] = 1 / (len(measured) + 1)
                yield changed
        for level, other in itertools.product(measured, inner):
            if abs(level - other) == 1 and shares[other] == 0:
                changed = shares.copy()
                changed[[level, other]] = changed[[other, level]]
                yield changed

    def _try(self, shares: Floats) -> None:
        """Optimize shares, unless the same levels have been tried."""
        support = tuple(bool(share) for share in shares)
        if support not in self._known:
            candidate = self._descend(shares / shares.sum(), "rough")
            self._known[support] = candidate
            # Where levels turned out to be worth nothing, what is left has been tried too.
            self._known.setdefault(tuple(bool(share) for share in candidate.shares), candidate)

    def _descend(self, shares: Floats, care: str) -> _Candidate:
        """The shares after steps until they settle; levels of small share are left out."""
        for _ in range(_STEPS[care]):
            moved = self._step(shares)
            is_converged = float(np.abs(moved - shares).max()) < _SETTLED[care]
            shares = moved
            if is_converged:
                break
        shares[:-1][shares[:-1] < _SMALLEST_SHARE] = 0.0
        shares = shares / shares.sum()
        return _Candidate(shares=shares, error=self._errors(shares).weighted_sum(*self._weights))

    def _errors(self, shares: Floats) -> NodeVariances:
        tables = self._tables(shares)
        return NodeVariances(
            tree=self._tree,
            variances=[
                table[0][classes] for table, classes in zip(tables[:-1], self._classes, strict=True)
            ],
            leaf_variances=tables[-1][0][self._leaf_classes],
        )

    def _tables(self, shares: Floats) -> list[tuple[Floats, Floats, Floats]]:
        """Per level, for each class by the length of its chain and once more for nodes that are not
        measured: the variance s, -s', and the exponent -r s' / s."""
        tables = []
        for level in range(self._tree.height + 1):
            pooled = (shares * self._unit_rates)[level::-1]
            rates = np.cumsum(pooled[: max(0, level + 1 - self._public)])
            variances, slopes, exponents = _noise_variances(self._measure, rates)
            public, repeated = np.zeros(level + 1 - rates.size), np.zeros(1)
            # Nodes that a single child repeats are public with it.
            last = 0.0 if rates.size == 0 else math.inf
            tables.append(
                (
                    np.concatenate([variances, public, np.array([last])]),
                    np.concatenate([slopes, public, repeated]),
                    np.concatenate([exponents, public, repeated]),
                )
            )
        return tables

    def _step(self, shares: Floats) -> Floats:
        tables = self._tables(shares)
        found, leaves = self._errors(shares).derivatives(*self._weights)
        descent = np.zeros_like(shares)
        exponent = 0.0
        for level, (derivatives, classes) in enumerate(
            zip([*found, leaves], [*self._classes, self._leaf_classes], strict=True)
        ):
            _, slopes, exponents = tables[level]
            by_class = np.bincount(classes, weights=derivatives, minlength=slopes.size)
            gains = by_class * slopes
            exponent = max(exponent, float(exponents[gains > 0].max(initial=0.0)))
            # A class of chain k pools the levels level - k to level.
            reaching = np.cumsum(gains[level::-1])
            descent[: level + 1] += reaching
        descent *= self._unit_rates
        gain = dot(shares, descent)
        if gain == 0:  # all weighted counts are public
            return shares
        ratio = descent / gain
        moved: Floats = shares * power(ratio, self._step_length / (1 + exponent))
        # Levels that are worth little would vanish over many steps.
        moved[:-1][(moved[:-1] < _SMALLEST_SHARE) & (ratio[:-1] < 1)] = 0.0
        moved[-1] = max(moved[-1], _LEAST_LEAF_SHARE)
        total: Floats = moved / moved.sum()
        return total


def _noise_variances(measure: Measure, rates: Floats) -> tuple[Floats, Floats, Floats]:
    """s(r), -s'(r) and the exponent -r s'(r) / s(r) of the discrete noise of the given rates;
    infinite, 0 and 0 at a rate of zero.

    Epsilon: with q = exp(-r), s = 2 q / (1 - q)^2. Rho: the discrete Gaussian of 1 / (2 r).
    """
    positive = rates > 0
    kept = rates[positive]
    if measure is Measure.EPSILON:
        # q is exp(-r); beyond 700 noise is zero to float64.
        q = exp(-np.minimum(kept, 300.0))
        some = (
            2 * q / (1 - q) ** 2,
            2 * q * (1 + q) / integer_power(1 - q, 3),
            kept * (1 + q) / (1 - q),
        )
    else:
        some = _gaussian_variances(kept)
    whole = [np.full(rates.shape, math.inf), np.zeros(rates.shape), np.zeros(rates.shape)]
    for filled, values in zip(whole, some, strict=True):
        filled[positive] = values
    return whole[0], whole[1], whole[2]


def _gaussian_variances(rates: Floats) -> tuple[Floats, Floats, Floats]:
    """The variance V of the discrete Gaussian in sigma^2 = 1 / (2 r), by its sums where sigma^2 is
    small: dV / d sigma^2 = (E k^4 - V^2) / (2 sigma^4). Beyond 4 it is sigma^2 to float64."""
    sigma_squared = 1 / (2 * np.maximum(rates, 1e-300))
    k = np.arange(1.0, 32.0)[:, None] ** 2
    weights = 2 * exp(-np.minimum(k / (2 * np.minimum(sigma_squared, 4.0)), 700.0))
    total = 1 + weights.sum(axis=0)
    second, fourth = (weights * k).sum(axis=0) / total, (weights * k**2).sum(axis=0) / total
    bend = (fourth - second**2) / (2 * np.minimum(sigma_squared, 4.0) ** 2)
    small = sigma_squared < 4.0
    variance = np.where(small, second, sigma_squared)
    # d sigma^2 / d r = -2 sigma^4
    slope = np.where(small, bend, 1.0) * 2 * sigma_squared**2
    return variance, slope, rates * slope / variance
