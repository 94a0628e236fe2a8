"""Choice of the strategy: the best there is for some thousand cells, above them a scalable one."""

from __future__ import annotations

from functools import lru_cache

from dptrees.dpcore.factorised.dense import DenseStrategy, dense_strategy
from dptrees.dpcore.factorised.optimum import optimal_weights
from dptrees.dpcore.factorised.read import Read
from dptrees.dpcore.factorised.strategy import MatrixStrategy
from dptrees.dpcore.factorised.toeplitz import ToeplitzStrategy
from dptrees.dpcore.trees.uniform import UniformTree

# Finding the best strategy of so many cells takes some ten seconds.
MOST_OPTIMAL = 2**11
# A tree is measured as a whole, on one worker.
MOST_LEAVES = 2**20
# The tree whose nodes are released.
FANOUT = 16


@lru_cache(maxsize=8)
def plan_strategy(cells: int, read: Read) -> MatrixStrategy:
    """The strategy for what is read of so many cells; it depends on nothing else.

    Args:
        cells: K, from 1 to 2^20.
        read: what it is best for. Above 2,048 cells it is for prefixes, whatever is read.

    Raises:
        ValueError: too many cells.

    >>> plan_strategy(4096, Read(kind="cdf")).spec()
    {'kind': 'toeplitz', 'cells': 4096, 'scale': 16384, 'steps': 1024}
    """
    if cells > MOST_LEAVES:
        raise ValueError(f"cells: {cells} are more than {MOST_LEAVES}")
    if cells > MOST_OPTIMAL:
        return ToeplitzStrategy.from_size(cells)
    return best_strategy(cells, read)


def best_strategy(cells: int, read: Read) -> DenseStrategy:
    """The best strategy that there is, to a part in a thousand of the variance."""
    weights = optimal_weights(
        lambda size: read.on_fewer(cells, size).gram(size), cells, of_prefixes=read.kind == "cdf"
    )
    return dense_strategy(read, tuple(weights.weights.tolist()))


def listed_tree(cells: int) -> UniformTree:
    """The tree whose nodes are listed: of 16 children each, the root of up to 16.

    >>> listed_tree(1000).fanouts, listed_tree(3).fanouts, listed_tree(1).fanouts
    ((4, 16, 16), (3,), ())
    """
    below = 0
    while cells > FANOUT ** (below + 1):
        below += 1
    first = -(-cells // FANOUT**below)
    return UniformTree(leaves=cells, fanouts=(first,) * (first > 1) + (FANOUT,) * below)
