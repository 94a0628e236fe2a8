"""Counts between thresholds: the rounds of a plan, run on trees of exact counts.

Source: Ghazi, Kamath, Kumar, Manurangsi, Wu, Algorithm 2, corrected.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.thresholds.heavy_nodes import (
    classify_forest,
    remaining_trees,
    tree_weights,
    whole_tree,
)
from dptrees.dpcore.thresholds.plan import ThresholdPlan
from dptrees.dpcore.trees.shape import Shape


def finding_rounds(
    plan: ThresholdPlan,
    tree: Shape,
    leaf_counts: Sequence[Integers],
    streams: Sequence[RandomStream],
) -> list[Integers]:
    """The number of the round that finds each node, of several trees of one shape.

    Round by round over all trees: the tables that a round's noise is drawn from take far longer
    than a draw, and the tables of all rounds are too many to keep.

    Guarantee: see `ThresholdPlan`.

    Args:
        plan: the mechanism.
        tree: the shape, of one root.
        leaf_counts: of each tree (K,) int64, the exact counts.
        streams: of each tree, the source of all its noise, read from here on by nobody else.

    Returns:
        (trees, n_level) for each level, root first: from 1 in the order of rising thresholds, 0
        where no round finds a node. ``plan.estimates`` has their estimates. No node's number is
        above its parent's.

    Raises:
        ValueError: counts out of range.

    Source: Ghazi et al., Algorithm 2, corrected.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> from dptrees.dpcore.thresholds.plan import ThresholdRound
    >>> from dptrees.dpcore.trees.uniform import UniformTree
    >>> one = ThresholdRound(
    ...     cutoff=1, search_epsilon=Fraction(1, 2), node_epsilon=Fraction(1, 2),
    ...     delta=Fraction(1, 10**6), tau=90, acceptance=60, estimate=Fraction(150))
    >>> plan = ThresholdPlan(epsilon=Fraction(1), delta=Fraction(1, 10**6), least=Fraction(20),
    ...                      unit=ADD_REMOVE_ROW, rounds=(one,))
    >>> found = finding_rounds(plan, UniformTree(leaves=2, fanouts=(2,)), [np.array([7, 160])],
    ...                        [public_stream("doc")])
    >>> [plan.estimates[level].tolist() for level in found]
    [[[150.0]], [[20.0, 150.0]]]
    """
    weights = [tree_weights(tree, own) for own in leaf_counts]
    forests = [whole_tree(tree) for _ in leaf_counts]
    result = [np.zeros((len(leaf_counts), size), dtype=np.int64) for size in tree.level_sizes]
    for number in range(len(plan.rounds), 0, -1):
        for place, stream in enumerate(streams):
            top = classify_forest(
                tree, weights[place], plan.rounds[number - 1], stream, forests[place]
            )
            for level, is_top in zip(result, top, strict=True):
                level[place, is_top] = number
            forests[place] = remaining_trees(tree, forests[place], top)
    return result
