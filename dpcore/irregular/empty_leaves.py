"""What the rule `fewest` is expected to give to the empty leaves of a tree, by simulation.

It depends on the rows, and a plan does not know them. So rows are assumed: every second leaf is
empty and each other one has as many rows. The plan's noise, the estimates and the counts of
`dpcore.trees.consistency` are a release's; of a large tree only the first leaves and the nodes
above them are simulated. Draws come from a public stream, so a prediction is the same in every
run. For planning only. Source: derived here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.noise.randomness import RandomStream, public_stream
from dptrees.dpcore.trees.consistency import consistent_counts, root_count
from dptrees.dpcore.trees.estimation import estimate_down, estimate_up, estimation_weights
from dptrees.dpcore.trees.shapes import IrregularTree

# Leaves that are simulated: the first of a large tree, or all of a small one, many times.
_LEAVES = 2**15


def expected_in_empty(plan: IrregularPlan, rows: Sequence[int]) -> Iterator[tuple[float, float]]:
    """What empty leaves are expected to get by least squares and the rule `fewest`.

    Args:
        plan: of a tree of height 1 or more.
        rows: of each second leaf; one prediction for each of these numbers.

    Yields:
        the part of the empty leaves that get rows, and the mean rows of an empty leaf.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> plan = IrregularPlan(
    ...     tree=IrregularTree.from_fanouts([[30]]), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.RHO, amount=Fraction(1, 2)))
    >>> [part < 0.1 for part, _ in expected_in_empty(plan, [100, 1000])]
    [True, True]
    """
    plan = replace(plan, tree=_of_first_leaves(plan.tree))
    tree, stream = plan.tree, public_stream("empty leaves")
    leaves = np.repeat(plan.leaf_variances, tree.fanouts[-1])
    variances = [*plan.variances_above_leaves, leaves]
    weights, releases = estimation_weights(tree, variances), -(-_LEAVES // tree.leaves)
    noise = [_noise(plan, *each, releases, stream) for each in enumerate(variances)]
    for number in rows:
        exact = tree.level_counts(np.arange(tree.leaves) % 2 * number)
        noisy = [count + drawn for count, drawn in zip(exact, noise, strict=True)]
        levels = estimate_down(weights, estimate_up(weights, noisy))
        counts = consistent_counts(tree, weights.below, levels, root_count(levels[0]), fewest=True)
        empty = counts[-1][:, ::2]
        yield float((empty > 0).mean()), float(empty.mean())


def _of_first_leaves(tree: IrregularTree) -> IrregularTree:
    """The tree of the first leaves and the nodes above them."""
    stop, fanouts = min(tree.leaves, _LEAVES), list[list[int]]()
    for starts in reversed(tree.child_starts):
        parents = int(np.searchsorted(starts, stop))
        fanouts.insert(0, np.diff(np.minimum(starts[: parents + 1], stop)).tolist())
        stop = parents
    return IrregularTree.from_fanouts(fanouts)


def _noise(
    plan: IrregularPlan, level: int, variances: Floats, releases: int, stream: RandomStream
) -> Floats:
    """(releases, n_l) the noise of a level; 0 where it is public or not measured."""
    noise = np.zeros((releases, len(variances)))
    for chain in plan.classes(level):
        law = plan.law(level, chain)
        mine = variances == (law.variance if law else np.nan)
        if law:
            noise[:, mine] = law.sample(stream, releases * int(mine.sum())).reshape(releases, -1)
    return noise
