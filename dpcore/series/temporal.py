"""The temporal tree of a series: which of its nodes close when, and how a budget is split over it.

Periods 1 to T are its leaves. A node of a level represents so many periods in a row, from a
multiple of that on; only nodes that end by T exist. A row falls into one period, hence into one
node of each level, so that what the levels spend adds up to what the series spends.

Each node is measured once, when its last period is over. What is known after period t are the nodes
that have closed by then: complete subtrees, side by side, as the digits of t to the base b say.

Source: Dwork, Naor, Pitassi, Rothblum, "Differential privacy under continual observation", STOC
2010; Chan, Shi, Song, "Private and continual release of statistics", ICALP 2010 (the binary tree);
Honaker, "Efficient use of differentially private binary trees", 2015 (estimation from below).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.arithmetic.elementary import cube_root
from dptrees.dpcore.privacy.sensitivity import periods_sensitivity
from dptrees.dpcore.refusal import Refusal

# More would be read for one answer than a query can wait for.
MOST_PERIODS = 2**16
# Steps of a fixed point that contracts by about a half, until they change nothing.
_STEPS, _SETTLED = 2000, 1e-14
# A share that goes to zero stops here.
_NOTHING = 1e-9
# Below this share of a budget a level is not worth measuring.
_LEAST_SHARE = 0.01
_WIDEST = 64


class Span(NamedTuple):
    """A node of the temporal tree.

    Attributes:
        level: above the periods, which are level 0.
        first, last: its periods, both inside.

    >>> Span(level=2, first=5, last=8).level
    2
    """

    level: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class TemporalTree:
    """A tree over the periods of a series.

    Args:
        periods: T, fixed before the first of them.
        spans: how many periods a node of each level has: 1 first, each a multiple of the one before
            and at most T.

    Raises:
        Refusal: periods that are not from 1 to 2^16.
        ValueError: spans that make no tree.

    >>> tree = TemporalTree(periods=14, spans=(1, 2, 4, 8))
    >>> tree.closing(4), tree.carried(5)
    ([0, 1, 2], [1, 2, 3])
    """

    periods: int
    spans: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if not 1 <= self.periods <= MOST_PERIODS:
            raise Refusal("periods", f"{self.periods} is not from 1 to {MOST_PERIODS}")
        pairs = pairwise(self.spans)
        if self.spans[:1] != (1,) or any(b <= a or b % a for a, b in pairs):
            raise ValueError(f"spans: {self.spans} are not 1 and multiples, each of the one before")
        if self.spans[-1] > self.periods:
            raise ValueError(f"spans: {self.spans[-1]} is above the {self.periods} periods")

    @classmethod
    def from_fanout(cls, periods: int, fanout: int) -> TemporalTree:
        """The tree whose nodes have b children each.

        Args:
            periods: T.
            fanout: b, at least 2.

        Raises:
            Refusal: one of them is out of range.

        >>> TemporalTree.from_fanout(14, 2).spans
        (1, 2, 4, 8)
        """
        if fanout < 2:
            raise Refusal("fanout", f"{fanout} is not at least 2")
        spans = [1]
        while spans[-1] * fanout <= periods:
            spans.append(spans[-1] * fanout)
        return cls(periods=periods, spans=tuple(spans))

    @cached_property
    def fanouts(self) -> tuple[int, ...]:
        """Number of children of a node of each level; 0 for a period."""
        return (0, *(above // below for below, above in pairwise(self.spans)))

    def find_span(self, level: int, period: int) -> Span:
        """The node of a level that holds a period."""
        span = self.spans[level]
        before = (period - 1) // span * span
        return Span(level, before + 1, before + span)

    def counted(self, period: int) -> list[int]:
        """The levels whose node that holds a period exists: closes by T."""
        levels = range(len(self.spans))
        return [each for each in levels if self.find_span(each, period).last <= self.periods]

    def closing(self, period: int) -> list[int]:
        """Levels with a node that closes with a period."""
        return [
            each for each in self.counted(period) if self.find_span(each, period).last == period
        ]

    def carried(self, period: int) -> list[int]:
        """The levels whose node stays open after a period: the next period goes on with its counts.

        >>> TemporalTree.from_fanout(14, 2).carried(14)  # the rest of 9 to 16 will not come
        []
        """
        if period < 1:
            return []
        return [each for each in self.counted(period) if self.find_span(each, period).last > period]

    def closed(self, period: int) -> list[Span]:
        """All nodes that have closed by a period, in the order in which they did."""
        return [
            self.find_span(level, each)
            for each in range(1, period + 1)
            for level in self.closing(each)
        ]

    def roots(self, period: int) -> list[Span]:
        """The largest closed nodes, which together are periods 1 to `period`.

        >>> [(each.first, each.last) for each in TemporalTree.from_fanout(14, 2).roots(7)]
        [(1, 4), (5, 6), (7, 7)]
        """
        return self.cover(1, period)

    def cover(self, first: int, last: int) -> list[Span]:
        """The fewest nodes that together are some periods in a row, in their order.

        >>> [(each.first, each.last) for each in TemporalTree.from_fanout(14, 2).cover(2, 8)]
        [(2, 2), (3, 4), (5, 8)]
        """
        result: list[Span] = []
        while first <= last:
            nodes = (self.find_span(level, first) for level in reversed(range(len(self.spans))))
            node = next(each for each in nodes if each.first == first and each.last <= last)
            result.append(node)
            first = node.last + 1
        return result

    @cached_property
    def mean_roots(self) -> tuple[float, ...]:
        """Number of nodes of each level in a total to date, on average over periods."""
        left, means = np.arange(1, self.periods + 1), []
        for span in reversed(self.spans):
            number, left = np.divmod(left, span)
            means.append(float(number.mean()))
        return tuple(reversed(means))


def estimated_variances(tree: TemporalTree, variances: tuple[float, ...]) -> tuple[float, ...]:
    """Per level the variance a of a closed node, estimated from all that is measured inside.

    1 / a_0 = 1 / v_0, 1 / a_l = 1 / v_l + 1 / (b_l a_{l-1}), b_l the children of a node.

    Args:
        tree: over the periods.
        variances: v, of the measurement of a node of each level.
    """
    results = [variances[0]]
    for fanout, variance in zip(tree.fanouts[1:], variances[1:], strict=True):
        results.append(1 / (1 / variance + 1 / (fanout * results[-1])))
    return tuple(results)


def mean_variance(
    tree: TemporalTree, variances: tuple[float, ...], *, from_below: bool = True
) -> float:
    """The variance of the total to date, on average over the periods.

    Args:
        tree, variances: as for `estimated_variances`.
        from_below: whether a node is estimated from all that is measured inside it, or is what was
            measured of it alone.

    >>> mean_variance(TemporalTree.from_fanout(2, 2), (1.0, 1.0))  # 1, then 1 / (1 + 1 / 2)
    0.8333333333333333
    >>> mean_variance(TemporalTree.from_fanout(2, 2), (1.0, 1.0), from_below=False)
    1.0
    """
    own = estimated_variances(tree, variances) if from_below else variances
    parts = zip(tree.mean_roots, own, strict=True)
    return math.fsum(number * variance for number, variance in parts)


@dataclass(frozen=True, kw_only=True)
class TemporalSplit:
    """A temporal tree and the shares of a budget that its levels get.

    Args:
        tree: over the periods.
        shares: above 0, of sum 1.
        error: the root of the mean variance of totals to date, where the whole budget would give
            one period a variance of 1.
    """

    tree: TemporalTree
    shares: tuple[float, ...]
    error: float


@dataclass(frozen=True, kw_only=True)
class TemporalSetting:
    """What a budget is split for.

    Args:
        power: p, 2 for epsilon and 1 for rho: the variance of noise is its budget to the power of
            -p.
        max_periods: in how many periods a unit is counted (`periods_sensitivity`).
        from_below: as for `mean_variance`.
    """

    power: int
    max_periods: int = 1
    from_below: bool = True


@lru_cache(maxsize=16)
def best_split(periods: int, setting: TemporalSetting) -> TemporalSplit:
    """The tree and the split of a budget with which totals to date are best on average.

    The variance of a level's noise is its share to the power of -2 (discrete Laplace under
    epsilon) or -1 (discrete Gaussian under rho), times the square of the level's sensitivity g_l.
    At the best shares s, with F the mean variance, s_l^(p + 1) is proportional to g_l^2 dF/dv_l;
    iterated from equal shares. A level whose best share is next to nothing is not measured: under
    epsilon, of few periods, none but the periods themselves is worth it.

    Args:
        periods: T.
        setting: what the budget is split for.

    >>> pure, gaussian = TemporalSetting(power=2), TemporalSetting(power=1)
    >>> best_split(14, gaussian).tree.spans, round(best_split(14, gaussian).error, 2)
    ((1, 2, 4, 8), 2.21)
    >>> best_split(14, pure).tree.spans, round(best_split(14, pure).error, 2)
    ((1,), 2.74)
    >>> of_seven = TemporalSetting(power=2, max_periods=7)
    >>> round(best_split(14, of_seven).error / best_split(14, pure).error, 9)
    7.0
    >>> alone = replace(gaussian, from_below=False)
    >>> best_split(14, alone).tree.spans, round(best_split(14, alone).error, 2)
    ((1, 4), 2.45)
    """
    # Wider trees have a root above the periods, which few totals to date use.
    widest = max(2, min(periods, _WIDEST))
    trees = [TemporalTree.from_fanout(periods, fanout) for fanout in range(2, widest + 1)]
    trees.append(TemporalTree(periods=periods))
    found = (_earning(_split(tree, setting), setting) for tree in trees)
    # Of equals up to rounding the first, on every machine.
    return min(found, key=lambda each: round(each.error, 9))


@lru_cache(maxsize=16)
def split_of_fanout(periods: int, fanout: int, setting: TemporalSetting) -> TemporalSplit:
    """The tree of a fan-out, all of whose levels are measured, and the split with which totals to
    date are best on average while no level gets less than half an equal share.

    Args:
        periods: T.
        fanout: b.
        setting: as for `best_split`.

    Raises:
        Refusal: periods or fan-out out of range.

    >>> [round(share, 3) for share in split_of_fanout(4, 2, TemporalSetting(power=2)).shares]
    [0.667, 0.167, 0.167]
    """
    tree = TemporalTree.from_fanout(periods, fanout)
    least = 1 / (2 * len(tree.spans))
    free, fixed = list(_split(tree, setting).shares), [False] * len(tree.spans)
    while any(share < least and not held for share, held in zip(free, fixed, strict=True)):
        fixed = [held or share < least for share, held in zip(free, fixed, strict=True)]
        left = 1 - least * sum(fixed)
        rest = math.fsum(share for share, held in zip(free, fixed, strict=True) if not held)
        free = [
            least if held else share * left / rest for share, held in zip(free, fixed, strict=True)
        ]
    error = _error(tree, free, setting)
    return TemporalSplit(tree=tree, shares=tuple(free), error=error)


def _earning(split: TemporalSplit, setting: TemporalSetting) -> TemporalSplit:
    """The split without levels whose share is next to nothing."""
    while min(split.shares) < _LEAST_SHARE:
        worst = min(range(1, len(split.shares)), key=lambda level: split.shares[level])
        spans = split.tree.spans[:worst] + split.tree.spans[worst + 1 :]
        split = _split(replace(split.tree, spans=spans), setting)
    return split


def _split(tree: TemporalTree, setting: TemporalSetting) -> TemporalSplit:
    """The best split. The last step's and not that of the least error, which many would share up to
    rounding: every run of a series must find the same one, on whatever machine."""
    shares = [1 / len(tree.spans)] * len(tree.spans)
    squares = _squared_sensitivities(tree, setting)
    for _ in range(_STEPS):
        slopes = _slopes(tree, _variances(tree, shares, setting), setting)
        wanted = [
            math.sqrt(slope * square) if setting.power == 1 else cube_root(slope * square)
            for slope, square in zip(slopes, squares, strict=True)
        ]
        total, before = math.fsum(wanted), shares
        shares = [
            max((share + each / total) / 2, _NOTHING)
            for share, each in zip(shares, wanted, strict=True)
        ]
        if max(abs(one - other) for one, other in zip(shares, before, strict=True)) < _SETTLED:
            break
    error = _error(tree, shares, setting)
    return TemporalSplit(tree=tree, shares=tuple(shares), error=error)


def _squared_sensitivities(tree: TemporalTree, setting: TemporalSetting) -> list[int]:
    """The squared sensitivity of each level, L1 or L2, in that of one period."""
    found = (periods_sensitivity(setting.max_periods, span) for span in tree.spans)
    return [l2_squared if setting.power == 1 else l1 * l1 for l1, l2_squared in found]


def _variances(
    tree: TemporalTree, shares: list[float], setting: TemporalSetting
) -> tuple[float, ...]:
    squares = _squared_sensitivities(tree, setting)
    return tuple(
        square / (share if setting.power == 1 else share * share)
        for share, square in zip(shares, squares, strict=True)
    )


def _error(tree: TemporalTree, shares: list[float], setting: TemporalSetting) -> float:
    variances = _variances(tree, shares, setting)
    return math.sqrt(mean_variance(tree, variances, from_below=setting.from_below))


def _slopes(
    tree: TemporalTree, variances: tuple[float, ...], setting: TemporalSetting
) -> list[float]:
    """dF/dv of each level, F the mean variance of totals to date: backwards through
    `estimated_variances`."""
    if not setting.from_below:
        return list(tree.mean_roots)
    estimated = estimated_variances(tree, variances)
    above, slopes = 0.0, [0.0] * len(variances)
    for level in reversed(range(len(variances))):
        own = tree.mean_roots[level] + above
        part = estimated[level] / variances[level]
        slopes[level] = own * part * part
        if level:
            part = estimated[level] / estimated[level - 1]
            above = own * part * part / tree.fanouts[level]
    return slopes
