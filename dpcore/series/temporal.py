"""The temporal tree of a series: when its nodes close, their budgets, and estimates of windows.

Periods 1 to T are its leaves. A row falls into one node of each level, so what the levels spend
adds up. Each node is measured once, when its last period is over; after period t the closed nodes
are complete subtrees, as the digits of t to the base b state (Dwork et al. 2010; Chan, Shi, Song
2010). A temporal level is the tree of a period at a part of the budget, with variances in
proportion, v_l w_i, so the best linear estimate in time and within the tree is the best one
within each tree, then over time (least squares of a Kronecker product is the product of both). A
window's estimate is linear: up, z_v = a_v (y_v / v + S / (b a)); down, u_c = z_c + (u_v - S) / b,
S the sum of z over the children; its weights follow from these steps backwards, and its variance
is the sum of squared weights times variances (Honaker 2015).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dptrees.dpcore.arithmetic.elementary import cube_root
from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.privacy.sensitivity import amount_factor, periods_sensitivity
from dptrees.dpcore.privacy.unit import Budget
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.uniform.plan import UniformForest

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

    def mean_nodes(
        self, window: int | None = None, *, from_below: bool = True
    ) -> tuple[float, ...]:
        """What the variance of a node of each level weighs in that of an answer, on average.

        The last w of the periods so far are whole nodes and the last m periods of one more, of s
        periods. Of this one u = z + e, z the node's estimate: the part m / s of z is inside. A node
        below it with j whole children of b inside, and the part p of one more, adds
        j + p^2 - (j + p)^2 / b times the variance of a child (`_Backward`).

        Args:
            window: w, an answer for each period from the w-th on; None: totals to date.
            from_below: as for `mean_variance`; else windows are sums of the fewest nodes.

        >>> TemporalTree.from_fanout(4, 2).mean_nodes(1)
        (0.75, 0.09375, 0.015625)
        """
        if window is None:
            return self.mean_roots
        over = np.arange(window, self.periods + 1)
        left, weights = np.full(over.size, window), np.zeros(len(self.spans))
        for level, span in enumerate(self.spans):
            above = self.spans[level + 1] if level + 1 < len(self.spans) else 2 * self.periods
            roots = over % above // span
            whole = np.minimum(roots, left // span)
            left -= whole * span
            weights[level] += whole.sum()
            cut = left[whole < roots]
            left[whole < roots] = 0
            weights[level] += from_below * np.square(cut / span).sum()
            for child, size in enumerate(self.spans[:level]):
                parent, part = self.spans[child + 1], cut % size / size
                inside = cut % parent // size
                if from_below:
                    own = inside + part * part - np.square(inside + part) * size / parent
                    weights[child] += own.sum()
                else:
                    weights[child] += inside.sum()
        return tuple((weights / over.size).tolist())


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
    tree: TemporalTree,
    variances: tuple[float, ...],
    *,
    from_below: bool = True,
    window: int | None = None,
) -> float:
    """The variance of the total to date, or of the last w periods, on average over the periods.

    Args:
        tree, variances: as for `estimated_variances`.
        from_below: whether a node is estimated from all that is measured inside it, or is what was
            measured of it alone.
        window: w; None: totals to date.

    >>> mean_variance(TemporalTree.from_fanout(2, 2), (1.0, 1.0))  # 1, then 1 / (1 + 1 / 2)
    0.8333333333333333
    >>> mean_variance(TemporalTree.from_fanout(2, 2), (1.0, 1.0), from_below=False)
    1.0
    """
    own = estimated_variances(tree, variances) if from_below else variances
    parts = zip(tree.mean_nodes(window, from_below=from_below), own, strict=True)
    return math.fsum(number * variance for number, variance in parts)


@dataclass(frozen=True, kw_only=True)
class TemporalSplit:
    """A temporal tree and the shares of a budget that its levels get.

    Args:
        tree: over the periods.
        shares: above 0, of sum 1.
        error: the root of the mean variance of what it is split for, where the whole budget would
            give one period a variance of 1.
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
        from_below, window: as for `mean_variance`.
    """

    power: int
    max_periods: int = 1
    from_below: bool = True
    window: int | None = None


@lru_cache(maxsize=16)
def best_split(periods: int, setting: TemporalSetting) -> TemporalSplit:
    """The tree and the split of a budget with which totals to date, or windows, are best on
    average.

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
    >>> best_split(365, replace(pure, window=30)).tree.spans  # of totals to date: 1 and 21 periods
    (1, 8)
    >>> alone = replace(gaussian, from_below=False)
    >>> best_split(14, alone).tree.spans, round(best_split(14, alone).error, 2)
    ((1, 4), 2.45)
    """
    # Wider trees have a root above the periods, which few totals to date use; long windows do.
    fanouts = set(range(2, max(2, min(periods, _WIDEST)) + 1)) | {max(2, setting.window or 2)}
    trees = [TemporalTree.from_fanout(periods, fanout) for fanout in sorted(fanouts)]
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
    return with_shares(tree, free, setting)


def _earning(split: TemporalSplit, setting: TemporalSetting) -> TemporalSplit:
    """The split without levels whose share is next to nothing; periods keep the least share, as
    they are released in any case."""
    while min(split.shares[1:], default=1.0) < _LEAST_SHARE:
        worst = min(range(1, len(split.shares)), key=lambda level: split.shares[level])
        spans = split.tree.spans[:worst] + split.tree.spans[worst + 1 :]
        split = _split(replace(split.tree, spans=spans), setting)
    if (own := split.shares[0]) >= _LEAST_SHARE:
        return split
    above = [share * (1 - _LEAST_SHARE) / (1 - own) for share in split.shares[1:]]
    return with_shares(split.tree, [_LEAST_SHARE, *above], setting)


def _split(tree: TemporalTree, setting: TemporalSetting) -> TemporalSplit:
    """The best split. The last step's and not that of the least error, which many would share up to
    rounding: every run of a series must find the same one, on whatever machine."""
    shares = [1 / len(tree.spans)] * len(tree.spans)
    squares = _squared_sensitivities(tree, setting)
    nodes = tree.mean_nodes(setting.window, from_below=setting.from_below)
    for _ in range(_STEPS):
        slopes = _slopes(nodes, tree, _variances(tree, shares, setting), setting)
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
    return with_shares(tree, shares, setting)


def _squared_sensitivities(tree: TemporalTree, setting: TemporalSetting) -> list[int]:
    """The squared sensitivity of each level, L1 or L2, in that of one period."""
    found = (periods_sensitivity(setting.max_periods, span) for span in tree.spans)
    return [l2_squared if setting.power == 1 else l1 * l1 for l1, l2_squared in found]


def _variances(
    tree: TemporalTree, shares: Sequence[float], setting: TemporalSetting
) -> tuple[float, ...]:
    squares = _squared_sensitivities(tree, setting)
    return tuple(
        square / (share if setting.power == 1 else share * share)
        for share, square in zip(shares, squares, strict=True)
    )


def with_shares(
    tree: TemporalTree, shares: Sequence[float], setting: TemporalSetting
) -> TemporalSplit:
    """The split of a budget by given shares, with its error at what a setting is for."""
    variances = _variances(tree, shares, setting)
    mean = mean_variance(tree, variances, from_below=setting.from_below, window=setting.window)
    return TemporalSplit(tree=tree, shares=tuple(shares), error=math.sqrt(mean))


def _slopes(
    nodes: Sequence[float],
    tree: TemporalTree,
    variances: tuple[float, ...],
    setting: TemporalSetting,
) -> list[float]:
    """dF/dv of each level, F the mean variance of what is wanted: backwards through
    `estimated_variances`.

    Args:
        nodes: `TemporalTree.mean_nodes`.
        tree, variances, setting: of the split.
    """
    if not setting.from_below:
        return list(nodes)
    estimated = estimated_variances(tree, variances)
    above, slopes = 0.0, [0.0] * len(variances)
    for level in reversed(range(len(variances))):
        own = nodes[level] + above
        part = estimated[level] / variances[level]
        slopes[level] = own * part * part
        if level:
            part = estimated[level] / estimated[level - 1]
            above = own * part * part / tree.fanouts[level]
    return slopes


@dataclass(frozen=True, kw_only=True)
class Window:
    """Periods in a row, as far as a series has come.

    Args:
        first, last: the periods, both inside.
        arrived: the last period that is over; what has closed by then is used.

    Raises:
        Refusal: they are not in the order 1 <= first <= last <= arrived.

    >>> Window(first=3, last=10, arrived=12).last
    10
    """

    first: int
    last: int
    arrived: int

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last <= self.arrived:
            raise Refusal(
                "window",
                f"{self.first}:{self.last} is not within the {self.arrived} periods that have "
                "been released",
            )


def window_weights(
    tree: TemporalTree, variances: tuple[float, ...], window: Window
) -> dict[Span, float]:
    """The weight of every closed node's estimate in that of a window.

    Args:
        tree: over the periods.
        variances: of the measurement of a node of each level, up to a common factor.
        window: periods in a row.

    Returns:
        the nodes whose weight is not 0; the estimate is unbiased, and of all that are linear in
        what is measured the one of least variance.

    >>> tree = TemporalTree.from_fanout(4, 2)
    >>> found = window_weights(tree, (1.0, 1.0, 1.0), Window(first=1, last=2, arrived=2))
    >>> {(span.first, span.last): round(weight, 3) for span, weight in found.items()}
    {(1, 2): 0.667, (1, 1): 0.333, (2, 2): 0.333}
    """
    backward = _Backward(tree, variances, window)
    for root in tree.roots(window.arrived):
        backward.add(root, backward.window_share(root))
    return {span: weight for span, weight in backward.weights.items() if weight}


def level_factors(tree: TemporalTree, weights: Mapping[Span, float]) -> tuple[float, ...]:
    """Per level, the sum of the squares of its nodes' weights: the variance of a window's estimate
    is the sum of these times the variances of the levels."""
    results = [0.0] * len(tree.spans)
    for span, weight in weights.items():
        results[span.level] += weight * weight
    return tuple(results)


class _Backward:
    """Follow the estimation backwards from a window.

    Attributes:
        weights: of the measurements, so far.
    """

    def __init__(self, tree: TemporalTree, variances: tuple[float, ...], window: Window) -> None:
        self._tree, self._variances, self._window = tree, variances, window
        self._estimated = estimated_variances(tree, variances)
        self.weights: dict[Span, float] = {}

    def window_share(self, span: Span) -> float:
        """The part of a node's u in the window, where z of the nodes below it gives all else,
        whose weights are added here."""
        if span.first > self._window.last or span.last < self._window.first:
            return 0.0
        if self._window.first <= span.first and span.last <= self._window.last:
            return 1.0
        children = self._children(span)
        shares = [self.window_share(child) for child in children]
        mean = math.fsum(shares) / len(shares)
        for child, share in zip(children, shares, strict=True):
            self.add(child, share - mean)
        return mean

    def add(self, span: Span, weight: float) -> None:
        """Add a weight of z of a node, as weights of the measurements inside it."""
        if not weight:
            return
        level = span.level
        own = self._estimated[level] / self._variances[level]
        self.weights[span] = self.weights.get(span, 0.0) + weight * own
        if level:
            below = self._tree.fanouts[level] * self._estimated[level - 1]
            for child in self._children(span):
                self.add(child, weight * self._estimated[level] / below)

    def _children(self, span: Span) -> list[Span]:
        size = self._tree.spans[span.level - 1]
        starts = range(span.first, span.last + 1, size)
        return [Span(span.level - 1, start, start + size - 1) for start in starts]


# Of noise that is zero for all that floats can say.
_LEAST_VARIANCE = 1e-100


def adds_up(question: object) -> bool:
    """Whether temporal nodes of a tree can be put together: its leaves are known, and its estimates
    are linear in what was measured, by least squares."""
    return (
        isinstance(question, TreeQuestion)
        and question.mechanism.errors_are_known
        and type(question.forest) in (UniformForest, IrregularForest)
    )


def scaled(question: TreeQuestion[Any], budget: Budget) -> TreeQuestion[Any]:
    """The same tree at another budget, split over its levels in the same proportions."""
    plan: Any = question.plan
    factor = budget.amount / plan.budget.amount
    amounts = tuple(amount * factor for amount in plan.level_amounts)
    return _with_plan(question, replace(plan, budget=budget, level_amounts=amounts))


def windowed(levels: Sequence[TreeQuestion[Any]], factors: Sequence[float]) -> TreeQuestion[Any]:
    """The tree whose noise has the variance of a window's, for the errors of its estimates.

    Nothing is drawn by it. At every level of the tree its law is that of the amount at which the
    variance is the sum of the factors times the temporal levels' variances.

    Args:
        levels: for each temporal level, the tree.
        factors: `level_factors`.
    """
    first: Any = levels[0].plan
    amounts = []
    for level, amount in enumerate(first.level_amounts):
        laws = [_law(each.plan, level) for each in levels]
        own = laws[0]
        if own is None:
            amounts.append(amount)
            continue
        variance = math.fsum(
            factor * _variance(law) for factor, law in zip(factors, laws, strict=True) if law
        )
        amounts.append(
            amount * Fraction(amount_factor(first.budget.measure, _variance(own), variance))
        )
    budget = replace(first.budget, amount=sum(amounts, Fraction(0)))
    return _with_plan(levels[0], replace(first, budget=budget, level_amounts=tuple(amounts)))


def _with_plan(question: TreeQuestion[Any], plan: Any) -> TreeQuestion[Any]:
    """Return the same tree with another plan."""
    return replace(question, mechanism=replace(question.mechanism, plan=plan))


def leaf_variance(question: TreeQuestion[Any]) -> float:
    """The variance of the noise of a leaf."""
    law = _law(question.plan, question.plan.tree.height)
    assert law is not None
    return _variance(law)


def _law(plan: Any, level: int) -> NoiseLaw | None:
    """The noise of a level's nodes; of an irregular tree, of those that have siblings."""
    result: NoiseLaw | None = plan.laws[level] if hasattr(plan, "laws") else plan.law(level, 0)
    return result


def _variance(law: NoiseLaw) -> float:
    return max(float(law.variance), _LEAST_VARIANCE)
