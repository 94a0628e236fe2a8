"""Published choices of whole fan-outs: what makes the error before estimation small.

With equal budgets the error of a tree is proportional to h^p sum_i (n_i - 1), p being 2 for epsilon
and 1 for rho (`dpcore.papers.cdf_errors`).

Where prod n_i > K, it is that of the first K leaves, and the
order counts, though little. But the part of a level depends only on its fan-out and on the number
L of leaves below its nodes, so the best way to each L is found from the leaves up, and the root's
fan-out is the least that holds K. Branches are cut by a bound. In units of K / 2, and with
y_i = K / (n_i L_i) real nodes above it, a level adds at least n_i (1 - 1 / (4 y_i)) - 1: its last
period of digits, a part f of a whole one, lacks n_i f (1 - f) / y_i. The root adds at least x - 1,
x = K / L_1 > 1 being its real fan-out. Since y_2 = x and y_i >= 2^(i-2) x, the factors 1 - 1 / (4
y_i) have a product of at least 1 - 1 / (2 x). So j levels above X real nodes add at least

    x + (j - 1) ((1 - 1 / (2 x)) X / x)^(1 / (j - 1)) - j >= j (X^(1 / j) - 1) - 1,

by the inequality of the means for j - 1 equal numbers and x + x / (2 x - 1) <= x + 1.

Source: Rameshwar, Tandon, Sharma, Section V. The search over prod n_i > K: derived here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dptrees.dpcore.arithmetic.elementary import power
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.papers.cdf_errors import checked_leaves, covering_nodes
from dptrees.dpcore.papers.level_budgets import VARIANCE_POWER, integer_root
from dptrees.dpcore.privacy.budget import Measure

Fanouts = tuple[int, ...]


def best_fanouts(leaves: int, measure: Measure = Measure.EPSILON) -> Fanouts:
    """The fan-outs with prod n_i >= K of least tree error for equal budgets, of all there are.

    Args:
        leaves: K.
        measure: epsilon or rho.

    Returns:
        (n_1, ..., n_h), of the least height among equals, then the first in order; () for K = 1.
        The root's fan-out is the least that holds K.

    Raises:
        ValueError: K below 1 or above 2^40.

    Source: derived here (see the module). Definition IV.1 allows prod n_i >= K.

    >>> best_fanouts(997), best_fanouts(2**20)
    ((10, 10, 10), (16, 16, 16, 16, 16))
    """
    checked_leaves(leaves)
    if leaves == 1:
        return ()
    power = VARIANCE_POWER[measure]

    def rank(fanouts: Fanouts) -> tuple[int, int, Fanouts]:
        error = len(fanouts) ** power * sum(covering_nodes(leaves, fanouts))
        return error, len(fanouts), fanouts

    heights = range(1, (leaves - 1).bit_length() + 1)
    best = min((_nearly_equal_fanouts(leaves, height) for height in heights), key=rank)
    for height in heights[1:]:
        limit = rank(best)[0] // height**power
        search = _PaddedSearch(leaves=leaves, height=height, limit=limit)
        best = min([best, *search.run()], key=rank)
    return best


def _nearly_equal_fanouts(leaves: int, height: int) -> Fanouts:
    """The smallest fan-outs n + 1, ..., n + 1, n, ..., n that hold the leaves."""
    fanout = max(2, integer_root(leaves, height))
    larger = 0
    while (fanout + 1) ** larger * fanout ** (height - larger) < leaves:
        larger += 1
    return (fanout + 1,) * larger + (fanout,) * (height - larger)


@dataclass(frozen=True, kw_only=True)
class _PaddedSearch:
    """The best shape of one height among those whose coverings hold at most ``limit`` nodes."""

    leaves: int
    height: int
    limit: int

    @cached_property
    def allowed(self) -> float:
        """The limit in units of K / 2; a little more, for the rounding of bounds."""
        return 2 * self.limit / self.leaves * (1 + 1e-9)

    @cached_property
    def fanouts(self) -> Integers:
        """All that a level below the root may have: it adds at least 3 n / 4 - 1."""
        largest = min(self.leaves - 1, int((self.allowed + 1) / 0.75))
        return np.arange(2, largest + 1)

    def run(self) -> list[Fanouts]:
        """The best shapes, for each L below the root the first in order; or none."""
        if _least_part(np.array([float(self.leaves)]), self.height)[0] > self.allowed:
            return []
        below, costs = np.ones(1, np.int64), np.zeros(1, np.int64)
        steps = []
        for levels_above in range(self.height - 1, 0, -1):
            below, costs, fanouts = self.extended(below, costs, levels_above)
            steps.append(dict(zip(below.tolist(), fanouts.tolist(), strict=True)))
        totals = costs + _digit_sums(self.leaves, below, -(-self.leaves // below))
        best = below[totals == totals.min(initial=self.limit)]
        return [self.shape(product, steps) for product in best.tolist()]

    def shape(self, below: int, steps: list[dict[int, int]]) -> Fanouts:
        """The fan-outs on the way to L leaves below the root, the root's in front."""
        fanouts = [-(-self.leaves // below)]
        for step in reversed(steps):
            fanouts.append(step[below])
            below //= fanouts[-1]
        return tuple(fanouts)

    def extended(
        self, below: Integers, costs: Integers, levels_above: int
    ) -> tuple[Integers, Integers, Integers]:
        """One level up: the products, their least costs, the smallest fan-outs that give them."""
        products = below[:, None] * self.fanouts
        totals = costs[:, None] + _digit_sums(self.leaves, below[:, None], self.fanouts)
        least = 2 * totals / self.leaves + _least_part(self.leaves / products, levels_above)
        kept = np.nonzero((products < self.leaves) & (least <= self.allowed))
        states = np.stack([products[kept], totals[kept], self.fanouts[kept[1]]])
        states = states[:, np.lexsort(states[::-1])]
        first = np.unique(states[0], return_index=True)[1]
        return states[0, first], states[1, first], states[2, first]


def _digit_sums(leaves: int, below: Integers, fanouts: Integers) -> Integers:
    """The parts of levels in `covering_nodes`, for arrays of shapes."""
    periods, rest = np.divmod(leaves, fanouts * below)
    whole, part = np.divmod(rest, below)
    in_periods = periods * below * (fanouts * (fanouts - 1) // 2)
    sums: Integers = in_periods + below * (whole * (whole - 1) // 2) + whole * part
    return sums


def _least_part(nodes: Floats, levels: int) -> Floats:
    """Lower bound on what levels above X real nodes add, in units of K / 2: see the module."""
    slack = 0 if levels == 1 else 1
    root = nodes if levels == 1 else np.sqrt(nodes) if levels == 2 else power(nodes, 1 / levels)
    least: Floats = levels * (root - 1) - slack
    return least
