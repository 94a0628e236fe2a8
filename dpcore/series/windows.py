"""The best estimate of a window of periods from all that has closed: what each node weighs in it.

The measurements of different nodes are independent, so the variance of an estimate is the sum of
its squared weights times their variances: exact, whichever nodes two windows share.

Source: the design, section 5: up, z_v = a_v (y_v / v + S / (b a)); down, u_c = z_c + (u_v - S) / b,
with S the sum of z over the children. A window's estimate is linear in u, so its weights are found
by following these steps backwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.series.temporal import Span, TemporalTree, estimated_variances


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
