"""The law of an estimate's error, and confidence intervals from it.

An estimate is a linear combination of the measurements, so its error is the same combination of
the noise: sum_j c_j X_j with independent X_j of known discrete laws. On a level-uniform tree the
coefficients repeat, and O(h^2) distinct ones describe any node or prefix, however many leaves. The
characteristic function of the error is then a product of known ones, and inverting it gives the
half-width of an interval with at least the stated coverage, without simulation and without the
assumption that the error is normal (it is not where one Laplace variable dominates).

The noise lives on a lattice, so the error may have atoms. A smoothing variable D with |D| <= d is
added before inverting and d is added to the half-width: P(|X| <= w + d) >= P(|X + D| <= w), so the
coverage is at least nominal, at the price of a slightly wider interval.

Source: Gil-Pelaez 1951 (inversion); the coefficients follow from the passes of `dpcore.estimation`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpcore.estimation import Floats
from dpcore.plan import TreePlan
from dpcore.samplers import NoiseLaw
from dpcore.tree import Tree

# The grid of the inversion, in units of the error's standard deviation. The midpoint rule folds
# the law at _RANGE standard deviations; the smoothing makes the integrand fall like t^-4.
_STEP = 0.1
_RANGE = math.pi / _STEP
_SMOOTHING = 0.02
_CUTOFF = 65.0 / _SMOOTHING
# What the truncated integral may miss, (2 / pi) (3 / 65)^3 / 3, and the negligible terms.
_TRUNCATION = 3e-5
# A variance below this is that of a count known exactly, but for rounding.
_ROUNDING = 1e-9
# Of a variable that is uniform on half a row either side.
BLUR_VARIANCE = 1.0 / 12.0
# A factor of the characteristic function this small is as good as zero.
_NEGLIGIBLE = 1e-10


@dataclass(frozen=True, kw_only=True)
class ErrorLaw:
    """The law of sum_j sum_{i <= multiplicity_j} coefficient_j X_ij, with X_ij ~ law_j.

    Args:
        terms: (law, coefficient, multiplicity) of each group of alike variables.

    >>> from fractions import Fraction
    >>> from dpcore.samplers import DiscreteLaplace
    >>> law = DiscreteLaplace(scale=Fraction(10))
    >>> ErrorLaw(terms=((law, 1.0, 1),)).half_width(0.95) == law.bound(0.05)
    True
    """

    terms: tuple[tuple[NoiseLaw, float, int], ...]

    @cached_property
    def variance(self) -> float:
        """The error's variance in rows^2: sum of multiplicity coefficient^2 Var X."""
        return math.fsum(count * value**2 * law.variance for law, value, count in self.terms)

    def characteristic_function(self, t: Floats) -> Floats:
        """E cos(t error), (n,) -> (n,): the error is symmetric."""
        product = np.ones_like(t)
        # Every factor is at most one, so what has become negligible stays so: the terms of the
        # largest variance come first and leave little to do for the others.
        left = np.arange(t.size)
        for law, coefficient, multiplicity in sorted(
            self.terms, key=lambda term: -term[0].variance * term[1] ** 2 * term[2]
        ):
            product[left] *= law.characteristic_function(coefficient * t[left]) ** multiplicity
            left = left[np.abs(product[left]) > _NEGLIGIBLE]
        return product

    def half_width(self, confidence: float) -> float:
        """A w with P(|error| <= w) >= confidence, as small as the smoothing allows.

        Args:
            confidence: the coverage wanted, between 0 and 1, at most 0.9999.

        Raises:
            ValueError: the confidence is not in that range.
        """
        if not 0 < confidence <= 0.9999:
            raise ValueError(f"confidence: {confidence} is not above 0 and at most 0.9999")
        noisy = [term for term in self.terms if term[0].variance * term[1] ** 2 > 0]
        if not noisy:
            return 0.0
        if len(noisy) == 1 and noisy[0][2] == 1:
            return abs(noisy[0][1]) * noisy[0][0].bound(1.0 - confidence)
        # Chebyshev's inequality is the wider one but where the noise is hardly ever other than 0.
        certain = math.sqrt(self.variance / (1.0 - confidence))
        return min(certain, self._inverted(confidence + self._folded + _TRUNCATION))

    def blurred_half_width(self, confidence: float) -> float:
        """A w with P(|error + U| <= w) >= confidence, U uniform on half a row either side.

        An error on the integers then lies within w + 1/2 as often: unlike `half_width`, which jumps
        from one lattice point to the next, this moves smoothly from one law to the next.
        """
        noisy = sum(law.variance * value**2 > 0 for law, value, _ in self.terms)
        if not noisy:
            return 0.0
        certain = math.sqrt((self.variance + BLUR_VARIANCE) / (1.0 - confidence))
        return min(certain, self._inverted(confidence + self._folded + _TRUNCATION, blur=1.0))

    @property
    def _folded(self) -> float:
        """A bound of the mass beyond the inversion's range, by the second and fourth moments."""
        least = min(law.variance for law, value, _ in self.terms if law.variance * value**2 > 0)
        # A discrete Laplace law has excess kurtosis 3 + 1 / variance, a sum no more than its parts.
        return min(1.0 / _RANGE**2, (6.0 + 1.0 / least) / _RANGE**4)

    def _inverted(self, coverage: float, blur: float = 0.0) -> float:
        deviation = math.sqrt(self.variance + blur**2 * BLUR_VARIANCE)
        t = (np.arange(round(_CUTOFF / _STEP), dtype=np.float64) + 0.5) * _STEP
        smoothed = np.sinc(t * _SMOOTHING / (3 * np.pi)) ** 3
        smoothed *= np.sinc(t * blur / (2 * np.pi * deviation))
        weight = self.characteristic_function(t / deviation) * smoothed / t * (2 * _STEP / np.pi)
        counted = np.abs(weight) > _NEGLIGIBLE
        t, weight = t[counted], weight[counted]
        low, high = 0.0, _RANGE / 2
        if float(np.sin(t * high) @ weight) < coverage:
            return math.inf
        for _ in range(30):
            middle = (low + high) / 2
            if float(np.sin(t * middle) @ weight) >= coverage:
                high = middle
            else:
                low = middle
        return (high + _SMOOTHING) * deviation


Expansion = tuple[tuple[int, float, int], ...]  # (level, coefficient, multiplicity)


class TreeErrors:
    """The error laws of the estimates of one plan's tree.

    Nodes come in two classes a level: the last one, which may be trimmed, and all others.

    >>> from fractions import Fraction
    >>> from dpcore.privacy import Budget, Measure, Neighbors
    >>> from dpcore.tree import Tree
    >>> plan = TreePlan(
    ...     tree=Tree(leaves=4, fanouts=(4,)), neighbors=Neighbors.SUBSTITUTE,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1)), public_total=True)
    >>> law = TreeErrors(plan).node(1, 0)
    >>> round(law.variance / plan.variances[1], 6)  # 1 - 1/4: the total is known
    0.75
    """

    def __init__(self, plan: TreePlan) -> None:
        self._plan = plan
        self._tree = tree = plan.tree
        # Per level, then for (an ordinary, the last) node.
        self._below: list[tuple[float, float]] = [(plan.variances[-1],) * 2]
        self._children: list[tuple[float, float]] = [(0.0, 0.0)]
        self._sums: list[tuple[float, float]] = [(0.0, 0.0)]
        self._expansions: list[tuple[Expansion, Expansion]] = [(((tree.height, 1.0, 1),),) * 2]
        for level in reversed(range(tree.height)):
            self._step_up(level)

    def _step_up(self, level: int) -> None:
        tree, (ordinary, last) = self._tree, self._below[0]
        rest = len(tree.children(level, tree.level_sizes[level] - 1)) - 1
        sums = (tree.fanouts[level] * ordinary, rest * ordinary + last)
        variance = self._plan.variances[level]
        children = tuple(
            1.0 if math.isinf(variance) else variance / (variance + total) if variance else 0.0
            for total in sums
        )
        of_ordinary, of_last = self._expansions[0]
        expansions = (
            _combine((level, 1 - children[0], 1), (children[0], of_ordinary, tree.fanouts[level])),
            _combine(
                (level, 1 - children[1], 1),
                (children[1], of_ordinary, rest),
                (children[1], of_last, 1),
            ),
        )
        self._sums.insert(0, sums)
        self._children.insert(0, (children[0], children[1]))
        self._below.insert(0, (children[0] * sums[0], children[1] * sums[1]))
        self._expansions.insert(0, expansions)

    @property
    def tree(self) -> Tree:
        """The plan's tree."""
        return self._tree

    @property
    def root_variance(self) -> float:
        """g of the root in rows^2: 0 where it is public."""
        return 0.0 if self._plan.public_total else self._below[0][1]

    def below(self, level: int, node: int) -> float:
        """a of a node: the variance of the estimate from it and what lies below it."""
        return self._below[level][self._is_last(level, node)]

    def total(self, level: int, node: int) -> float:
        """A of a node: the sum of a over its children."""
        return self._sums[level][self._is_last(level, node)]

    def gain(self, level: int, node: int) -> float:
        """k of a node of level 1 or below: its share of what its parent's estimate corrects."""
        total = self.total(level - 1, node // self._tree.fanouts[level - 1])
        return self.below(level, node) / total if total else 0.0

    def _is_last(self, level: int, node: int) -> int:
        return int(node == self._tree.level_sizes[level] - 1)

    def node(self, level: int, node: int) -> ErrorLaw:
        """The error of the estimate of one node's count."""
        return self._law(level, node, of_node=1.0, of_left=0.0)

    def prefix(self, leaf: int, *, less_total: float = 0.0) -> ErrorLaw:
        """The error of the estimated count of leaves 0 to ``leaf``, less a multiple of the total's.

        Args:
            leaf: the last leaf of the prefix.
            less_total: q, for the error of prefix - q total, which decides a quantile.
        """
        return self._law(self._tree.height, leaf, of_node=1.0, of_left=1.0, of_root=-less_total)

    def _law(
        self, level: int, node: int, *, of_node: float, of_left: float, of_root: float = 0.0
    ) -> ErrorLaw:
        """The error of a combination of the estimates of a node, of all left of it, of the root.

        Along the path to the node the independent ingredients are each path node's own noise, the
        sums of z over the siblings left and right of the path, and the node's z. Every z and u on
        the path is a vector of coefficients over them.
        """
        tree = self._tree
        path = [node // math.prod(tree.fanouts[above:level]) for above in range(level + 1)]
        unit = np.eye(3 * level + 1)
        own, left, right = unit[0:-1:3], unit[1::3], unit[2::3]
        from_below = [unit[-1]]
        for above in reversed(range(level)):
            weight = self._children[above][self._is_last(above, path[above])]
            siblings = left[above] + right[above] + from_below[0]
            from_below.insert(0, (1 - weight) * own[above] + weight * siblings)
        estimate = from_below[0] * (0.0 if self._plan.public_total else 1.0)
        combination = of_root * estimate
        for above in range(level):
            correction = estimate - left[above] - right[above] - from_below[above + 1]
            first = tree.children(above, path[above]).start
            before = (path[above + 1] - first) * self.gain(above + 1, first)
            combination = combination + of_left * (left[above] + before * correction)
            estimate = from_below[above + 1] + self.gain(above + 1, path[above + 1]) * correction
        combination = combination + of_node * estimate
        return self._expand(path, combination)

    def _expand(self, path: Sequence[int], combination: Floats) -> ErrorLaw:
        """Resolves the sums of siblings into the noise of single nodes."""
        parts: Expansion = ()
        for level, node in enumerate(path[:-1]):
            own, left, right = combination[3 * level : 3 * level + 3]
            siblings = self._tree.children(level, node)
            chosen = path[level + 1]
            beyond = siblings.stop - 1 - chosen
            # The last node of the level is among the siblings on the right, or is on the path.
            trimmed = int(beyond > 0 and self._is_last(level + 1, siblings.stop - 1))
            of_ordinary, of_last = self._expansions[level + 1]
            parts += _combine(
                (level, float(own), 1),
                (float(left), of_ordinary, chosen - siblings.start),
                (float(right), of_ordinary, beyond - trimmed),
                (float(right), of_last, trimmed),
            )
        end = len(path) - 1
        of_end = self._expansions[end][self._is_last(end, path[-1])]
        parts += _combine((end, 0.0, 0), (float(combination[-1]), of_end, 1))
        laws = self._plan.laws
        return ErrorLaw(
            terms=tuple(
                (law, coefficient, count)
                for level, coefficient, count in _merge(parts)
                if (law := laws[level]) is not None
            )
        )


def _combine(own: tuple[int, float, int], *parts: tuple[float, Expansion, int]) -> Expansion:
    """A node's own noise plus weighted sums of alike independent expansions."""
    combined = [own] if own[1] and own[2] else []
    for weight, expansion, count in parts:
        if weight and count:
            combined += [(level, weight * value, count * many) for level, value, many in expansion]
    return _merge(combined)


def _merge(parts: Sequence[tuple[int, float, int]]) -> Expansion:
    """Adds up the multiplicities of equal coefficients of a level."""
    merged: dict[tuple[int, float], int] = {}
    for level, coefficient, count in parts:
        size = abs(coefficient)
        merged[level, size] = merged.get((level, size), 0) + count
    return tuple((level, size, count) for (level, size), count in merged.items())


@dataclass(frozen=True, kw_only=True)
class IntervalWidths:
    """How wide an interval is on either side, at one confidence.

    Args:
        confidence: the coverage.
        levels: (h + 1,) for the nodes of each level, in standard errors.
        prefix: for prefixes of the leaves (CDF points) and what decides a quantile, in standard
            errors of the blurred error; see `prefix_margin`.
    """

    confidence: float
    levels: tuple[float, ...]
    prefix: float


def prefix_margin(width: float, variance: Floats) -> Floats:
    """The half-widths of the intervals of prefixes, in rows.

    A prefix's error may lie on the integers, where the width in standard errors jumps from one
    prefix to the next. Blurred by half a row either side it does not, and half a row more covers
    what the blur took.

    Args:
        width: `IntervalWidths.prefix`.
        variance: of the estimates, in rows^2; zero where the count is known.

    >>> prefix_margin(2.0, np.array([0.0, 100.0])).round(2).tolist()
    [0.0, 20.51]
    """
    margins = width * np.sqrt(np.maximum(variance, 0.0) + BLUR_VARIANCE) + 0.5
    return np.where(variance > _ROUNDING, margins, 0.0)


def interval_widths(plan: TreePlan, confidence: float) -> IntervalWidths:
    """The widths for a plan: the widest over representative nodes and boundaries of each kind.

    On a level the error's law differs only along the trimmed right edge. Between boundaries it
    moves from that of a single leaf to a near normal one, mostly over the first few.
    """
    errors, tree = TreeErrors(plan), plan.tree
    levels = tuple(
        max(
            _standard_width(errors.node(level, node), confidence)
            for node in sorted({0, max(0, size - 2), size - 1})
        )
        for level, size in enumerate(tree.level_sizes)
    )
    laws = [errors.prefix(leaf) for leaf in _boundaries(tree)]
    if not plan.public_total:
        halves = sorted({0, tree.leaves // 2, tree.leaves - 1})
        laws += [errors.prefix(leaf, less_total=0.5) for leaf in halves]
    prefix = max(
        law.blurred_half_width(confidence) / math.sqrt(law.variance + BLUR_VARIANCE)
        if law.variance > _ROUNDING
        else 0.0
        for law in laws
    )
    return IntervalWidths(confidence=confidence, levels=levels, prefix=prefix)


def _boundaries(tree: Tree) -> list[int]:
    """Every leaf of a small tree; of a large one the first few, ends of subtrees, the middle."""
    if tree.leaves <= 24:
        return list(range(tree.leaves))
    ends = {min(tree.leaves, tree.leaves_below(level)) - 1 for level in range(tree.height)}
    last = tree.leaves - 1
    return sorted({0, 1, 2, 4, 7, 12, 20, last // 3, last // 2, last - 1, last} | ends)


def _standard_width(law: ErrorLaw, confidence: float) -> float:
    if law.variance <= _ROUNDING:
        return 0.0
    return law.half_width(confidence) / math.sqrt(law.variance)
