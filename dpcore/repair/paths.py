"""Errors of consistent counts, simulated along paths from the root to leaf boundaries.

`dpcore.trees.consistency` repairs estimates to nonnegative integers that add up. Where most nodes
hold no rows that changes the error by a factor, which no formula of the plan gives. The error of
a prefix depends on the children of the nodes on its path alone: they are drawn here, with their
subtrees' noise in one draw each, so a path costs the sum of the fan-outs, whatever the number of
leaves. A range is a pair of paths that share their draws down to where they part. Draws come from
a public stream and are cached by their place in it, so a prediction is the same in every run; the
histograms are public shapes (smooth, skewed, heavy-tailed, spiky) at a public guess of the number
of rows. For planning only. Source: derived here; gamma and Zipf as in Rameshwar, Tandon, Sharma,
Section VI.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.elementary import cos, exp, log, log1p, sin
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.laws import DiscreteLaplace, NoiseLaw
from dptrees.dpcore.noise.randomness import RandomStream, public_stream
from dptrees.dpcore.trees.consistency import root_count, split_counts
from dptrees.dpcore.trees.isotonic import rising_counts
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import TreePlan

# Numbers that are kept at most, in all: 64 MiB.
_MOST_KEPT = 2**23
_kept: dict[tuple[str, int, int, int], tuple[Floats, ...]] = {}


class PublicDraws:
    """The draws of a simulation, from the beginning of the stream of a tree's height.

    For planning alone: anybody can compute them.

    Args:
        height: of the tree.

    >>> first, second = PublicDraws(3), PublicDraws(3)
    >>> first.normal(4).tolist() == second.normal(4).tolist()
    True
    """

    def __init__(self, height: int) -> None:
        self._height, self._place = height, 0
        self._stream: RandomStream | None = None
        self._read = 0

    def normal(self, size: int) -> Floats:
        """Return standard normal numbers, (size,), not to be written to."""
        return self._numbers("normal", size, 16 * -(-size // 2), _normal)[0]

    def noise(self, law: NoiseLaw, size: int, shape: tuple[int, ...], *, firsts: bool) -> Floats:
        """Return draws of a law in floating point.

        Args:
            law: of the noise.
            size: how many numbers the stream gives for them.
            shape: of the numbers.
            firsts: whether only the first number along the second axis of the shape is wanted.

        Returns:
            An array of the shape, of length 1 along the second axis for ``firsts``.
        """

        def wanted(numbers: Floats) -> Floats:
            shaped = numbers.reshape(shape)
            return shaped[:, :1] if firsts else shaped

        if not isinstance(law, DiscreteLaplace):
            return np.rint(math.sqrt(law.variance) * wanted(self.normal(size)))
        rate = 1 / float(law.scale)
        logs, signs = map(wanted, self._numbers("laplace", size, 10 * size, _logs_and_signs))
        # P(|X| >= k) = 2 q^k / (1 + q), q = exp(-rate).
        reached = log(2 / (1 + exp(-rate))) - logs
        reached /= rate
        np.ceil(reached, out=reached)
        reached -= 1
        np.maximum(reached, 0.0, out=reached)
        reached *= signs
        return reached

    def _numbers(
        self,
        kind: str,
        size: int,
        length: int,
        make: Callable[[RandomStream, int], tuple[Floats, ...]],
    ) -> tuple[Floats, ...]:
        """Numbers of a kind, made of the next ``length`` bytes of the stream, or kept."""
        key = kind, self._height, self._place, size
        found = _kept.get(key)
        if found is None:
            found = make(self._stream_here(), size)
            self._read = self._place + length
            _keep(key, found)
        self._place += length
        return found

    def _stream_here(self) -> RandomStream:
        """The stream at this place; what was kept has been passed over."""
        if self._stream is None:
            self._stream = public_stream("counts", self._height)
        self._stream.bytes(self._place - self._read)
        return self._stream


def _keep(key: tuple[str, int, int, int], numbers: tuple[Floats, ...]) -> None:
    """Keep numbers, and none of the earlier ones where there would be too many."""
    for each in numbers:
        each.setflags(write=False)
    held = sum(one.size for each in list(_kept.values()) for one in each)
    own = sum(each.size for each in numbers)
    if held + own > _MOST_KEPT:
        _kept.clear()
    if own <= _MOST_KEPT:
        _kept[key] = numbers


def _normal(stream: RandomStream, size: int) -> tuple[Floats]:
    """Box and Muller's pairs."""
    half = -(-size // 2)
    radius = np.sqrt(-2 * log(_uniform_numbers(stream, half)))
    angle = 2 * math.pi * _uniform_numbers(stream, half)
    return (np.concatenate([radius * cos(angle), radius * sin(angle)])[:size],)


def _logs_and_signs(stream: RandomStream, size: int) -> tuple[Floats, Floats]:
    """Logarithms of uniform numbers, and signs."""
    logs = log(_uniform_numbers(stream, size))
    return logs, np.where(stream.uint16(size) & 1, 1.0, -1.0)


def _uniform_numbers(stream: RandomStream, size: int) -> Floats:
    """Uniform numbers in (0, 1)."""
    drawn: Floats = ((stream.uint64(size) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return drawn


# A distribution on [0, 1): the part of the rows below x.
Distribution = Callable[[Floats], Floats]

# Fractional parts of its multiples are spread evenly, and hit no edge of a tree.
_GOLDEN = (math.sqrt(5) - 1) / 2
_GAMMA_RATE = 12.0
_ZIPF_RANGE = 1000.0
_SPIKES, _SPIKED_PART = 12, 0.8
_HEAPS = 50


def _gamma(x: Floats) -> Floats:
    """Return the distribution function of a gamma law of shape 2, cut off where one row in 10^4 is
    left."""
    below: Floats = 1 - exp(-_GAMMA_RATE * x) * (1 + _GAMMA_RATE * x)
    return below / (1 - exp(-_GAMMA_RATE) * (1 + _GAMMA_RATE))


def _zipf(x: Floats) -> Floats:
    """Density as 1 / (1 + 1,000 x)."""
    below: Floats = log1p(_ZIPF_RANGE * x) / log1p(_ZIPF_RANGE)
    return below


def _steps(places: Floats, weights: Floats, x: Floats) -> Floats:
    order = np.argsort(places, kind="stable")
    summed = np.concatenate([[0.0], np.cumsum(weights[order] / weights.sum())])
    below: Floats = summed[np.searchsorted(places[order], x, side="left")]
    return below


def _spiky(x: Floats) -> Floats:
    """Four fifths of the rows at 12 points, of weights 1, 1/2, 1/3, ...; the rest everywhere."""
    ranks = np.arange(1.0, _SPIKES + 1)
    spikes = _steps(ranks * _GOLDEN % 1, 1 / ranks, x)
    return _SPIKED_PART * spikes + (1 - _SPIKED_PART) * x


def _heaped(x: Floats) -> Floats:
    """All rows at the middles of 50 equal parts, as round numbers are; bell-shaped weights."""
    places = (np.arange(_HEAPS) + 0.5) / _HEAPS
    return _steps(places, exp(-18 * np.square(places - 0.5)), x)


def _uniform_cdf(x: Floats) -> Floats:
    return x


REFERENCES: tuple[Distribution, ...] = (_uniform_cdf, _gamma, _zipf, _spiky, _heaped)


def rows_below(reference: Distribution, rows: int, parts: Floats) -> Integers:
    """Number of a distribution's rows below points.

    Row i is at the quantile (i + v_i) / rows, where v_i, the fractional part of i times the
    golden ratio, is as good as uniform; so counts of cells differ as samples' do, if by less.

    Args:
        reference: the distribution.
        rows: at least 0.
        parts: points, in [0, 1].

    >>> rows_below(REFERENCES[0], 1000, np.array([0.0, 0.25, 1.0])).tolist()
    [0, 250, 1000]
    """
    ranks = rows * np.clip(reference(parts), 0.0, 1.0)
    rounded = np.floor(ranks)
    below: Integers = (rounded + (ranks - rounded > rounded * _GOLDEN % 1)).astype(np.int64)
    return below


# What represents the estimate of a child that does not exist: the repair makes it zero.
_NO_CHILD = -1e300

_Flags = npt.NDArray[np.bool_]
_Value = TypeVar("_Value", np.float64, np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Children:
    """The children of the paths' nodes at one level: (rows, k, n) each but for the last ones.

    A row is a pair of paths on a histogram, the pairs of the first histogram first. Below the root
    k is 1, since both paths of a pair have one parent there, and else 2, one for each path.

    Attributes:
        exact: the rows of each child.
        exists: whether there is such a child, in a trimmed tree; None where there are all.
        number: (rows, k) how many there are.
        sums: (rows, k) the rows of all of them.
        place: (rows, 2) which of them the path goes through.
        left: (rows, 2) how many of them lie left of the path's boundary.
        left_rows: (rows, 2) the rows of these.
        shared: (m,) where the two paths of a pair have one parent.
    """

    exact: Floats
    exists: _Flags | None
    number: Integers
    sums: Integers
    place: Integers
    left: Integers
    left_rows: Integers
    shared: Integers

    def on_path(self, values: npt.NDArray[_Value]) -> npt.NDArray[_Value]:
        """(rows, 2) the values of the children that the paths go through."""
        return _taken(values, self.place)

    def present(self, values: Floats) -> Floats:
        """Values of the children, 0 where there is none."""
        return values if self.exists is None else np.where(self.exists, values, 0.0)


def _taken(values: npt.NDArray[_Value], place: Integers) -> npt.NDArray[_Value]:
    """(rows, 2) of (rows, k, n) values, those at a place for each path."""
    if values.shape[1] == 1:
        return np.take_along_axis(values[:, 0], place, axis=-1)
    return np.take_along_axis(values, place[..., None], axis=-1)[..., 0]


@dataclass(frozen=True, kw_only=True, eq=False)
class Paths:
    """Pairs of paths from the root of a tree to leaf boundaries, on some histograms.

    Attributes:
        pairs: how many on each histogram.
        rows: how many rows there are.
        levels: the children along the paths, the root's first.
    """

    pairs: int
    rows: int
    levels: tuple[_Children, ...]


def lay_paths(
    tree: UniformTree, rows: int, sides: Sequence[tuple[Distribution, Integers]]
) -> Paths:
    """Return the paths to boundaries, with the exact counts beside them.

    Args:
        tree: of at least two leaves.
        rows: how many there are.
        sides: histograms, each with its (pairs, 2) boundaries: so many leaves lie left of each.
    """
    pairs = len(sides[0][1])
    return Paths(pairs=pairs, rows=rows, levels=tuple(_levels(tree, rows, sides)))


def path_errors(plan: TreePlan, paths: Paths, *, shrunk: bool = False) -> tuple[Floats, Floats]:
    """One draw each of the errors of the consistent counts left of boundaries.

    Each histogram has the same noise.

    Args:
        plan: of measured levels, estimated efficiently; of a tree of at least two leaves.
        paths: in the plan's tree, from `lay_paths`.
        shrunk: whether the counts come from `dpcore.trees.isotonic`.

    Returns:
        (histograms * pairs, 2) count minus truth of the leaves left of each boundary, and
        (histograms * pairs,) that of the whole tree. The two of a pair are of one release, pairs of
        different ones.
    """
    noise = _SubtreeNoise(laws=plan.laws[1:], fanouts=plan.tree.fanouts[1:])
    root, values = _from_below(plan, paths, noise)
    estimate = np.full(root.shape, float(paths.rows)) if plan.public_total else root
    count = root_count(estimate)
    errors: Floats = np.zeros((len(root), 2))
    for level, (children, value) in enumerate(zip(paths.levels, values, strict=True)):
        solved = _solved(children, *value, estimate)
        if shrunk and not level:
            public = count[:, 0] if plan.public_total else None
            split = rising_counts(solved[:, 0], public)[:, None]
            count = split.sum(axis=-1)
        else:
            split = _split(solved, noise.variances[level], count, shrunk=shrunk)
        if not level:
            total = (count[:, 0] - paths.rows).astype(np.float64)
        up_to = np.concatenate([np.zeros_like(split[..., :1]), np.cumsum(split, axis=-1)], axis=-1)
        errors += _taken(up_to, children.left) - children.left_rows
        estimate, count = children.on_path(solved), children.on_path(split)
    return errors, total


def _levels(
    tree: UniformTree, rows: int, sides: Sequence[tuple[Distribution, Integers]]
) -> Iterator[_Children]:
    """Generate every level below the root, the root's children first."""
    stops = np.concatenate([each for _, each in sides])
    leaf = np.minimum(stops, tree.leaves - 1)
    # Left of the last boundary lies the whole tree: the root's children are all of it.
    whole = stops == tree.leaves
    parent = np.zeros_like(leaf)
    for level, fanout in enumerate((tree.level_sizes[1], *tree.fanouts[1:]), start=1):
        leaves, both = tree.leaves_below(level), slice(1 if level == 1 else 2)
        edges = (parent[:, both, None] * fanout + np.arange(fanout + 1)) * leaves
        edges = np.minimum(edges, tree.leaves)
        exists = edges[..., 1:] > edges[..., :-1]
        left = (exists & (edges[..., 1:] <= stops[..., None])).sum(axis=-1)
        if level > 1:
            left = np.where(whole, 0, left)
        below = np.concatenate(
            [
                rows_below(reference, rows, each / tree.leaves)
                for (reference, _), each in zip(sides, np.split(edges, len(sides)), strict=True)
            ]
        )
        child = leaf // leaves
        yield _Children(
            exact=np.diff(below, axis=-1).astype(np.float64),
            exists=None if exists.all() else exists,
            number=exists.sum(axis=-1),
            sums=below[..., -1] - below[..., 0],
            place=child - parent * fanout,
            left=left,
            left_rows=_taken(below, left) - below[..., 0],
            shared=np.flatnonzero(parent[:, 0] == parent[:, 1]),
        )
        parent = child


def _from_below(
    plan: TreePlan, paths: Paths, noise: _SubtreeNoise
) -> tuple[Floats, list[tuple[Floats, Floats]]]:
    """Estimates of the root from below, (rows, 1), and estimates of all children, (rows, k, n),
    with the sum of each node's, (rows, k), the root's first."""
    draws, values = PublicDraws(plan.tree.height), list[tuple[Floats, Floats]]()
    path: Floats | None = None
    for level in range(plan.tree.height, 0, -1):
        children = paths.levels[level - 1]
        n = children.exact.shape[-1]
        own = noise.drawn(draws, level - 1, (paths.pairs, 2, n), firsts=level == 1)
        value = (children.exact.reshape(-1, *own.shape) + own).reshape(children.exact.shape)
        if level > 1:
            value[children.shared, 1] = value[children.shared, 0]
        if path is not None:
            _put_on_paths(children, value, path)
        sums: Floats = children.present(value).sum(axis=-1)
        values.append((value, sums))
        law, child = plan.laws[level - 1], noise.variances[level - 1]
        path = sums
        if law is not None:
            drawn = draws.noise(law, 2 * paths.pairs, (paths.pairs, 2), firsts=level == 1)
            path = _joined(law, child, children, sums, drawn)
    assert path is not None
    return path, values[::-1]


@dataclass(frozen=True, kw_only=True)
class _SubtreeNoise:
    """The errors of the estimates from below of full nodes, from the root's children to the leaves.

    Args:
        laws: (h,) of the levels' own noise.
        fanouts: (h - 1,) of the nodes above the leaves.
    """

    laws: tuple[NoiseLaw | None, ...]
    fanouts: tuple[int, ...]

    @cached_property
    def _sums(self) -> tuple[float, ...]:
        """(h,) the variances of the sums of nodes' children, infinite of leaves."""
        sums = [math.inf]
        for law, fanout in zip(reversed(self.laws[1:]), reversed(self.fanouts), strict=True):
            sums.append(fanout * _combined(law, sums[-1]))
        return tuple(reversed(sums))

    @cached_property
    def variances(self) -> tuple[float, ...]:
        """(h,) a of full nodes."""
        return tuple(map(_combined, self.laws, self._sums))

    def drawn(
        self, draws: PublicDraws, index: int, shape: tuple[int, ...], *, firsts: bool
    ) -> Floats:
        """Draws of one level: nodes' own noise and that of their subtrees, which is a sum of many
        and so nearly normal; only the first of each pair for ``firsts``."""
        law, below, size = self.laws[index], self._sums[index], math.prod(shape)
        if math.isinf(below):
            assert law is not None
            return draws.noise(law, size, shape, firsts=firsts)
        normal = draws.normal(size).reshape(shape)
        from_below = math.sqrt(below) * (normal[:, :1] if firsts else normal)
        if law is None:
            return from_below
        weight = _weight(law, below)
        own = draws.noise(law, size, shape, firsts=firsts)
        mixed: Floats = weight * own + (1 - weight) * from_below
        return mixed


def _combined(law: NoiseLaw | None, below: float) -> float:
    """The variance of the best estimate from a node's own noisy count and its children's sum."""
    if law is None:
        return below
    return law.variance if math.isinf(below) else law.variance * _weight(law, below)


def _weight(law: NoiseLaw, below: float) -> float:
    """Return the weight of a node's own noisy count in the best estimate; any weight where a budget
    leaves no noise."""
    total = law.variance + below
    return below / total if total else 1.0


def _put_on_paths(children: _Children, value: Floats, path: Floats) -> None:
    """Put the estimates of the paths' nodes in the place of drawn ones, for both paths of a pair
    where they still share a parent."""
    rows = np.arange(len(value))
    if value.shape[1] == 1:
        for one in (0, 1):
            value[rows, 0, children.place[:, one]] = path[:, one]
        return
    shared = children.shared
    for one in (0, 1):
        value[shared, 1 - one, children.place[shared, one]] = path[shared, one]
    for one in (0, 1):
        value[rows, one, children.place[:, one]] = path[:, one]


def _joined(
    law: NoiseLaw, child: float, children: _Children, sums: Floats, drawn: Floats
) -> Floats:
    """(rows, k) the estimates from below of the paths' nodes, from the sums of their children's,
    each of the variance ``child``, and their own noise."""
    histograms = len(sums) // len(drawn)
    own = np.concatenate([drawn] * histograms)
    if sums.shape[1] == 2:
        own[children.shared, 1] = own[children.shared, 0]
    below = child * children.number
    weight = below / (law.variance + below) if law.variance else np.ones(sums.shape)
    measured = children.sums + own
    joined: Floats = weight * measured + (1 - weight) * sums
    return joined


def _solved(children: _Children, value: Floats, sums: Floats, estimate: Floats) -> Floats:
    """The children's estimates, from the pass down."""
    excess = (estimate - sums) / children.number
    solved: Floats = value + excess[..., None]
    return solved if children.exists is None else np.where(children.exists, solved, _NO_CHILD)


def _split(solved: Floats, below: float, count: Integers, *, shrunk: bool) -> Integers:
    """The children's counts, from estimates of the variance ``below`` each."""
    flat = solved.reshape(-1, solved.shape[-1])
    return split_counts(flat, below, count.reshape(-1), shrunk=shrunk).reshape(solved.shape)
