"""Errors of consistent counts, simulated along paths from the root to leaf boundaries.

`dpcore.trees.consistency` repairs estimates to nonnegative integers that add up. Where most nodes
hold many rows that changes little; where most hold none it changes the error by a factor, which no
formula of the plan alone says. The error of a prefix depends on the children of the nodes on its
path alone: they are drawn here, with their subtrees' noise in one draw each, so that a path costs
the sum of the fan-outs, whatever the number of leaves. A range is a pair of paths that share their
draws down to where they part.

The draws come from a public stream (`dpcore.noise.randomness.public_stream`): a prediction is the
same in every run, and for planning only.

Source: derived here; the recursions are the same as in `dpcore.trees.least_squares`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dpcore.arithmetic.angles import cos, sin
from dpcore.arithmetic.elementary import exp, log
from dpcore.arrays import Floats, Integers
from dpcore.noise.laws import DiscreteLaplace, NoiseLaw
from dpcore.noise.randomness import RandomStream, public_stream
from dpcore.repair.references import Distribution, rows_below
from dpcore.trees.consistency import root_count, split_counts
from dpcore.trees.shrunk import rising_counts
from dpcore.uniform.plan import TreePlan

# What represents the estimate of a child that does not exist: the repair makes it zero.
_NO_CHILD = -1e300

_Flags = npt.NDArray[np.bool_]
_Value = TypeVar("_Value", np.float64, np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Children:
    """The children of the paths' nodes at one level: (pairs, 2, n) each but for the last two.

    Attributes:
        exists: whether there is such a child, in a trimmed tree.
        left: whether it counts to what lies left of the path's boundary.
        exact: its rows.
        place: (pairs, 2) which of them the path goes through.
        shared: (pairs,) whether the two paths of a pair have one parent.
    """

    exists: _Flags
    left: _Flags
    exact: Integers
    place: Integers
    shared: _Flags

    def on_path(self, values: npt.NDArray[_Value]) -> npt.NDArray[_Value]:
        """(pairs, 2) the values of the children that the paths go through."""
        return np.take_along_axis(values, self.place[..., None], axis=-1)[..., 0]


def boundary_errors(
    plan: TreePlan, reference: Distribution, rows: int, stops: Integers, *, shrunk: bool = False
) -> tuple[Floats, Floats]:
    """One draw each of the errors of the consistent counts left of boundaries.

    Args:
        plan: of measured levels, estimated efficiently; of a tree of at least two leaves.
        reference: how the rows lie.
        rows: how many there are.
        stops: (pairs, 2) boundaries: so many leaves lie left of each.
        shrunk: whether the counts come from `dpcore.trees.shrunk`.

    Returns:
        (pairs, 2) count minus truth of the leaves left of each boundary, and (pairs,) that of the
        whole tree. The two of a pair are of one release, pairs of different ones.
    """
    levels = list(_levels(plan, reference, rows, stops))
    root, values = _from_below(plan, levels)
    below = _SubtreeNoise(laws=plan.laws[1:], fanouts=plan.tree.fanouts[1:]).variances
    estimate = np.full(stops.shape, float(rows)) if plan.public_total else root
    count = root_count(estimate)
    errors: Floats = np.zeros(stops.shape)
    for level, (children, value) in enumerate(zip(levels, values, strict=True)):
        solved = _solved(children, value, estimate)
        if shrunk and not level:
            public = count[:, 0] if plan.public_total else None
            split = np.repeat(rising_counts(solved[:, 0], public)[:, None], 2, axis=1)
            count = split.sum(axis=-1)
        else:
            split = _split(solved, below[level], count, shrunk=shrunk)
        if not level:
            total = (count[:, 0] - rows).astype(np.float64)
        errors += np.where(children.left, split - children.exact, 0).sum(axis=-1)
        estimate, count = children.on_path(solved), children.on_path(split)
    return errors, total


def _levels(
    plan: TreePlan, reference: Distribution, rows: int, stops: Integers
) -> Iterator[_Children]:
    """Generate every level below the root, the root's children first."""
    tree, leaf = plan.tree, np.minimum(stops, plan.tree.leaves - 1)
    # Left of the last boundary lies the whole tree: the root's children are all of it.
    whole = (stops == tree.leaves)[..., None]
    parent = np.zeros_like(leaf)
    for level, fanout in enumerate((tree.level_sizes[1], *tree.fanouts[1:]), start=1):
        leaves = tree.leaves_below(level)
        edges = (parent[..., None] * fanout + np.arange(fanout + 1)) * leaves
        edges = np.minimum(edges, tree.leaves)
        exists = edges[..., 1:] > edges[..., :-1]
        child = leaf // leaves
        yield _Children(
            exists=exists,
            left=exists & (edges[..., 1:] <= stops[..., None]) & ((level == 1) | ~whole),
            exact=np.diff(rows_below(reference, rows, edges / tree.leaves), axis=-1),
            place=child - parent * fanout,
            shared=parent[:, 0] == parent[:, 1],
        )
        parent = child


def _from_below(plan: TreePlan, levels: Sequence[_Children]) -> tuple[Floats, list[Floats]]:
    """Estimates of the root from below, (pairs, 2), and estimates of all children, (pairs, 2, n),
    the root's first."""
    stream, values = public_stream("counts", plan.tree.height), list[Floats]()
    noise = _SubtreeNoise(laws=plan.laws[1:], fanouts=plan.tree.fanouts[1:])
    path: Floats | None = None
    for level in range(plan.tree.height, 0, -1):
        children = levels[level - 1]
        value = children.exact + noise.drawn(stream, level - 1, children.exact.shape)
        value[:, 1] = np.where(children.shared[:, None], value[:, 0], value[:, 1])
        if path is not None:
            _put_on_paths(children, value, path)
        values.append(value)
        path = _joined(plan.laws[level - 1], noise.variances[level - 1], children, value, stream)
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

    def drawn(self, stream: RandomStream, index: int, shape: tuple[int, ...]) -> Floats:
        """Draws of one level: nodes' own noise and that of their subtrees, which is a sum of many
        and so nearly normal."""
        law, below, size = self.laws[index], self._sums[index], math.prod(shape)
        if math.isinf(below):
            assert law is not None
            return _draws(law, stream, size).reshape(shape)
        from_below = math.sqrt(below) * _normal(stream, size).reshape(shape)
        if law is None:
            return from_below
        weight = _weight(law, below)
        own = _draws(law, stream, size).reshape(shape)
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
    pairs = np.arange(len(value))
    shared = pairs[children.shared]
    for one in (0, 1):
        value[shared, 1 - one, children.place[shared, one]] = path[shared, one]
    for one in (0, 1):
        value[pairs, one, children.place[:, one]] = path[:, one]


def _joined(
    law: NoiseLaw | None, child: float, children: _Children, value: Floats, stream: RandomStream
) -> Floats:
    """(pairs, 2) the estimates from below of the paths' nodes, from their children's, each of the
    variance ``child``, and their own noise."""
    sums: Floats = np.where(children.exists, value, 0.0).sum(axis=-1)
    if law is None:
        return sums
    own = _draws(law, stream, sums.size).reshape(sums.shape)
    own[:, 1] = np.where(children.shared, own[:, 0], own[:, 1])
    below = child * children.exists.sum(axis=-1)
    weight = below / (law.variance + below) if law.variance else np.ones(sums.shape)
    measured = children.exact.sum(axis=-1) + own
    joined: Floats = weight * measured + (1 - weight) * sums
    return joined


def _solved(children: _Children, value: Floats, estimate: Floats) -> Floats:
    """The children's estimates, from the pass down."""
    present: Floats = np.where(children.exists, value, 0.0)
    excess = (estimate - present.sum(axis=-1)) / children.exists.sum(axis=-1)
    solved: Floats = np.where(children.exists, value + excess[..., None], _NO_CHILD)
    return solved


def _split(solved: Floats, below: float, count: Integers, *, shrunk: bool) -> Integers:
    """The children's counts, from estimates of the variance ``below`` each."""
    flat = solved.reshape(-1, solved.shape[-1])
    alike = np.full(flat.shape, below)
    return split_counts(flat, alike, count.reshape(-1), shrunk=shrunk).reshape(solved.shape)


def _draws(law: NoiseLaw, stream: RandomStream, size: int) -> Floats:
    """Draws of a law in floating point, fast: for planning alone."""
    if not isinstance(law, DiscreteLaplace):
        return np.rint(math.sqrt(law.variance) * _normal(stream, size))
    rate = 1 / float(law.scale)
    # P(|X| >= k) = 2 q^k / (1 + q), q = exp(-rate).
    reached = (log(2 / (1 + exp(-rate))) - log(_uniform(stream, size))) / rate
    signs = np.where(stream.uint16(size) & 1, 1.0, -1.0)
    drawn: Floats = signs * np.maximum(np.ceil(reached) - 1, 0.0)
    return drawn


def _normal(stream: RandomStream, size: int) -> Floats:
    """Box and Muller's pairs."""
    half = -(-size // 2)
    radius = np.sqrt(-2 * log(_uniform(stream, half)))
    angle = 2 * math.pi * _uniform(stream, half)
    return np.concatenate([radius * cos(angle), radius * sin(angle)])[:size]


def _uniform(stream: RandomStream, size: int) -> Floats:
    """Uniform numbers in (0, 1)."""
    drawn: Floats = ((stream.uint64(size) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return drawn
