"""The best unbiased linear mechanism under Gaussian noise, with a certificate of its optimality.

A strategy measures M x with noise of variance sigma^2; least squares has the covariance sigma^2
X^-1, X = M'M. With columns of M of norm at most 1, that is diag X <= 1, a workload A has the
total variance tr(G X^-1), G = A'A. So X > 0 with diag X <= 1 is to minimize tr(G X^-1). For
weights v > 0 of the cells, D = diag(v)^(1/2) and S = (D G D)^(1/2),

    tr(G X^-1) = tr(G X^-1) + 2 tr(S) - 2 tr(S) >= 2 tr(S) - tr(D X D) >= 2 tr(S) - sum v,

with equality in the first step at X = D^-1 S D^-1 (the squared norm of D X^(1/2) - S D^-1
X^(-1/2) is not negative); the best multiple of v gives the *dual bound* (tr S)^2 / sum v. That X,
divided by its largest diagonal entry m = max S_ii / v_i, is feasible and has tr(S) m, so m sum v
/ tr S is a certificate: 1 at the fixed point of v <- diag (D G D)^(1/2). The map contracts;
mixing past steps (Anderson 1965) makes it fast. Steps are rounded, so all processors get the same
weights. Source: the dual is that of Li et al. 2015 and, in another form, Yuan et al. 2016; the
steps are derived here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, log
from dptrees.dpcore.arithmetic.matrices import (
    decided_rounding,
    integer_product,
    path_root_diagonal,
    rounded_root_diagonal,
)
from dptrees.dpcore.arithmetic.sums import dot, interpolated
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.specification import Coded

# The largest part of the variance that may be left to gain.
TOLERANCE = 1e-3
_COARSEST = 24
_MEMORY = 6
_MOST_STEPS = 200
# Bits to which a step is rounded. Of many cells so few that a step in linear time, or LAPACK alone,
# nearly always decides them: weights have four digits, and an error of 2^-14 moves the gap by 1e-4.
_FINE_BITS, _COARSE_BITS, _MOST_FINE = 30, 14, 256
# Steps of the last points that depend on the others to this part are left out of the mixing.
_DEPENDENT = 1e-10
# What an error of a public total weighs.
_TOTAL = 1e-3

# From a number of cells to G, (n, n).
Gram = Callable[[int], Floats]


@dataclass(frozen=True, kw_only=True, eq=False)
class Optimum:
    """Weights of the cells, and what is known of the strategy that they represent.

    Attributes:
        weights: (n,) v, of mean 1.
        gap: the variance is at most 1 + gap times that of the best strategy.
        bound: the dual bound, tr(G X^-1) of the best strategy, in units of the noise's variance.
    """

    weights: Floats
    gap: float
    bound: float


def optimal_weights(
    gram: Gram, cells: int, tolerance: float = TOLERANCE, *, of_prefixes: bool = False
) -> Optimum:
    """The weights of the best strategy for a workload, from coarser to finer cells.

    Args:
        gram: G of the workload on so many cells, positive definite.
        cells: n.
        tolerance: the gap that is good enough.
        of_prefixes: whether the workload is all prefixes, whose steps are faster.

    Raises:
        ValueError: the steps did not come near enough.

    >>> found = optimal_weights(prefix_gram, 256)
    >>> bool(found.gap < 1e-3), round((found.bound / 256) ** 0.5, 3)
    (True, 2.524)
    """
    sizes = [cells]
    while sizes[0] > _COARSEST:
        sizes.insert(0, -(-sizes[0] // 2))
    weights, bits = np.ones(sizes[0]), _FINE_BITS if cells <= _MOST_FINE else _COARSE_BITS
    for size in sizes:
        start, is_path = _refined(weights, size), of_prefixes and bits == _COARSE_BITS
        result = _fixed_point(gram(size), start, tolerance, bits, is_path=is_path)
        weights = result.weights
    return result


def _fixed_point(
    gram: Floats, weights: Floats, tolerance: float, bits: int, *, is_path: bool
) -> Optimum:
    """Mixed steps v <- diag (D G D)^(1/2), rounded to some bits, until the certificate holds."""
    points: list[Floats] = []
    steps: list[Floats] = []
    for _ in range(_MOST_STEPS):
        weights = weights / weights.mean()
        own = _rounded_step(gram, weights, bits, is_path=is_path)
        gap = float((own / weights).max() * weights.sum() / own.sum()) - 1.0
        if gap <= tolerance:
            bound = float(np.square(own.sum()) / weights.sum())
            return Optimum(weights=weights, gap=gap, bound=bound)
        points.append(log(weights))
        steps.append(log(own / own.mean()) - points[-1])
        del points[:-_MEMORY], steps[:-_MEMORY]
        weights = exp(_mixed(points, steps))
    raise ValueError(f"strategy: its variance is still {gap:.2g} above the best")


def _rounded_step(gram: Floats, weights: Floats, bits: int, *, is_path: bool) -> Floats:
    """(n,) diag (D G D)^(1/2), rounded: of prefixes in linear time, where that decides the bits."""
    if is_path:
        diagonal, error = path_root_diagonal(weights)
        rounded = decided_rounding(diagonal, bits, error)
        if rounded is not None:
            return rounded
    return rounded_root_diagonal(weighted_gram(gram, np.sqrt(weights)), bits)


def _mixed(points: list[Floats], steps: list[Floats]) -> Floats:
    """The next point from the last ones and their steps."""
    if len(points) == 1:
        return points[0] + steps[0]
    moved = [points[-1] - each for each in points[:-1]]
    changed = [steps[-1] - each for each in steps[:-1]]
    together = [one + other for one, other in zip(moved, changed, strict=True)]
    return np.asarray(points[-1] + steps[-1] - _combined(together, changed, steps[-1]))


def weighted_gram(gram: Floats, roots: Floats) -> Floats:
    """D G D, symmetric to the last bit.

    Args:
        gram: G, (n, n).
        roots: (n,) the diagonal of D, square roots of weights.
    """
    lower = np.tril(roots[:, None] * gram * roots)
    return np.asarray(lower + np.tril(lower, -1).T)


def _combined(values: list[Floats], columns: list[Floats], target: Floats) -> Floats:
    """Sum of values with the coefficients by which the columns come closest to a target.

    Columns are made orthogonal one after the other (Gram and Schmidt, twice for accuracy), with
    the values in step, so that no triangular system is left to solve.
    """
    total = np.zeros(target.shape)
    bases: list[tuple[Floats, Floats]] = []
    for column, value in zip(columns, values, strict=True):
        length = dot(column, column)
        for _ in range(2):
            for base, along in bases:
                part = dot(base, column)
                column, value = column - part * base, value - part * along
        rest = dot(column, column)
        if rest > _DEPENDENT * _DEPENDENT * length:
            norm = math.sqrt(rest)
            bases.append((column / norm, value / norm))
            total += dot(bases[-1][0], target) * bases[-1][1]
    return total


def _refined(weights: Floats, cells: int) -> Floats:
    """Weights of finer cells: at either end they follow powers of the distance from it."""
    known, wanted = _place(weights.size), _place(cells)
    values = log(weights)
    found = interpolated(wanted, known, values)
    if weights.size > 1:
        for outside, end, inner in (
            (wanted < known[0], 0, 1),
            (wanted > known[-1], -1, -2),
        ):
            slope = (values[end] - values[inner]) / (known[end] - known[inner])
            found[outside] = values[end] + slope * (wanted[outside] - known[end])
    return np.asarray(exp(found))


def _place(cells: int) -> Floats:
    """(n,) log-odds of the middle of each cell."""
    middle = np.arange(cells, dtype=np.float64) + 0.5
    return np.asarray(log(middle) - log(cells - middle))


def prefix_gram(cells: int) -> Floats:
    """G of all prefixes: cells i and j are together in n - max(i, j) of them."""
    index = np.arange(cells, dtype=np.float64)
    return np.asarray(cells - np.maximum(index[:, None], index))


def centered_gram(cells: int) -> Floats:
    """G of prefix - (t / n) total over all prefixes t, and a little of the total, which makes it
    definite. Where the total is public an error of it is no error, and of the strategies with
    columns of norm 1 the best for these differences is then 5 % better than that for prefixes,
    though its columns, which may point away from each other, are farther apart.

    In whole numbers, n times G without the total is
    n (n - max(i, j)) - (T_i + T_j) + (n + 1) (2 n + 1) / 6, T_i = (i + 1) + ... + n.
    """
    index = np.arange(cells, dtype=np.float64)
    later = (cells - index) * (cells + index + 1) / 2
    squares = (cells + 1) * (2 * cells + 1) / 6
    sums = cells * prefix_gram(cells) - (later[:, None] + later) + squares
    return np.asarray(sums / cells + _TOTAL * cells)


def rank_gram(cells: int, quantiles: tuple[float, ...]) -> Floats:
    """G of prefix - q total over all prefixes, the mean over some q: what decides quantiles.

    Of one q it is n - max(i, j) - q ((n - i) + (n - j)) + n q^2.
    """
    left = cells - np.arange(cells, dtype=np.float64)
    # Python's own sum rounds otherwise from 3.12 on.
    first, second = math.fsum(quantiles), math.fsum(each * each for each in quantiles)
    crossed = first * (left[:, None] + left) - second * cells
    return np.asarray(prefix_gram(cells) - crossed / len(quantiles))


def range_gram(cells: int, widths: tuple[int, ...]) -> Floats:
    """G of n ranges of each of some widths, spread evenly, the mean over the widths; without any,
    of all ranges: cells i and j are together in (min(i, j) + 1) (n - max(i, j)) of them.

    Raises:
        ValueError: a width is above the number of cells.
    """
    index = np.arange(cells, dtype=np.float64)
    if not widths:
        together = (np.minimum(index[:, None], index) + 1) * prefix_gram(cells)
        return np.asarray(together * (2.0 / (cells + 1)))
    gram = np.zeros((cells, cells))
    for width in widths:
        if width > cells:
            raise ValueError(f"widths: {width} is above the number of cells, {cells}")
        starts = np.arange(cells - width + 1.0)[:, None]
        inside = ((starts <= index) & (index < starts + width)).astype(np.int64)
        together = integer_product(inside.T, inside).astype(np.float64)
        gram += together * (cells / starts.size / len(widths))
    return gram


KINDS = ("cdf", "centred", "quantiles", "ranges")
# The part of all prefixes in what is read else, so that every cell is estimated.
_PREFIXES = 0.01


@dataclass(frozen=True, kw_only=True)
class Read(Coded):
    """The sums of the cells that are read.

    Args:
        kind: "cdf": all prefixes; "centred": the same where the total is public, less their even
            share of it; "quantiles": prefix - q total, over all prefixes; "ranges".
        shares: q of quantiles.
        widths: of ranges, in cells; none for all ranges.

    Raises:
        ValueError: no such kind.

    >>> Read(kind="ranges", widths=(10,)).gram(20).shape
    (20, 20)
    """

    kind: str
    shares: tuple[float, ...] = ()
    widths: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"read: {self.kind!r} is none of {', '.join(KINDS)}")

    def gram(self, cells: int) -> Floats:
        """G = A'A of so many sums as there are cells, (n, n)."""
        if self.kind == "cdf":
            return prefix_gram(cells)
        if self.kind == "centred":
            return centered_gram(cells)
        if self.kind == "quantiles":
            own = rank_gram(cells, self.shares)
        else:
            own = range_gram(cells, self.widths)
        return (1 - _PREFIXES) * own + _PREFIXES * prefix_gram(cells)

    def on_fewer(self, cells: int, wanted: int) -> Read:
        """The same on ``wanted`` cells in place of ``cells``."""
        widths = (max(1, round(width * wanted / cells)) for width in self.widths)
        return replace(self, widths=tuple(widths))
