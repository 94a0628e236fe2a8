"""Published mechanisms for CDFs as plans, with the fan-outs that are best before estimation.

Independent noise on every prefix (F^ind), noise on every leaf (F^hist), noise on the levels of a
tree (F^tree) with the fan-outs and budgets that are best before estimation, or fan-outs of 2 with
equal budgets (Honaker). Their errors are formulas of `dpcore.papers.rameshwar`.

The error of a tree is K / 2 sum_i (n_i - 1) v_i, v_i proportional to 1 / epsilon_i^2 or 1 / rho_i
(p = 2 or 1): with equal budgets, to h^p sum_i (n_i - 1). Where prod n_i > K the order counts, but
the part of a level depends only on its fan-out and on the number L of leaves below its nodes, so
the best way to each L is found from the leaves up, with branches cut by a bound. In units of K /
2, with y_i = K / (n_i L_i) real nodes above it, a level adds at least n_i (1 - 1 / (4 y_i)) - 1:
its last period of digits, a part f of a whole one, lacks n_i f (1 - f) / y_i. The root adds at
least x - 1, x = K / L_1 > 1 being its real fan-out. Since y_2 = x and y_i >= 2^(i-2) x, the
factors 1 - 1 / (4 y_i) have a product of at least 1 - 1 / (2 x). So j levels above X real nodes
add at least

    x + (j - 1) ((1 - 1 / (2 x)) X / x)^(1 / (j - 1)) - j >= j (X^(1 / j) - 1) - 1,

by the inequality of the means for j - 1 equal numbers and x + x / (2 x - 1) <= x + 1.

Source: Rameshwar, Tandon, Sharma, Sections III to V; Honaker, Section 3. Trees of more than K
leaves and the search over them: derived here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from dptrees.dpcore.arithmetic.elementary import power
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.papers.rameshwar import (
    checked_leaves,
    covering_nodes,
    level_nodes,
    refined_error_from_variances,
    tree_error_from_variances,
)
from dptrees.dpcore.papers.rameshwar_optima import integer_root, optimal_level_budgets
from dptrees.dpcore.privacy.unit import VARIANCE_POWER, Measure
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import Estimator, Measured, TreePlan, TreeSetting
from dptrees.dpcore.uniform.prefix_errors import mean_prefix_variance, plan_batch

WholeFanouts = tuple[int, ...]


def best_fanouts(leaves: int, measure: Measure = Measure.EPSILON) -> WholeFanouts:
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

    def rank(fanouts: WholeFanouts) -> tuple[int, int, WholeFanouts]:
        error = len(fanouts) ** power * sum(covering_nodes(leaves, fanouts))
        return error, len(fanouts), fanouts

    heights = range(1, (leaves - 1).bit_length() + 1)
    best = min((_nearly_equal_fanouts(leaves, height) for height in heights), key=rank)
    for height in heights[1:]:
        limit = rank(best)[0] // height**power
        search = _PaddedSearch(leaves=leaves, height=height, limit=limit)
        best = min([best, *search.run()], key=rank)
    return best


def _nearly_equal_fanouts(leaves: int, height: int) -> WholeFanouts:
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

    def run(self) -> list[WholeFanouts]:
        """The best shapes, for each L below the root the first in order; or none."""
        if _least_part(np.array([float(self.leaves)]), self.height)[0] > self.allowed:
            return []
        below, costs = np.ones(1, np.int64), np.zeros(1, np.int64)
        steps = []
        for levels_above in range(self.height - 1, 0, -1):
            below, costs, fanouts = self.extended(below, costs, levels_above)
            steps.append(dict(zip(below.tolist(), fanouts.tolist(), strict=True)))
        totals = costs + level_nodes(self.leaves, below, -(-self.leaves // below))
        best = below[totals == totals.min(initial=self.limit)]
        return [self.shape(product, steps) for product in best.tolist()]

    def shape(self, below: int, steps: list[dict[int, int]]) -> WholeFanouts:
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
        totals = costs[:, None] + level_nodes(self.leaves, below[:, None], self.fanouts)
        least = 2 * totals / self.leaves + _least_part(self.leaves / products, levels_above)
        kept = np.nonzero((products < self.leaves) & (least <= self.allowed))
        states = np.stack([products[kept], totals[kept], self.fanouts[kept[1]]])
        states = states[:, np.lexsort(states[::-1])]
        first = np.unique(states[0], return_index=True)[1]
        return states[0, first], states[1, first], states[2, first]


def _least_part(nodes: Floats, levels: int) -> Floats:
    """Lower bound on what levels above X real nodes add, in units of K / 2: see the module."""
    slack = 0 if levels == 1 else 1
    root = nodes if levels == 1 else np.sqrt(nodes) if levels == 2 else power(nodes, 1 / levels)
    least: Floats = levels * (root - 1) - slack
    return least


Fanouts = tuple[int, ...]
LevelBudgets = Literal["optimal", "equal"] | Sequence[Fraction]


def tree_mechanism(
    setting: TreeSetting,
    *,
    fanouts: Fanouts | None = None,
    level_budgets: LevelBudgets = "optimal",
    estimator: Estimator = Estimator.FULL,
) -> TreePlan:
    """Definition IV.1: F^tree, a level-uniform tree with given or published fan-outs and budgets.

    Args:
        setting: the leaves, and what measuring them may cost.
        fanouts: the shape; by default the best before estimation at equal budgets.
        level_budgets: of levels 1..h, "equal", or "optimal" before estimation, ~ (n_i - 1)^(1/3)
            (rho: ^(1/2)); or amounts of the budget's measure, for levels 1..h or with the root's
            first.
        estimator: how counts are estimated.

    Raises:
        ValueError: fan-outs that do not hold the leaves, amounts that do not fit them or sum above
            the budget.

    Source: Rameshwar, Tandon, Sharma, Definition IV.1, Theorem IV.2, Section V.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
    >>> plan = tree_mechanism(
    ...     TreeSetting(leaves=256, unit=SUBSTITUTE_ROW, public_total=True,
    ...                 budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))),
    ...     estimator=Estimator.NONE)
    >>> plan.tree.fanouts, round(published_prefix_variance(plan), -1)
    ((16, 16), 480.0)
    """
    shape = best_fanouts(setting.leaves, setting.budget.measure) if fanouts is None else fanouts
    tree = UniformTree(leaves=setting.leaves, fanouts=shape)
    amounts = _level_amounts(tree, setting, level_budgets)
    return TreePlan.from_amounts(setting, tree, amounts, estimator=estimator)


def binary_mechanism(setting: TreeSetting, *, estimator: Estimator = Estimator.FULL) -> TreePlan:
    """Honaker, Section 3: the binary tree with equal noise at every level, and at a private root.

    Args:
        setting, estimator: as for `tree_mechanism`.

    Source: Honaker, Section 3.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> binary_mechanism(TreeSetting(
    ...     leaves=16, unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.RHO, amount=Fraction(1)))).level_amounts[0]
    Fraction(1, 5)
    """
    height = (setting.leaves - 1).bit_length()
    measured = height + (not setting.public_total)
    each = setting.budget.amount / measured if measured else Fraction(0)
    amounts = (Fraction(0) if setting.public_total else each, *[each] * height)
    return tree_mechanism(
        setting, fanouts=(2,) * height, level_budgets=amounts, estimator=estimator
    )


def histogram_mechanism(setting: TreeSetting, *, estimator: Estimator = Estimator.FULL) -> TreePlan:
    """Section III-B, equation (2): F^hist, noise on the leaves alone.

    Args:
        setting, estimator: as for `tree_mechanism`.

    Source: Rameshwar, Tandon, Sharma, Section III-B.
    """
    return tree_mechanism(setting, fanouts=_one_level(setting.leaves), estimator=estimator)


def independent_mechanism(setting: TreeSetting) -> TreePlan:
    """Section III-A: F^ind, noise on every prefix.

    Args:
        setting: as for `tree_mechanism`.

    Source: Rameshwar, Tandon, Sharma, Section III-A.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
    >>> plan = independent_mechanism(TreeSetting(
    ...     leaves=5, unit=SUBSTITUTE_ROW, public_total=True,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))))
    >>> plan.laws
    (None, DiscreteLaplace(scale=Fraction(4, 1)))
    """
    tree = UniformTree(leaves=setting.leaves, fanouts=_one_level(setting.leaves))
    amounts = _level_amounts(tree, setting, "equal")
    return TreePlan.from_amounts(setting, tree, amounts, measured=Measured.PREFIXES)


def _one_level(leaves: int) -> Fanouts:
    return (leaves,) if leaves > 1 else ()


def published_prefix_variance(plan: TreePlan) -> float:
    """The mean, over the K prefixes, of the variance of a plan's own estimate.

    Args:
        plan: with any mechanism and estimator.

    Returns:
        The variance in rows^2.

    Source: Rameshwar, Tandon, Sharma, Lemma III.1, Theorem IV.1, Lemma IV.4, through
    the formulas above; a private total adds the variance of the K-th prefix.
    """
    tree = plan.tree
    if plan.measured is Measured.PREFIXES:
        spread = plan.variances[-1]
        return spread * (tree.leaves - plan.public_total) / tree.leaves
    if tree.height == 0 or plan.estimator in (Estimator.FULL, Estimator.ABOVE):
        return mean_prefix_variance(tree, plan.variances)
    fanouts, variances = _measured_levels(plan)
    if plan.estimator is Estimator.REFINED:
        return refined_error_from_variances(tree.leaves, fanouts, variances) / tree.leaves
    whole = plan.variances[0]
    if plan.estimator is Estimator.BELOW:
        below = plan_batch(plan)[0].below(plan_batch(plan)[1])
        whole = float(below.last[-1][0])
        from_below = [float(values[0]) for values in reversed(below.full[:-1])]
        fanouts, variances = tree.fanouts, from_below
    elif math.isinf(whole):
        whole = UniformTree(leaves=tree.leaves, fanouts=fanouts).level_sizes[1] * variances[0]
    return (tree_error_from_variances(tree.leaves, fanouts, variances) + whole) / tree.leaves


def _measured_levels(plan: TreePlan) -> tuple[Fanouts, list[float]]:
    """The fan-outs and variances of levels 1..h, with edges joined across unmeasured levels."""
    fanouts: list[int] = []
    variances: list[float] = []
    joined = 1
    for fanout, variance in zip(plan.tree.fanouts, plan.variances[1:], strict=True):
        joined *= fanout
        if math.isfinite(variance):
            fanouts.append(joined)
            variances.append(variance)
            joined = 1
    return tuple(fanouts), variances


def _level_amounts(
    tree: UniformTree, setting: TreeSetting, level_budgets: LevelBudgets
) -> tuple[Fraction, ...]:
    """(h + 1,) the amounts of a plan, root first."""
    fanouts, budget = tree.fanouts, setting.budget
    if not fanouts and isinstance(level_budgets, str):
        return (Fraction(0) if setting.public_total else budget.amount,)
    if level_budgets == "equal":
        amounts: Sequence[Fraction] = [budget.amount / len(fanouts)] * len(fanouts)
    elif level_budgets == "optimal":
        amounts = optimal_level_budgets(fanouts, budget.amount, budget.measure)
    else:
        assert not isinstance(level_budgets, str)
        amounts = level_budgets
    if len(amounts) not in (len(fanouts), len(fanouts) + 1):
        raise ValueError(
            f"level_budgets: {len(amounts)} of them for {len(fanouts)} levels below the root"
        )
    return (Fraction(0),) * (len(fanouts) + 1 - len(amounts)) + tuple(amounts)
