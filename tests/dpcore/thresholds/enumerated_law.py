"""The exact law of Algorithm 1 on tiny trees, from the paper's description and not from the code:
sums over the noise of the threshold, products over queries and nodes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

Array = np.ndarray[Any, Any]
Node = tuple[int, int]  # level, number


def laplace_grid(scale: float) -> tuple[Array, Array]:
    """Points and probabilities; what is left out is below 1e-17."""
    x = np.arange(-math.ceil(40 * scale), math.ceil(40 * scale) + 1)
    return x, math.tanh(0.5 / scale) * np.exp(-np.abs(x) / scale)


def laplace_tail(x: Array, scale: float) -> Array:
    """P(X >= x) for integers x."""
    q = math.exp(-1 / scale)
    upper = np.exp(-np.abs(np.where(x > 0, x, 1 - x)) / scale) / (1 + q)
    return np.where(x > 0, upper, 1 - upper)


def classification_law(
    counts: Mapping[Node, int],
    path: Callable[[Node], Sequence[Node]],
    *,
    cutoff: int,
    tau: int,
    acceptance: int,
    radius: int,
    node_scale: float,
    threshold_scale: float,
    query_scale: float,
) -> dict[frozenset[Node], float]:
    """The probability of every set of TOP nodes.

    Args:
        counts: of the nodes of one tree.
        path: a node and the nodes above it.
        cutoff: how many levels may be TOP.
        tau: the threshold of levels.
        acceptance: the threshold of nodes of a TOP level.
        radius: of the noise of nodes.
        node_scale: of the noise of nodes, truncated Laplace noise.
        threshold_scale: of the noise of tau.
        query_scale: of the noise of the largest count of a level.
    """
    z = np.arange(-radius, radius + 1)
    node_pmf = np.exp(-np.abs(z) / node_scale)
    node_pmf /= node_pmf.sum()
    y, fresh = laplace_grid(threshold_scale)
    law: dict[frozenset[Node], float] = {}

    def descend(level: int, top: frozenset[Node], tops: int, joint: Array) -> None:
        if level < 0:
            law[top] = law.get(top, 0.0) + math.fsum(joint)
            return
        left = [node for node in counts if node[0] == level and node not in top]
        if not left or tops >= cutoff:
            descend(level - 1, top, tops, joint)
            return
        largest = max(counts[node] for node in left)
        is_top = joint * laplace_tail(tau + y - largest, query_scale)
        descend(level - 1, top, tops, joint - is_top)
        mass = math.fsum(is_top)
        chance = [float(node_pmf[z >= acceptance - counts[node]].sum()) for node in left]
        for flags in itertools.product([False, True], repeat=len(left)):
            p = math.prod(a if f else 1 - a for a, f in zip(chance, flags, strict=True))
            if p > 0:
                found = [node for node, f in zip(left, flags, strict=True) if f]
                above = {each for node in found for each in path(node) if each in counts}
                descend(level - 1, top | above, tops + 1, mass * p * fresh)

    descend(max(level for level, _ in counts), frozenset(), 0, fresh)
    return law


def p_value(seen: Mapping[Any, int], law: Mapping[Any, float]) -> float:
    """The probability of outcomes as far from a law, by a test of chi squared."""
    runs = sum(seen.values())
    likely = [outcome for outcome in law if law[outcome] * runs >= 10]
    got = np.array([seen.get(outcome, 0) for outcome in likely], dtype=float)
    expected = np.array([law[outcome] * runs for outcome in likely])
    got, expected = np.append(got, runs - got.sum()), np.append(expected, runs - expected.sum())
    statistic = ((got - expected) ** 2 / np.maximum(expected, 1e-3)).sum()
    return float(stats.chi2.sf(statistic, len(likely)))
