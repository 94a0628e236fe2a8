"""Plans for the smallest error of nonnegative counts, by simulation on public histograms.

Each objective reads sums of leaves between boundaries; some, spread evenly, are simulated
(`dpcore.repair.paths`). The figure is the geometric mean of the histograms' root mean square
errors; measured on others it was off by less than a quarter (a test). The best plan for estimates
gives the leaves much of the budget. Where most leaves hold nothing, higher levels deserve more: a
node known to hold next to nothing makes all below it next to nothing. So the plans tried are the
best for estimates, and trees of equal fan-outs of every height with the best shares for estimates
times a power of a factor (1 to 0.7) with every doubling of nodes from the first level down, with
the root measured and not; the shares of the best are refined level by level where there are few.
By the model, over 4,096 cells and at n epsilon = 100 / 1,000 / 10,000 / 100,000 the counts of
ranges are then off by 0.53 / 0.76 / 0.93 / 1 times what they are under the plan for ranges,
counts of prefixes by 0.6 / 0.82 / 0.93 / 1 times what they are under the plan for the CDF.
Source: derived here, by simulation (docs/plans.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, exp2, log, log2, power
from dptrees.dpcore.arithmetic.sums import interpolated
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.privacy.sensitivity import level_law
from dptrees.dpcore.repair.paths import REFERENCES, Distribution, Paths, lay_paths, path_errors
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.objectives import (
    CdfObjective,
    CountObjective,
    NodeObjective,
    Objective,
    QuantileObjective,
    RangeObjective,
)
from dptrees.dpcore.uniform.plan import Measured, TreePlan, TreeSetting
from dptrees.dpcore.uniform.strategies import Fanouts, search_strategies

# Multiples of these two are spread evenly over a square (R. C. Bose's and Weyl's lattices).
_FIRST_STEP, _SECOND_STEP = (math.sqrt(5) - 1) / 2, math.sqrt(2) - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """Boundaries and what is read there.

    Attributes:
        stops: (pairs, 2) boundaries, so many leaves left of each.
        of_stops: (pairs, readings, 2) the coefficients of the errors at the boundaries; None: each
            boundary is read by itself.
        of_total: (pairs, readings) of the error of the whole count; None: it is not read.
    """

    stops: Integers
    of_stops: Floats | None
    of_total: Floats | None

    def mean_square(self, errors: Floats, total: Floats) -> float:
        """Return the mean square of the reading's error, from (pairs, 2) errors at the boundaries
        and (pairs,) of the total."""
        read = errors
        if self.of_stops is not None:
            read = (self.of_stops * errors[:, None, :]).sum(axis=-1)
        if self.of_total is not None:
            read = read + self.of_total * total[:, None]
        return float(np.mean(np.square(read)))


def objective_reading(
    objective: Objective, tree: UniformTree, reference: Distribution, pairs: int
) -> Reading:
    """The reading of an objective, for data that lie as a reference.

    Args:
        objective: any of `dpcore.uniform.objectives`.
        tree: of nodes, whose; of all others its leaves alone matter.
        reference: where the quantiles of the data lie.
        pairs: how many pairs of boundaries.
    """
    leaves, places = tree.leaves, np.arange(pairs, dtype=np.float64)
    first: Floats = (places + 0.5) / pairs
    second: Floats = places * _FIRST_STEP % 1
    if isinstance(objective, QuantileObjective):
        return _quantiles(objective, leaves, reference, pairs)
    if isinstance(objective, CdfObjective):
        stops = 1 + np.floor(np.stack([first, second], axis=1) * leaves).astype(np.int64)
        return Reading(stops=stops, of_stops=None, of_total=None)
    starts, stops = _ranges(objective, tree, first, second)
    return Reading(
        stops=np.stack([starts, stops], axis=1),
        of_stops=np.broadcast_to(np.array([[-1.0, 1.0]]), (pairs, 1, 2)),
        of_total=None,
    )


def reference_histograms(objective: Objective, leaves: int) -> tuple[Distribution, ...]:
    """The histograms that an objective's counts are judged on: the public ones, or where it knows a
    public guess of the distribution, that alone."""
    if not isinstance(objective, QuantileObjective) or not objective.guesses:
        return REFERENCES
    known = sorted(
        (guess.stop / leaves, quantile)
        for guess, quantile in zip(objective.guesses, objective.quantiles, strict=True)
    )
    places, below = (np.array([0.0, *column, 1.0]) for column in zip(*known, strict=True))
    below = np.maximum.accumulate(below)
    return (lambda x: interpolated(x, places, below),)


def _quantiles(
    objective: QuantileObjective, leaves: int, reference: Distribution, pairs: int
) -> Reading:
    """Ranks of quantiles where they lie, or with guesses values in leaves."""
    chosen = np.arange(2 * pairs).reshape(pairs, 2) % len(objective.quantiles)
    quantiles = np.array(objective.quantiles)[chosen]
    if objective.guesses:
        stops = np.array([guess.stop for guess in objective.guesses])[chosen]
        scale = 1 / np.array([guess.density for guess in objective.guesses])[chosen]
    else:
        edges = np.linspace(0, 1, min(leaves, 2**16) + 1)
        nearest = np.searchsorted(reference(edges), quantiles) * leaves // (len(edges) - 1)
        stops, scale = np.clip(nearest, 0, leaves), np.ones((pairs, 2))
    return Reading(
        stops=stops,
        of_stops=np.eye(2) * scale[..., None],
        of_total=-quantiles * scale,
    )


def _ranges(
    objective: Objective, tree: UniformTree, first: Floats, second: Floats
) -> tuple[Integers, Integers]:
    """(pairs,) where ranges begin and end."""
    leaves = tree.leaves
    if isinstance(objective, RangeObjective) and not objective.widths:
        # A triangle, folded from the square: each range of at least one leaf as likely as another.
        ends = np.sort(np.floor(np.stack([first, second]) * (leaves + 1)).astype(np.int64), axis=0)
        same = ends[0] == ends[1]
        return np.where(same & (ends[0] == leaves), leaves - 1, ends[0]), np.where(
            same, np.minimum(ends[1] + 1, leaves), ends[1]
        )
    if isinstance(objective, RangeObjective):
        widths = np.array(objective.widths)[np.arange(len(first)) % len(objective.widths)]
        starts = np.floor(second * (leaves - widths + 1)).astype(np.int64)
        return starts, starts + widths
    if isinstance(objective, CountObjective):
        starts = np.floor(second * leaves).astype(np.int64)
        return starts, starts + 1
    assert isinstance(objective, NodeObjective)
    shares = np.cumsum(objective.weights) / math.fsum(objective.weights)
    third = np.arange(len(first)) * _SECOND_STEP % 1
    levels = np.minimum(np.searchsorted(shares, third, side="right"), tree.height)
    below = np.array([tree.leaves_below(level) for level in range(tree.height + 1)])[levels]
    nodes = np.floor(second * np.array(tree.level_sizes)[levels]).astype(np.int64)
    return nodes * below, np.minimum((nodes + 1) * below, leaves)


# Pairs of boundaries of a prediction, and the numbers that one histogram's may draw at most.
_PREDICTED_PAIRS = 1024
_MOST_DRAWS = 2**22
FEWEST_PAIRS = 64
# Numbers that are simulated together; of so many exact counts are kept, of a few or of many plans.
_AT_ONCE, _MOST_KEPT, _LITTLE = 2**20, 2**21, 2**17
# Without a guess: so many rows, in units of the scale of a count's noise at the whole budget.
_ASSUMED_SCALES = 10_000


@dataclass(frozen=True, kw_only=True)
class CountError:
    """Predicted errors of counts, in the objective's unit.

    Attributes:
        rows: how many were assumed.
        typical: the geometric mean over the histograms.
        least, most: of the histograms.
    """

    rows: int
    typical: float
    least: float
    most: float


def assumed_rows(setting: TreeSetting) -> int:
    """The rows that are assumed where nobody guesses them: 10,000 times the scale of the noise that
    a count has with the whole budget, so n epsilon = 10,000 for one row a unit.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> assumed_rows(TreeSetting(
    ...     leaves=256, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1, 10)),
    ...     unit=ADD_REMOVE_ROW))
    99958
    """
    law = level_law(setting.unit, setting.budget, single_node=False, keyed=setting.keyed)
    return max(1, round(_ASSUMED_SCALES * math.sqrt(law.variance / 2)))


def can_be_simulated(plan: TreePlan) -> bool:
    """Whether nodes are measured, and none has too many children to draw them along paths."""
    if plan.measured is not Measured.NODES:
        return False
    return 2 * FEWEST_PAIRS * sum(plan.tree.fanouts) <= _MOST_DRAWS and plan.tree.height > 0


# What is read on some histograms, and the paths there.
_Side = tuple[tuple[Reading, ...], Paths]


def _sides(objective: Objective, tree: UniformTree, rows: int, pairs: int) -> Iterator[_Side]:
    """Generate the histograms with their paths: as many together as fit the cache."""
    number = len(reference_histograms(objective, tree.leaves))
    drawn = pairs * (tree.level_sizes[1] + 2 * sum(tree.fanouts[1:]))
    together = max(1, min(number, _AT_ONCE // drawn))
    size = drawn * number
    lay = _kept_side if size <= _LITTLE else _lately_kept_side if size <= _MOST_KEPT else _side
    for first in range(0, number, together):
        yield lay(objective, tree, rows, pairs, first, first + together)


def _side(
    objective: Objective, tree: UniformTree, rows: int, pairs: int, first: int, stop: int
) -> _Side:
    references = reference_histograms(objective, tree.leaves)[first:stop]
    readings = tuple(objective_reading(objective, tree, each, pairs) for each in references)
    stops = [reading.stops for reading in readings]
    return readings, lay_paths(tree, rows, list(zip(references, stops, strict=True)))


# A search simulates many plans of one shape, and a search for a budget the same shapes again.
_kept_side, _lately_kept_side = lru_cache(maxsize=48)(_side), lru_cache(maxsize=4)(_side)


@lru_cache(maxsize=1024)
def count_error(
    plan: TreePlan,
    objective: Objective,
    rows: int,
    pairs: int = _PREDICTED_PAIRS,
    *,
    shrunk: bool = False,
) -> CountError:
    """Root mean square error of a plan's counts, by the model.

    Args:
        plan: of measured levels, estimated efficiently, made nonnegative from the top down.
        objective: what is read.
        rows: a public guess.
        pairs: of boundaries looked at.
        shrunk: whether the counts come from `dpcore.trees.isotonic`.

    Raises:
        ValueError: the tree has too many children a node.
    """
    if not can_be_simulated(plan):
        raise ValueError(f"fanouts: {plan.tree.fanouts} are too large to simulate counts")
    tree = plan.tree
    pairs = min(pairs, _MOST_DRAWS // (2 * sum(tree.fanouts)))
    errors = []
    for readings, paths in _sides(objective, tree, rows, pairs):
        wrong, total = path_errors(plan, paths, shrunk=shrunk)
        for place, reading in enumerate(readings):
            own = slice(place * pairs, (place + 1) * pairs)
            errors.append(math.sqrt(reading.mean_square(wrong[own], total[own])))
    typical = exp(float(np.mean(log(np.array(errors)))))
    return CountError(rows=rows, typical=typical, least=min(errors), most=max(errors))


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
        shrunk: whether the counts come from `dpcore.trees.isotonic`.

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
