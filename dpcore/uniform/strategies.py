"""Strategies: shapes of trees and shares of a budget that make an objective's error small.

With continuous noise the error of a strategy scales with the budget (as epsilon^-2 or 1 / rho),
so strategies are searched once for all budgets. What is minimized is the error after estimation;
a tree that is best before it can be far from best after it (for rho, fan-outs of 4 or 5 before
and 2 after).

- Shares of a given shape. The error is the least, over the linear unbiased estimators, of sum_l
  c_l / x_l^p, with p = 2 for epsilon and 1 for rho, x_l the share of level l and c_l set by the
  estimator. Given c, the best shares are x_l ~ c_l^(1 / (p + 1)); given x, the best estimator is
  generalized least squares. Alternating between the two never makes the error larger.
- Shapes. From equal fan-outs of every height, steps to neighboring shapes (a fan-out changed, two
  exchanged, a level removed or added), following the best few until none has a better neighbor.
  Where all shapes can be tried, the result is the best of them (a test).

Source: derived here. Rameshwar, Tandon, Sharma, Section IV: the optimum before estimation (equal
fan-outs near 17, epsilon_l ~ (n_l - 1)^(1/3)).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from dptrees.dpcore.arithmetic.elementary import power, rounded_power
from dptrees.dpcore.arithmetic.sums import binary_exponent, integer_power, ordered_sum
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.privacy.sensitivity import level_sensitivity
from dptrees.dpcore.privacy.unit import VARIANCE_POWER, Measure
from dptrees.dpcore.uniform.objectives import (
    JUDGED_PLACES,
    SEARCHED_PLACES,
    CdfObjective,
    Objective,
    RangeObjective,
)
from dptrees.dpcore.uniform.plan import TreeSetting
from dptrees.dpcore.uniform.prefix_errors import TreeBatch

Fanouts = tuple[int, ...]

# A level that is given less than this is not worth a measurement.
_SMALLEST_SHARE = 1e-3

# The shapes whose neighbors are tried in each round, and the rounds at most.
_SEARCH_WIDTH = {Measure.EPSILON: 16, Measure.RHO: 4}
_COSTLY_SEARCH_WIDTH = 2
_SEARCH_ROUNDS = 40
# Up to this height, units also pass between any two fan-outs.
_EXCHANGE_HEIGHT = 9
# The heights of equal fan-outs, and the numbers of ternary levels, from which the search sets out.
_SEED_HEIGHTS = 12
_SEED_TERNARY = 6
# The strategies returned of any height, and the largest height whose best is returned too.
_RETURNED = 8
_RETURNED_HEIGHTS = 8
_COSTLY_RETURNED = 4
# Objectives in closed form: their best strategies are where a costly search sets out, too.
_FAST = (CdfObjective(), RangeObjective())
_FAST_TAKEN = 2
# Alternations enough to rank shapes, and enough for the shares of the last few.
_RANKING_STEPS = {Measure.EPSILON: 4, Measure.RHO: 8}
_FINAL_STEPS = {Measure.EPSILON: 20, Measure.RHO: 80}
# Alternation is slow where levels share their work, as with rho: longer steps are faster there.
_STEP_LENGTH = {Measure.EPSILON: 1.0, Measure.RHO: 1.5}


_CDF = CdfObjective()


@dataclass(frozen=True, kw_only=True)
class TreeStrategy:
    """A shape and the shares of the budget, for any budget.

    Args:
        fanouts: (n_1, ..., n_h).
        shares: (h + 1,) of the budget, root first, of sum 1; 0 where a level is not measured.
        mean_variance: the objective's, in rows^2 at a budget of 1, with continuous noise.

    Raises:
        ValueError: shares that do not fit the fan-outs.
    """

    fanouts: Fanouts
    shares: tuple[float, ...]
    mean_variance: float

    def __post_init__(self) -> None:
        if len(self.shares) != len(self.fanouts) + 1:
            raise ValueError(f"shares: {len(self.shares)} of them for fan-outs {self.fanouts}")

    @cached_property
    def rank(self) -> tuple[float, int, Fanouts]:
        """Smaller is better: the error to ten digits, then the height, then the fan-outs."""
        return float(f"{self.mean_variance:.9e}"), len(self.fanouts), self.fanouts


@lru_cache(maxsize=256)
def search_strategies(
    setting: TreeSetting, *, objective: Objective = _CDF, fanouts: Fanouts | None = None
) -> tuple[TreeStrategy, ...]:
    """The best strategies, with continuous noise, and the best of each small height.

    The discrete noise of large budgets favors lower trees than continuous noise does: hence the
    best of each height.

    Args:
        setting: the leaves, and what sets the noise at each level. The amount of its budget does
            not matter.
        objective: whose error is made small.
        fanouts: only the shares of this shape are searched, and no level of it is left out.

    Returns:
        Strategies, the best first.

    Raises:
        ValueError: an objective that does not fit the leaves or the fan-outs.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget
    >>> from fractions import Fraction
    >>> best = search_strategies(TreeSetting(
    ...     leaves=256, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     unit=SUBSTITUTE_ROW, public_total=True))[0]
    >>> best.fanouts, round(best.mean_variance, 1)
    ((16, 16), 159.5)
    """
    if setting.leaves == 1:
        return (one_level(setting.leaves),)
    measure = setting.budget.measure
    root, levels = (
        level_sensitivity(setting.unit, single_node=single, keyed=setting.keyed)
        for single in (not setting.keyed, False)
    )
    search = _Search(
        leaves=setting.leaves,
        measure=measure,
        public_total=setting.public_total,
        objective=objective,
        root_precision=_unit_precision(measure, *root),
        level_precision=_unit_precision(measure, *levels),
    )
    return search.run() if fanouts is None else (search.shares(fanouts),)


def one_level(leaves: int) -> TreeStrategy:
    """The strategy that measures the leaves alone."""
    if leaves <= 1:
        return TreeStrategy(fanouts=(), shares=(1.0,), mean_variance=math.nan)
    return TreeStrategy(fanouts=(leaves,), shares=(0.0, 1.0), mean_variance=math.nan)


def _unit_precision(measure: Measure, l1: int, l2_squared: int) -> float:
    """1 / variance of continuous noise at a budget of 1: Laplace 2 L1^2, Gaussian L2^2 / 2."""
    return 1 / (2 * l1**2) if measure is Measure.EPSILON else 2 / l2_squared


@dataclass(frozen=True, kw_only=True)
class _Search:
    """One search: the domain, and how precise a level's counts are at a share of 1."""

    leaves: int
    measure: Measure
    public_total: bool
    objective: Objective
    root_precision: float
    level_precision: float

    @property
    def is_costly(self) -> bool:
        """Whether to try less."""
        return self.objective.is_costly

    def shares(self, fanouts: Fanouts) -> TreeStrategy:
        """The best shares of a shape; levels of small share are not measured."""
        found = self._judge([fanouts], _FINAL_STEPS[self.measure], JUDGED_PLACES)[0]
        inner = [share if share >= _SMALLEST_SHARE else 0.0 for share in found.shares[:-1]]
        kept = (*inner, found.shares[-1])
        return replace(found, shares=tuple(share / ordered_sum(kept) for share in kept))

    def run(self) -> tuple[TreeStrategy, ...]:
        """The best strategies and the best of each small height, in order of rank."""
        fast = self._fast_shapes() if self.is_costly else []
        known = self._climb(fast)
        ordered = sorted(known.values(), key=lambda strategy: strategy.rank)
        costly = self.is_costly
        chosen = {
            each.fanouts: None for each in ordered[: _COSTLY_RETURNED if costly else _RETURNED]
        }
        for height in range(1, (_COSTLY_RETURNED if costly else _RETURNED_HEIGHTS) + 1):
            best = next((each for each in ordered if len(each.fanouts) == height), None)
            chosen |= {best.fanouts: None} if best else {}
        chosen |= dict.fromkeys(fast)
        return tuple(sorted(self._polished(list(chosen)), key=lambda strategy: strategy.rank))

    def _polished(self, shapes: list[Fanouts]) -> list[TreeStrategy]:
        """The strategies of shapes, without the levels that turn out to be worth little."""
        strategies = self._judge(shapes, _FINAL_STEPS[self.measure], JUDGED_PLACES)
        sparse = list(dict.fromkeys(_without_small_levels(each) for each in strategies))
        return strategies if sparse == shapes else self._polished(sparse)

    def _fast_shapes(self) -> list[Fanouts]:
        """The best or nearly best shapes for the objectives that are fast to search."""
        results: list[TreeStrategy] = []
        for objective in _FAST:
            known = replace(self, objective=objective)._climb([]).values()
            results += sorted(known, key=lambda strategy: strategy.rank)[:_FAST_TAKEN]
        return list(dict.fromkeys(each.fanouts for each in results))

    def _climb(self, seeds: list[Fanouts]) -> dict[Fanouts, TreeStrategy]:
        """Climb from the seeds to shapes without better neighbors; return all shapes met on the
        way."""
        steps = _RANKING_STEPS[self.measure]
        costly = self.is_costly
        width = _COSTLY_SEARCH_WIDTH if costly else _SEARCH_WIDTH[self.measure]
        judge = self._judge_with_root if costly else self._judge
        start = list(dict.fromkeys([*seeds, *self._seeds()]))
        known = {each.fanouts: each for each in judge(start, steps)}
        tried: set[Fanouts] = set()
        for _ in range(_SEARCH_ROUNDS):
            best = sorted(known.values(), key=lambda strategy: strategy.rank)[:width]
            untried = [each.fanouts for each in best if each.fanouts not in tried]
            if not untried:
                break
            tried.update(untried)
            met = [shape for origin in untried for shape in self._neighbors(origin)]
            new = [shape for shape in dict.fromkeys(met) if shape not in known]
            known |= {each.fanouts: each for each in judge(new, steps)}
        return known

    def _seeds(self) -> Iterator[Fanouts]:
        """Equal fan-outs of each height; binary trees with ternary levels at either end."""
        for height in range(1, _SEED_HEIGHTS + 1):
            for fanout in range(*_around(rounded_power(self.leaves, 1 / height))):
                yield from self._completed((fanout,) * (height - 1))
        for ternary in range(_SEED_TERNARY):
            binary = max(0, binary_exponent(Fraction(self.leaves, 3**ternary)))
            yield from self._completed(((2,) * binary + (3,) * ternary)[1:])
            yield from self._completed(((3,) * ternary + (2,) * binary)[1:])

    def _neighbors(self, shape: Fanouts) -> Iterator[Fanouts]:
        """Shapes one step away. The root's fan-out always follows from the others."""
        lower = shape[1:]
        for index, fanout in enumerate(lower):
            before, after = lower[:index], lower[index + 1 :]
            for changed in range(fanout - 2, fanout + 3):
                yield from self._completed((*before, changed, *after))
            yield from self._completed(before + after)
            yield from self._completed((*before, *after[:1], fanout, *after[1:]))
        yield from self._completed((*shape[:1], *lower[1:]))
        for index in range(len(lower) + 1):
            for fanout in (2, 3):
                yield from self._completed((*lower[:index], fanout, *lower[index:]))
        if len(lower) < _EXCHANGE_HEIGHT:
            for giver, taker in itertools.permutations(range(len(lower)), 2):
                moved = list(lower)
                moved[giver], moved[taker] = moved[giver] - 1, moved[taker] + 1
                yield from self._completed(tuple(moved))

    def _completed(self, lower: Fanouts) -> Iterator[Fanouts]:
        """The shape of the given fan-outs below the root's, if there is one."""
        below = math.prod(lower)
        if all(fanout >= 2 for fanout in lower) and below < self.leaves:
            yield (-(-self.leaves // below), *lower)

    def _judge_with_root(self, shapes: list[Fanouts], steps: int) -> list[TreeStrategy]:
        """The same, a private root being measured; good enough to compare shapes."""
        return self._alternate(shapes, steps, SEARCHED_PLACES, roots=[not self.public_total])

    def _judge(
        self, shapes: list[Fanouts], steps: int, places: int = SEARCHED_PLACES
    ) -> list[TreeStrategy]:
        """The best strategy of each shape, its shares found by so many alternations."""
        if self.public_total:
            return self._alternate(shapes, steps, places, roots=[False])
        # Both in one batch: calls of NumPy take longer than their sums.
        found = self._alternate(shapes, steps, places, roots=[False, True])
        without, measured = found[: len(shapes)], found[len(shapes) :]
        return [
            root if _worth_its_root(root, other) else other
            for root, other in zip(measured, without, strict=True)
        ]

    def _alternate(
        self, shapes: list[Fanouts], steps: int, places: int, *, roots: list[bool]
    ) -> list[TreeStrategy]:
        """The strategies of the shapes for each choice of whether the root is measured."""
        if not shapes:
            return []
        shapes, root_measured = shapes * len(roots), np.repeat(roots, len(shapes))
        height = max(map(len, shapes))
        padded = tuple((1,) * (height - len(shape)) + shape for shape in shapes)
        batch = TreeBatch(leaves=self.leaves, fanouts=padded)
        measured = np.concatenate([root_measured[:, None], np.array(padded) > 1], axis=1)
        shares = measured / measured.sum(axis=1, keepdims=True)
        exponent, length = VARIANCE_POWER[self.measure], _STEP_LENGTH[self.measure]
        parts_of = self.objective.searched_parts
        for _ in range(steps):
            # Of a level that hardly counts, rounding may leave less than nothing.
            parts = np.maximum(parts_of(batch, self._precisions(shares), places), 0)
            total = parts.sum(axis=1, keepdims=True)
            # Where nothing has an error, any shares are as good as those there are.
            parts = np.where(total > 0, parts / np.where(total > 0, total, 1), shares)
            ratio = np.divide(parts, shares, out=np.zeros_like(parts), where=shares > 0)
            shares = shares * power(ratio, length / (exponent + 1))
            # Leaves are measured even where the objective reads none of them by itself.
            shares[:, -1] = np.maximum(shares[:, -1], _SMALLEST_SHARE)
            shares /= shares.sum(axis=1, keepdims=True)
        variances = parts_of(batch, self._precisions(shares), places).sum(axis=1)
        return [
            TreeStrategy(
                fanouts=shape,
                shares=(float(row[0]), *map(float, row[1 + height - len(shape) :])),
                mean_variance=float(variance),
            )
            for shape, row, variance in zip(shapes, shares, variances, strict=True)
        ]

    def _precisions(self, shares: Floats) -> Floats:
        """1 / variance of every level at a budget of 1: (shapes, h + 1)."""
        precisions = self.level_precision * integer_power(shares, VARIANCE_POWER[self.measure])
        precisions[:, 0] *= self.root_precision / self.level_precision
        if self.public_total:
            precisions[:, 0] = np.inf
        return precisions


def _around(value: float) -> tuple[int, int]:
    return math.floor(value), math.ceil(value) + 1


def _worth_its_root(measured: TreeStrategy, without: TreeStrategy) -> bool:
    """Whether measuring the root helps by more than the rounding of shares could."""
    gain = without.mean_variance - measured.mean_variance
    return measured.shares[0] >= _SMALLEST_SHARE and gain > 1e-6 * without.mean_variance


def _without_small_levels(strategy: TreeStrategy) -> Fanouts:
    """The fan-outs when inner levels of small share are not measured, which joins their edges."""
    joined = list(strategy.fanouts[:1])
    for share, fanout in zip(strategy.shares[1:-1], strategy.fanouts[1:], strict=True):
        if share < _SMALLEST_SHARE:
            joined[-1] *= fanout
        else:
            joined.append(fanout)
    return tuple(joined)
