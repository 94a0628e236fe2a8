"""Trees of different shapes over the same leaves, whose errors are computed together.

In a trimmed tree a level holds two kinds of nodes only: *full* ones, all alike, and the *last* one,
which may have fewer children and a last child with fewer leaves. So whatever is averaged over all
nodes, prefixes or ranges needs recursions of height h and no pass over the leaves, and many shapes
can be judged in one call.

An *error* here is a function of the batch and of its levels' precisions that returns the variance,
in rows^2, by which a plan is judged (`dpcore.uniform.prefix_error`, `range_error`, `node_error`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.dual import Dual
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.uniform.plan import TreePlan

# Arrays, or dual numbers where a derivative is taken.
Scalars = Any
_Made = TypeVar("_Made")


@dataclass(frozen=True, kw_only=True)
class Parents:
    """The values of one level of parents that a recursion needs, an array over the batch for each.

    Attributes:
        fanout: children of a full node.
        full_nodes: how many full nodes there are, which is the number of the last node.
        full_children: children of the last node that are themselves full nodes.
        child_leaves: leaves below a full child.
        last_leaves: leaves below the last child of the last node.
        full_weight: the part of all leaves that lie below full nodes.
    """

    fanout: Floats
    full_nodes: Floats
    full_children: Floats
    child_leaves: Floats
    last_leaves: Floats
    full_weight: Floats


@dataclass(frozen=True, kw_only=True)
class Below:
    """The variances of the estimates from below, one array a level, leaves first.

    Attributes:
        full, last: a of a full node and of the last one: h + 1 arrays (..., trees).
        children: A of the last node of a level, the sum of its children's a: h arrays.
    """

    full: list[Scalars]
    last: list[Scalars]
    children: list[Scalars]


@dataclass(frozen=True, kw_only=True)
class Ends:
    """Positions of leaf boundaries among the children of one level of parents: (trees, ends) each.

    Attributes:
        child, parent: the nodes that hold the last leaf before each boundary.
        place: how many children of the parent lie left of that child.
        in_last: whether the parent is the last of its level.
        is_last: whether the child is the last of its level.
    """

    child: Integers
    parent: Integers
    place: Floats
    in_last: npt.NDArray[np.bool_]
    is_last: npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class TreeBatch:
    """Trees of different shapes over the same leaves.

    Args:
        leaves: K, at least 2.
        fanouts: for each tree its (n_1, ..., n_h). All have one length: a shorter shape begins with
            fan-outs of 1, whose levels repeat the root and take no measurement (precision 0).

    >>> batch = TreeBatch(leaves=4, fanouts=((2, 2), (1, 4)))
    >>> below = batch.below(np.array([[np.inf, 1.0, 1.0], [np.inf, 0.0, 1.0]]))
    >>> [values.tolist() for values in below.full[:2]]
    [[1.0, 1.0], [0.6666666666666666, 4.0]]
    """

    leaves: int
    fanouts: tuple[tuple[int, ...], ...]

    @property
    def height(self) -> int:
        """The common length of the fan-outs."""
        return len(self.fanouts[0])

    @cached_property
    def levels(self) -> list[Parents]:
        """The levels of parents, lowest first."""
        fanouts = np.array(self.fanouts, np.int64)
        levels = []
        child_leaves = np.ones(len(fanouts), np.int64)
        for fanout in fanouts.T[::-1]:
            leaves = child_leaves * fanout
            full_nodes = (self.leaves - 1) // leaves
            in_last = self.leaves - full_nodes * leaves
            full_children = (in_last - 1) // child_leaves
            levels.append(
                Parents(
                    fanout=fanout.astype(np.float64),
                    full_nodes=full_nodes.astype(np.float64),
                    full_children=full_children.astype(np.float64),
                    child_leaves=child_leaves.astype(np.float64),
                    last_leaves=(in_last - full_children * child_leaves).astype(np.float64),
                    full_weight=full_nodes * leaves / self.leaves,
                )
            )
            child_leaves = leaves
        return levels

    def below(self, precisions: Scalars) -> Below:
        """The pass up: 1 / a = 1 / s + 1 / A at every level.

        Args:
            precisions: (..., trees, h + 1) the inverse of each level's variance, root first; 0
                where not measured, infinite for a root that is known. Leading axes are free.
        """
        full, last = [1 / precisions[..., -1]], [1 / precisions[..., -1]]
        children = []
        with np.errstate(divide="ignore"):
            for index, parents in enumerate(self.levels):
                own = precisions[..., self.height - 1 - index]
                children.append(parents.full_children * full[-1] + last[-1])
                last.append(1 / (own + 1 / children[-1]))
                full.append(1 / (own + 1 / (parents.fanout * full[-1])))
        return Below(full=full, last=last, children=children)

    def ends(self, stops: Integers) -> Iterator[Ends]:
        """Ends of the prefixes of leaves 0 to ``stop`` - 1, at each level of parents.

        Args:
            stops: (ends,) each from 0 to K.
        """
        # The prefix of no leaves is none of leaf 0, any other ends with its last leaf.
        child = np.broadcast_to(np.maximum(stops - 1, 0), (len(self.fanouts), len(stops)))
        for parents in self.levels:
            parent, place = np.divmod(child, parents.fanout.astype(np.int64)[:, None])
            in_last = parent == parents.full_nodes[:, None]
            yield Ends(
                child=child,
                parent=parent,
                place=place.astype(np.float64),
                in_last=in_last,
                is_last=in_last & (place == parents.full_children[:, None]),
            )
            child = parent

    def kept_ends(self, stops: Integers) -> list[Ends]:
        """The same, kept with the batch: they do not depend on precisions."""
        key = stops.tobytes()
        if key not in self._known_ends:
            self._known_ends[key] = list(self.ends(stops))
        return self._known_ends[key]

    @cached_property
    def _known_ends(self) -> dict[bytes, list[Ends]]:
        return {}

    def kept(self, name: str, index: int, make: Callable[[], _Made]) -> _Made:
        """What a recursion makes of the shapes alone at one level, kept with the batch.

        Args:
            name: of the recursion.
            index: of the level.
            make: it.
        """
        key = name, index
        if key not in self._known:
            self._known[key] = make()
        found: _Made = self._known[key]
        return found

    @cached_property
    def _known(self) -> dict[tuple[str, int], Any]:
        return {}

    def precision_slopes(self, precisions: Floats, below: Below, slopes: Below) -> Floats:
        """The derivatives in the precisions, from those in what `below` makes of them.

        Args:
            precisions: (trees, h + 1) as given to `below`.
            below: what it returned.
            slopes: the derivatives of one number a tree in full, last and children.

        Returns:
            (trees, h + 1).
        """
        result = np.empty_like(precisions)
        of_full, of_last = slopes.full[-1], slopes.last[-1]
        for index in reversed(range(self.height)):
            parents, children = self.levels[index], below.children[index]
            full, last, lower = below.full[index + 1], below.last[index + 1], below.full[index]
            result[:, self.height - 1 - index] = -(full**2) * of_full - last**2 * of_last
            of_children = slopes.children[index] + of_last * (last / children) ** 2
            of_full = of_full * (full / lower) ** 2 / parents.fanout
            of_full = of_full + slopes.full[index] + parents.full_children * of_children
            of_last = slopes.last[index] + of_children
        result[:, -1] = -(below.full[0] ** 2) * of_full - below.last[0] ** 2 * of_last
        return result


Error = Callable[[TreeBatch, Scalars], Scalars]


def level_parts(error: Error, batch: TreeBatch, precisions: Floats) -> Floats:
    """Parts of an error from the noise of each level.

    The estimate is linear in the measurements, and the weights that make it best do not change its
    variance to first order. So the part of level l is s_l times the negative derivative in its
    precision s_l, and the parts sum to the variance.

    Args:
        error: (batch, precisions (..., trees, h + 1)) to variances (..., trees).
        batch: the trees.
        precisions: (trees, h + 1) finite, but for roots that are known.

    Returns:
        (trees, h + 1) in rows^2.
    """
    known = np.isinf(precisions)
    moved = np.where(known, 0.0, precisions)[:, None, :] * -np.eye(batch.height + 1)
    variances = error(batch, Dual(precisions, moved.swapaxes(0, 1)))
    parts: Floats = np.ascontiguousarray(variances.slopes.T)
    return parts


def plan_batch(plan: TreePlan) -> tuple[TreeBatch, Floats]:
    """A batch of one plan's tree, and its precisions (1, h + 1). The tree has at least a level
    below its root."""
    return plans_batch([plan])


def plans_batch(
    plans: Sequence[TreePlan],
    variances: Callable[[TreePlan], tuple[float, ...]] = attrgetter("variances"),
) -> tuple[TreeBatch, Floats]:
    """The same of several plans over the same leaves, whose trees are of one height.

    Args:
        plans: at least one.
        variances: (h + 1,) of the levels' noise, by plan.

    Returns:
        The batch, and (n, h + 1) precisions.
    """
    trees = [plan.tree for plan in plans]
    # The root's fan-out counts its existing children only, so that products fit 64 bits.
    shapes = tuple((tree.level_sizes[1], *tree.fanouts[1:]) for tree in trees)
    with np.errstate(divide="ignore"):
        precisions = 1 / np.array([variances(plan) for plan in plans], np.float64)
    return _known_batch(trees[0].leaves, shapes), precisions


@lru_cache(maxsize=256)
def _known_batch(leaves: int, fanouts: tuple[tuple[int, ...], ...]) -> TreeBatch:
    """A batch with all that it keeps: shapes come again at other budgets."""
    return TreeBatch(leaves=leaves, fanouts=fanouts)
