"""Counts between thresholds: the rounds of a plan, run on trees of exact counts.

Source: Ghazi, Kamath, Kumar, Manurangsi, Wu, Algorithm 2, corrected; the design, section 3 (noise
as a keyed function of the counts).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpcore.arrays import Floats, Integers
from dpcore.noise.randomness import RandomStream
from dpcore.noise.source import NoiseSource
from dpcore.thresholds.heavy_nodes import (
    classify_forest,
    remaining_trees,
    tree_weights,
    whole_tree,
)
from dpcore.thresholds.plan import ThresholdPlan

__all__ = ["released_threshold_estimates", "released_trees_estimates", "threshold_estimates"]
from dpcore.trees.shape import Shape

# The stream of a whole tree's rounds, where a level's number stands for measured levels.
_ALL_ROUNDS = -2


def threshold_estimates(
    plan: ThresholdPlan, tree: Shape, leaf_counts: Integers, stream: RandomStream
) -> list[Floats]:
    """Estimate every node's count by the round that finds it.

    Guarantee: see `ThresholdPlan`.

    Args:
        plan: the mechanism.
        tree: the shape, of one root.
        leaf_counts: (K,) int64, the exact counts.
        stream: the source of all noise, read from here on by nobody else.

    Returns:
        (n_level,) for each level, root first. No node's estimate is above its parent's where the
        estimates of the rounds rise; they do not add up.

    Raises:
        ValueError: counts out of range.

    Source: Ghazi et al., Algorithm 2, corrected.

    >>> from fractions import Fraction
    >>> from dpcore.privacy.budget import Neighbors
    >>> from dpcore.noise.randomness import public_stream
    >>> from dpcore.thresholds.plan import ThresholdRound
    >>> from dpcore.trees.uniform import Tree
    >>> one = ThresholdRound(
    ...     cutoff=1, search_epsilon=Fraction(1, 2), node_epsilon=Fraction(1, 2),
    ...     delta=Fraction(1, 10**6), tau=90, acceptance=60, estimate=Fraction(150))
    >>> plan = ThresholdPlan(epsilon=Fraction(1), delta=Fraction(1, 10**6), least=Fraction(20),
    ...                      neighbors=Neighbors.ADD_REMOVE, rounds=(one,))
    >>> threshold_estimates(plan, Tree(leaves=2, fanouts=(2,)), np.array([7, 160]),
    ...                     public_stream("doc"))
    [array([150.]), array([ 20., 150.])]
    """
    return _estimates(plan, tree, [leaf_counts], [stream])[0]


def _estimates(
    plan: ThresholdPlan,
    tree: Shape,
    leaf_counts: Sequence[Integers],
    streams: Sequence[RandomStream],
) -> list[list[Floats]]:
    """`threshold_estimates` of several trees of one shape, each from a stream of its own.

    Round by round over all trees: the tables that a round's noise is drawn from take far longer
    than a draw, and those of all rounds are too many to keep.
    """
    weights = [tree_weights(tree, own) for own in leaf_counts]
    forests = [whole_tree(tree) for _ in leaf_counts]
    found = [[np.full(n, float(plan.least)) for n in tree.level_sizes] for _ in leaf_counts]
    for each in reversed(plan.rounds):
        for place, stream in enumerate(streams):
            top = classify_forest(tree, weights[place], each, stream, forests[place])
            for estimate, is_top in zip(found[place], top, strict=True):
                estimate[is_top] = float(each.estimate)
            forests[place] = remaining_trees(tree, forests[place], top)
    return found


def released_threshold_estimates(
    plan: ThresholdPlan,
    tree: Shape,
    leaf_counts: Integers,
    noise: NoiseSource,
    *,
    name: str,
    key: int,
    chunk: int = 0,
) -> list[Floats]:
    """The estimates of one key's whole tree for a release: a pure function of the exact counts.

    Args:
        plan, tree, leaf_counts: as for `threshold_estimates`.
        noise: the source; the plan and the tree must be part of its specification's digest.
        name: of the tree.
        key: the code of the key.
        chunk: the index of the chunk, which is the whole tree.

    Returns:
        (n_level,) for each level, root first.

    Source: the design, section 3.

    >>> from fractions import Fraction
    >>> from dpcore.privacy.budget import Neighbors
    >>> from dpcore.noise.randomness import ReleaseKey
    >>> from dpcore.trees.uniform import Tree
    >>> plan = ThresholdPlan(epsilon=Fraction(1), delta=Fraction(1, 10**6), least=Fraction(20),
    ...                      neighbors=Neighbors.ADD_REMOVE, rounds=())
    >>> source = NoiseSource(
    ...     key=ReleaseKey(bytes(32)), release="doc", spec_digest=b"", global_digest=b"")
    >>> released_threshold_estimates(plan, Tree(leaves=2, fanouts=(2,)), np.array([7, 160]),
    ...                              source, name="doc", key=0)
    [array([20.]), array([20., 20.])]
    """
    (found,) = released_trees_estimates(
        plan, tree, leaf_counts[None], noise, name=name, first_key=key, chunk=chunk
    )
    return found


def released_trees_estimates(
    plan: ThresholdPlan,
    tree: Shape,
    leaf_counts: Integers,
    noise: NoiseSource,
    *,
    name: str,
    first_key: int,
    chunk: int = 0,
) -> list[list[Floats]]:
    """`released_threshold_estimates` of consecutive keys, which is the same for each, sooner.

    Args:
        plan, tree, noise, name, chunk: as there.
        leaf_counts: (keys, K) int64, the exact counts.
        first_key: the code of the first key.

    Returns:
        for each key, (n_level,) for each level, root first.
    """
    streams = [
        noise.of_counts(own).stream(name, first_key + place, chunk, _ALL_ROUNDS)
        for place, own in enumerate(leaf_counts)
    ]
    return _estimates(plan, tree, list(leaf_counts), streams)
