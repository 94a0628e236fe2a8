"""Predicted error of a plan's counts, at a public guess of the number of rows: a model.

The estimates' errors follow from the plan alone. The errors of the nonnegative counts depend on
the data, too: they are simulated (`dpcore.repair.paths`) on public histograms
(`dpcore.repair.references`), and the figure is the geometric mean of the histograms' root mean
square errors. Measured on others it was off by less than a quarter (a test).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, log
from dptrees.dpcore.privacy.sensitivity import level_law
from dptrees.dpcore.repair.paths import Paths, lay_paths, path_errors
from dptrees.dpcore.repair.readings import Reading, objective_reading, reference_histograms
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.objectives import Objective
from dptrees.dpcore.uniform.plan import TreePlan
from dptrees.dpcore.uniform.setting import TreeSetting

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
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> assumed_rows(TreeSetting(
    ...     leaves=256, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1, 10)),
    ...     unit=ADD_REMOVE_ROW))
    99958
    """
    law = level_law(setting.unit, setting.budget, single_node=False, keyed=setting.keyed)
    return max(1, round(_ASSUMED_SCALES * math.sqrt(law.variance / 2)))


def can_be_simulated(plan: TreePlan) -> bool:
    """Whether no node has too many children to draw them along paths."""
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
        shrunk: whether the counts come from `dpcore.trees.shrunk`.

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
