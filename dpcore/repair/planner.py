"""Plans for counts: shapes and shares of the smallest error of nonnegative counts, by the model.

The best plan for estimates gives the leaves much of the budget, since the estimate of a range adds
up many of them. Where most leaves hold nothing, counts do not need it: a node known to hold next to
nothing makes all below it next to nothing. There higher levels deserve more, by a factor from each
level to the next. So the plans tried are

- the best for estimates;
- trees of equal fan-outs of every height with the best shares for estimates, times a power of a
  factor (1 to 0.7) with every doubling of nodes from the first level down, with the root measured
  and not;

and the shares of the best one are refined level by level where there are few. By the model, over
4,096 cells and at n epsilon = 100 / 1,000 / 10,000 / 100,000 the counts of ranges are then off by
0.53 / 0.76 / 0.93 / 1 times what they are under the plan for ranges, counts of prefixes by 0.6 /
0.82 / 0.93 / 1 times what they are under the plan for the CDF.

Source: derived here, by simulation (docs/plans.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dptrees.dpcore.arithmetic.elementary import exp2, log2, power
from dptrees.dpcore.repair.error import FEWEST_PAIRS, can_be_simulated, count_error
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.objectives import Objective
from dptrees.dpcore.uniform.plan import TreePlan
from dptrees.dpcore.uniform.setting import TreeSetting
from dptrees.dpcore.uniform.strategies import Fanouts, search_strategies

# By how much less than for estimates a level gets with every doubling of the nodes above it.
_FACTORS = (1.0, 0.94, 0.88, 0.8, 0.7)
# What the root gets, in parts of what a level gets on average.
_ROOT_PARTS = (0.0, 0.5)
_LARGEST_FANOUT = 256
# A root so little above a whole number counts as it.
_NEARLY = Fraction(1, 10**9)
# Pairs of boundaries that compare all plans, and those that compare the best few.
_SEARCHED_PAIRS, _JUDGED_PAIRS = 96, 512
_JUDGED = 6
# Of a shape that is given: so many numbers are drawn for a histogram at most, of wide nodes for
# fewer pairs. Of those for which even the fewest would take more nothing is searched.
_SEARCHED_DRAWS = 2**19
# By what a level's share is multiplied and divided, one round each.
_STEPS = (1.5, 1.25)
_REFINED_HEIGHT = 6
# A plan must be better by this to be preferred to the one for estimates.
_LEAST_GAIN = 0.01


@lru_cache(maxsize=64)
def plan_for_counts(
    best: TreePlan,
    objective: Objective,
    rows: int,
    *,
    fixed_shape: bool = False,
    shrunk: bool = False,
) -> TreePlan:
    """The plan whose counts are best, by the model; the same on every machine.

    Args:
        best: the best plan for estimates.
        objective: what will be read.
        rows: a public guess of how many there are.
        fixed_shape: whether to keep the plan's shape and search its shares alone.
        shrunk: whether the counts come from `dpcore.trees.shrunk`.

    Returns:
        A plan of the same setting; ``best`` where no other is better by 1 %, or where its nodes
        have too many children to simulate it, or to simulate many plans of a shape that is given.
    """
    if not can_be_simulated(best):
        return best
    most = _SEARCHED_DRAWS // (2 * sum(best.tree.fanouts)) if fixed_shape else 2 * _JUDGED_PAIRS
    if most < FEWEST_PAIRS:
        return best
    search = _Search(
        setting=best.setting, objective=objective, rows=rows, pairs=most, shrunk=shrunk
    )
    shapes = [best.tree.fanouts] if fixed_shape else list(_equal_shapes(best.tree.leaves))
    ranked = sorted(
        (plan for shape in shapes for plan in search.tilted(shape)),
        key=lambda plan: search.error(plan, _SEARCHED_PAIRS),
    )[:_JUDGED]
    chosen = min(ranked, key=lambda plan: search.error(plan, _JUDGED_PAIRS))
    for step in _STEPS if chosen.tree.height <= _REFINED_HEIGHT else ():
        chosen = search.refined(chosen, step)
    ours, theirs = (search.error(plan, 2 * _JUDGED_PAIRS) for plan in (chosen, best))
    return chosen if ours < theirs * (1 - _LEAST_GAIN) else best


def _equal_shapes(leaves: int) -> Iterator[Fanouts]:
    """One of each height, with fan-outs as equal as whole numbers are, none above 256."""
    shapes: dict[Fanouts, None] = {}
    for height in range(1, leaves.bit_length() + 1):
        fanout = _least_fanout(leaves, height)
        root = -(-leaves // fanout ** (height - 1))
        if fanout <= _LARGEST_FANOUT and root >= 2:
            shapes[(root,) + (fanout,) * (height - 1)] = None
    yield from shapes


def _least_fanout(leaves: int, height: int) -> int:
    """Return the least whole number whose power is the leaves or more."""
    fanout = max(1, round(exp2(log2(leaves) / height)))
    while (fanout + _NEARLY) ** height < leaves:
        fanout += 1
    while (fanout - 1 + _NEARLY) ** height >= leaves:
        fanout -= 1
    return fanout


@dataclass(frozen=True, kw_only=True)
class _Search:
    """Search for a plan, judged by no more than so many pairs of boundaries."""

    setting: TreeSetting
    objective: Objective
    rows: int
    pairs: int
    shrunk: bool

    def error(self, plan: TreePlan, pairs: int) -> float:
        """Return the error to four digits, so that the last bits of a machine decide nothing."""
        pairs = min(pairs, self.pairs)
        error = count_error(plan, self.objective, self.rows, pairs, shrunk=self.shrunk)
        return float(f"{error.typical:.3e}")

    def tilted(self, fanouts: Fanouts) -> Iterator[TreePlan]:
        """The plans of a shape that give higher levels more."""
        tree = UniformTree(leaves=self.setting.leaves, fanouts=fanouts)
        shape = (tree.level_sizes[1], *fanouts[1:])
        strategies = search_strategies(
            self.setting.at_unit_budget, objective=self.objective, fanouts=shape
        )[0]
        lower = strategies.shares[1:]
        average = math.fsum(lower) / len(lower)
        for root in (0.0,) if self.setting.public_total else _ROOT_PARTS:
            for factor in _FACTORS if len(lower) > 1 else (1.0,):
                shares = [
                    share * power(factor, log2(size / tree.level_sizes[1]))
                    for share, size in zip(lower, tree.level_sizes[1:], strict=True)
                ]
                yield self._plan(tree, (root * average, *shares))

    def refined(self, plan: TreePlan, step: float) -> TreePlan:
        """Each level's share times a step or divided by it, where that is better."""
        least = self.error(plan, _JUDGED_PAIRS)
        for level, amount in enumerate(plan.level_amounts):
            for factor in (step, 1 / step) if amount else ():
                shares = [float(each) for each in plan.level_amounts]
                shares[level] *= factor
                moved = self._plan(plan.tree, tuple(shares))
                if (error := self.error(moved, _JUDGED_PAIRS)) < least:
                    plan, least = moved, error
        return plan

    def _plan(self, tree: UniformTree, shares: tuple[float, ...]) -> TreePlan:
        total = math.fsum(shares)
        amounts = self.setting.budget.split(tuple(share / total for share in shares))
        return TreePlan.from_amounts(self.setting, tree, amounts)
