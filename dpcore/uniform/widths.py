"""Confidence intervals of nodes, prefixes and quantiles: how wide they are, from the plan alone.

Widths come from the exact laws of the errors (`dpcore.uniform.errors`), not from normality. They
come from the widest laws of each kind, so an interval covers the truth at least as often as
stated. It speaks of the true count: the nonnegative integer beside it, which sums up over the tree,
may lie outside.

Source: `dpcore.errors.law`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.arithmetic.interpolation import interpolated
from dptrees.dpcore.arithmetic.sums import integer_power
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.codec import coded
from dptrees.dpcore.errors.intervals import QuantileMargin, QuantileWidths, one_sided
from dptrees.dpcore.errors.law import BLUR_VARIANCE, ROUNDING, SMOOTHING, ErrorLaw
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.errors import UniformErrors
from dptrees.dpcore.uniform.plan import TreePlan

# Keeps an atom at the very end of an interval inside after the rounding of a square root.
_OUTWARDS = 1.0 + 1e-9
# Prefixes and quantiles are looked at in up to so many places, and inverted at these of them.
_LOOKED_AT = 4096
_SPREAD = 12
# A sum over so many sizes of coefficients has no steps to speak of.
_SMOOTH_TERMS = 2.5
_EXTREME = 3


@dataclass(frozen=True, kw_only=True)
class IntervalWidths(QuantileWidths):
    """Half-widths of the intervals on either side, at one confidence.

    Args:
        confidence: the coverage.
        levels: (h + 1,) for the nodes of each level, in standard errors.
        prefix: for prefixes of the leaves (CDF points) and what decides a quantile, in standard
            errors of the blurred error; see `prefix_margin`.
        line: (slope, offset) of a closer margin of prefixes, slope sd + offset rows: laws with
            heavy tails mostly have small variances, which a few rows cover. None where it
            is not known, as for widths that were stored without.
        quantile: the margins that decide a quantile. None: the margins of prefixes do, as for
            widths that were stored without.
    """

    later = "quantile"

    confidence: float
    levels: tuple[float, ...]
    prefix: float
    line: tuple[float, float] | None = None
    quantile: QuantileMargin | None = field(default=None, metadata=coded(omit=None))

    @property
    def sloped(self) -> tuple[float, float]:
        """The closest margins as the argument of `prefix_margin`: the line, or the one width."""
        return (self.prefix, 0.5) if self.line is None else self.line


def interval_widths(plan: TreePlan, confidence: float) -> IntervalWidths:
    """The widths for a plan: the widest over the laws of each kind.

    On a level a node's law depends on where its path leaves the trimmed right edge, so there are at
    most level + 1 laws, and all are looked at. A prefix has a law of its own at every boundary.
    Their widths in standard errors follow the excess kurtosis closely, so the inverted laws
    have the largest, the least and some kurtoses between, out of all boundaries (of a large tree,
    some thousands); the smoothing of the inversion leaves a margin for what lies between.

    Raises:
        ValueError: the confidence is not above 0 and at most 0.9999.
    """
    errors, tree = UniformErrors(plan), plan.tree
    levels = tuple(
        max(standard_width(law, confidence) for law in _node_laws(errors, level))
        for level in range(tree.height + 1)
    )
    places = _prefix_places(errors, public_total=plan.public_total)
    (prefix, line), (_, one) = _prefix_widths(errors, places, (confidence, one_sided(confidence)))
    return IntervalWidths(
        confidence=confidence,
        levels=levels,
        prefix=prefix,
        line=line,
        quantile=QuantileMargin(both=line, one=one),
    )


def _node_laws(errors: UniformErrors, level: int) -> list[ErrorLaw]:
    """Return the distinct error laws of the nodes of a level."""
    tree = errors.tree
    laws = []
    for above in range(level + 1):
        # The first node below the last one of a level above, unless it is on the edge itself.
        below = math.prod(tree.fanouts[above:level])
        first = (tree.level_sizes[above] - 1) * below
        last = min(first + below, tree.level_sizes[level]) - 1
        laws += [errors.node(level, node) for node in ({first, last} if above == 0 else {first})]
    return _different(laws, finest=1 / (SMOOTHING * SMOOTHING), most=3)


def _different(laws: Iterable[ErrorLaw], *, finest: float, most: int) -> list[ErrorLaw]:
    """One of each kind of laws that are alike.

    Laws of a fine lattice whose excess kurtoses are within 0.01 have widths that are alike within
    the smoothing; of a coarse one, of a variance below ``finest`` and with few coefficients, each
    has its own steps. Of the others at most ``most`` are kept, evenly from the least excess to the
    largest.
    """
    kinds: dict[tuple[int, str], ErrorLaw] = {}
    for law in laws:
        if law.variance > ROUNDING:
            coarse = law.variance < finest and law.distinct_terms < _SMOOTH_TERMS
            steps = f"{law.variance:.9e}" if coarse else ""
            kinds.setdefault((round(100 * law.excess_kurtosis), steps), law)
    smooth = sorted(kind for kind in kinds if not kind[1])
    places = np.linspace(0, max(0, len(smooth) - 1), most).astype(int).tolist()
    thinned = {smooth[place] for place in places if smooth}
    chosen = [law for kind, law in kinds.items() if kind[1] or kind in thinned]
    return chosen or [ErrorLaw(terms=())]


class _Places(NamedTuple):
    """Uncertain prefixes less a share of the total, (n,) each, with deviation and kurtosis."""

    leaf: Integers
    share: Floats
    deviation: Floats  # of the blurred error, in rows
    excess: Floats  # its kurtosis


def _prefix_places(errors: UniformErrors, *, public_total: bool) -> _Places:
    leaf, share = _places(errors.tree, public_total=public_total)
    variance, cumulant = errors.moments_of_prefixes(leaf, share)
    uncertain, blurred = variance > ROUNDING, variance + BLUR_VARIANCE
    # The fourth cumulant of a uniform variable is -1/120.
    excess = (cumulant - 1 / 120) / blurred**2
    return _Places(
        leaf[uncertain], share[uncertain], np.sqrt(blurred[uncertain]), excess[uncertain]
    )


def _prefix_widths(
    errors: UniformErrors, places: _Places, confidences: Sequence[float]
) -> list[tuple[float, tuple[float, float]]]:
    """The widest of the prefixes in standard errors, and the line above all of them in rows, of
    each confidence."""
    if not places.leaf.size:
        return [(0.0, (0.0, 0.0)) for _ in confidences]
    laws = _different(
        (
            errors.prefix(int(places.leaf[each]), less_total=float(places.share[each]))
            for each in _representatives(places)
        ),
        finest=25.0,
        most=2 * _SPREAD,
    )
    return [_widest(laws, places, confidence) for confidence in confidences]


def _widest(
    laws: Sequence[ErrorLaw], places: _Places, confidence: float
) -> tuple[float, tuple[float, float]]:
    deviations = np.array([math.sqrt(law.variance + BLUR_VARIANCE) for law in laws])
    excess = np.array([(law.fourth_cumulant - 1 / 120) for law in laws]) / integer_power(
        deviations, 4
    )
    widths = np.array([law.blurred_half_width(confidence) for law in laws]) / deviations
    order = np.argsort(excess, kind="stable")
    width = interpolated(places.excess, excess[order], widths[order])
    # Both those inverted and those between, by their kurtosis.
    rows = np.concatenate([deviations, places.deviation])
    wanted = np.concatenate([widths, width])
    slopes = np.linspace(wanted.min(), wanted.max(), 21)
    offsets = np.maximum(((wanted - slopes[:, None]) * rows).max(axis=1), 0.0)
    wasted = slopes + offsets * float((1 / places.deviation).mean())
    best = int(wasted.argmin())
    return float(widths.max()), (float(slopes[best]), float(offsets[best]) + 0.5)


def _representatives(places: _Places) -> list[int]:
    """All places if they are few; else extremes and an even spread of kurtosis."""
    size = places.leaf.size
    if size <= 3 * _SPREAD:
        return list(range(size))
    by_excess = np.argsort(places.excess, kind="stable")
    even = by_excess[np.linspace(0, size - 1, _SPREAD).round().astype(int)]
    ends = [
        *by_excess[:_EXTREME],
        *by_excess[-_EXTREME:],
        *np.argsort(places.deviation, kind="stable")[:3],
    ]
    return sorted({int(each) for each in [*ends, *even]})


def _places(tree: UniformTree, *, public_total: bool) -> tuple[Integers, Floats]:
    """Boundaries, and the quantiles that they may decide: all, or many that differ."""
    last = tree.leaves - 1
    if tree.leaves <= _LOOKED_AT:
        leaf = np.arange(tree.leaves)
    else:
        ends = np.array([tree.leaves_below(level) for level in range(1, tree.height + 1)])
        near = np.arange(64)
        # Multiples of the golden ratio are spread evenly at every scale.
        golden = (np.arange(_LOOKED_AT // 4) * 0.6180339887498949 % 1 * tree.leaves).astype(int)
        leaf = np.concatenate([near, last - near, ends - 1, ends, last - ends, golden])
        leaf = np.unique(leaf[(leaf >= 0) & (leaf <= last)])
    if public_total:
        return leaf, np.zeros(leaf.size)
    shares = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    # The share at which the total's error leaves the difference, and those around it.
    even = (leaf + 1) / tree.leaves
    return np.tile(leaf, 6), np.concatenate([np.repeat(shares, leaf.size), even])


def standard_width(law: ErrorLaw, confidence: float) -> float:
    """The half-width of an error's interval in standard errors; 0 where the count is known."""
    if law.variance <= ROUNDING:
        return 0.0
    return law.half_width(confidence) / math.sqrt(law.variance) * _OUTWARDS
