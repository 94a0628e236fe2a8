"""The numbers of a part of an adaptive tree, and which of its nodes they split.

A part is a chunk, whose roots are taken as reached, or the levels above all chunks. Numbers of
nodes that are not reached are 0 here, and never leave the worker: where a node above a chunk's root
turns out not to be split, the chunk's numbers are thrown away.

Source: `dpcore.adaptive.plan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.solving import to_children
from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.trees.forest import Measurements
from dptrees.dpcore.trees.shape import Shape


class Kinds(NamedTuple):
    """The plan's kinds of some nodes of a level, (n,) or (1,): see `AdaptivePlan`."""

    chains: Integers
    passed_on: Flags

    @classmethod
    def from_plan(cls, plan: AdaptivePlan, level: int, first: int, stop: int) -> Kinds:
        """The kinds of the nodes ``first`` to ``stop`` - 1 of a level."""
        chains, passed_on = plan.chains(level), plan.passed_on(level)
        return cls(
            chains if chains.size == 1 else chains[first:stop],
            passed_on if passed_on.size == 1 else passed_on[first:stop],
        )


@dataclass(frozen=True, kw_only=True)
class PartPlace:
    """A part's place in the tree, and the source of its noise.

    Attributes:
        first_level: of its roots.
        ranges: per level, the nodes of the tree.
        tree: the shape of a row.
        rows: of its arrays.
    """

    first_level: int
    ranges: Sequence[tuple[int, int]]
    tree: Shape
    rows: int

    def kinds(self, plan: AdaptivePlan, depth: int) -> Kinds:
        """Return the kinds of the nodes of a level; in a uniform tree all are alike."""
        return Kinds.from_plan(plan, self.first_level + depth, *self.ranges[depth])

    def ones(self, depth: int) -> Flags:
        """(rows, n) true."""
        return np.ones((self.rows, self.tree.level_sizes[depth]), dtype=bool)


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Draw the numbers of one part.

    Attributes:
        plan: of the tree.
        name: (tree, key, chunk) of its streams.
        own: the source of noise, for these very counts.
    """

    plan: AdaptivePlan
    name: tuple[str, int, int]
    own: NoiseSource

    def numbers(self, place: PartPlace, levels: Sequence[Integers]) -> Measurements:
        """Draw the noisy measurements of all levels, from the roots down, given the exact counts
        (rows, n) of each. A level of parents has three arrays (rows, n): the measurements, the
        numbers that decide (None where measurements do) and the second measurements, each None
        where there are none. The leaves have measurements only."""
        result: Measurements = []
        reached = place.ones(0)
        for depth, exact in enumerate(levels):
            level, kinds = place.first_level + depth, place.kinds(self.plan, depth)
            measured = self._measured(level, kinds, exact, decides=False)
            result.append(_kept(measured, reached & ~kinds.passed_on))
            if level == self.plan.tree.height:
                break
            decisions = self._measured(level, kinds, exact, decides=True)
            result.append(_kept(decisions, reached & ~kinds.passed_on))
            split = split_nodes(self.plan, level, kinds, deciding(result, depth), reached)
            last = self.plan.last_law(level)
            again = None if last is None else self._noisy(last, 2, level, 0, exact)
            result.append(_kept(again, reached & ~split))
            if depth < place.tree.height:
                reached = to_children(place.tree, depth, split)
        return result

    def _measured(
        self, level: int, kinds: Kinds, exact: Integers, *, decides: bool
    ) -> Integers | None:
        """The measurements of a level, or the numbers that only decide; class by class."""
        law_of = self.plan.decision_law if decides else self.plan.law
        if kinds.chains.size == 1:
            chain = int(kinds.chains[0])
            law = law_of(level, chain)
            return None if law is None else self._noisy(law, int(decides), level, chain, exact)
        result = None
        for chain in np.unique(kinds.chains).tolist():
            law, mine = law_of(level, chain), (kinds.chains == chain) & ~kinds.passed_on
            if law is None or not mine.any():
                continue
            result = np.zeros_like(exact) if result is None else result
            result[..., mine] = self._noisy(law, int(decides), level, chain, exact[..., mine])
        return result

    def _noisy(
        self, law: NoiseLaw, purpose: int, level: int, chain: int, exact: Integers
    ) -> Integers:
        """Counts with noise of the stream of (purpose, level, chain)."""
        levels = self.plan.tree.height + 1
        code = level + levels * (chain + levels * purpose)
        return add_noise(law, exact, self.own.stream(*self.name, code))


def _kept(values: Integers | None, kept: Flags) -> Integers | None:
    return None if values is None else np.where(kept, values, 0)


def split_nodes(
    plan: AdaptivePlan, level: int, kinds: Kinds, number: Integers | None, reached: Flags
) -> Flags:
    """(rows, n) which nodes of a level of parents are reached and split.

    Args:
        plan: of the tree.
        level: of the nodes.
        kinds: of the nodes.
        number: (rows, n) those that decide; None where none does.
        reached: (rows, n).
    """
    if number is None:
        return reached
    split: Flags = reached & (~may_end(plan, level, kinds) | (number >= plan.thresholds[level]))
    return split


def may_end(plan: AdaptivePlan, level: int, kinds: Kinds) -> Flags:
    """(n,) or (1,) which nodes of a level may be leaves of the drawn tree."""
    if level == plan.tree.height:
        return np.ones(kinds.passed_on.shape, dtype=bool)
    decides = np.array([plan.decides(level, chain) for chain in range(level + 1)])
    possible: Flags = decides[kinds.chains] & ~kinds.passed_on
    return possible


def deciding(numbers: Measurements, depth: int) -> Integers | None:
    """Return the numbers of a part that decide at a level of parents."""
    measured, decisions = numbers[3 * depth : 3 * depth + 2]
    return measured if decisions is None else decisions


def first_variances(plan: AdaptivePlan, level: int, kinds: Kinds) -> Floats:
    """(n,) or (1,) the variances of the measurements of a level; infinite where there are none."""
    variances: Floats = np.where(kinds.passed_on, np.inf, plan.class_variances[level][kinds.chains])
    return variances
