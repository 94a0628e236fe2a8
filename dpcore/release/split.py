"""Split of a budget among trees: by weight, for equal errors, or for the least sum of errors.

A tree's predicted error falls about as a power of its part of the budget: for an epsilon as 1 /
part, for a rho as 1 / sqrt(part). Taken as such powers near the parts at which they were
predicted, errors e_i by weights w_i are equal, or their sum is least, at parts that one
multiplier decides: e_i w_i = m, or -w_i de_i/ds_i = m, with sum s_i = 1. Errors predicted there
give the next powers: Newton's method on logarithms; a step that does not do better is halved.
Trees that share a certified rho are coupled: what is left of epsilon to all of them, S, is worth
a rho of about S^k, so s_i is worth u_i = s_i S^(k - 1); errors are powers of u_i, and S = (sum
u_i)^(1/k). Source: derived here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, log, log1p, log_add_exp
from dptrees.dpcore.arrays import Flags, Floats
from dptrees.dpcore.questions.planning import Workload
from dptrees.dpcore.specification import Refusal

# Shares are whole numbers of this part, rounded down.
SHARE_UNIT = Fraction(1, 10**10)
# Errors by weights are equal where the largest is at most this part above the least.
EQUALITY = 1e-3
# The sum is the least where a power law promises no more than this part less.
_LEAST_GAIN = 1e-6
_MOST_ROUNDS = 16
# Powers that errors are taken to fall with; where discrete noise vanishes they fall faster.
_FALLS = (1 / 16, 64.0)
# Smaller errors count as none.
_NOTHING = 1e-300


class BudgetSplit(Enum):
    """The aim of the shares of a budget."""

    WEIGHTS = "weights"  # shares are in proportion to the weights
    EQUAL_ERRORS = "equal_errors"  # predicted errors times weights are equal
    LEAST_ERROR = "least_error"  # the sum of predicted errors times weights is the least


def check_split(split: BudgetSplit, workloads: Sequence[Workload[Any]]) -> None:
    """Refuse shares that are chosen for errors where a tree has none to compare.

    Args:
        split: what shares are chosen for.
        workloads: of the trees.

    Raises:
        Refusal: a tree's error is not predicted, or does not follow from its share, or errors of
            several units would be added up.
    """
    if split is BudgetSplit.WEIGHTS:
        return
    for workload in workloads:
        if workload.error_unit is None:
            raise Refusal(
                "split",
                f"{split.value} needs a predicted error of every tree, and {workload.name} has "
                "none that compares; use weights, or whole levels (of counts: consistency shrunk)",
            )
        if workload.has_fixed_amounts:
            raise Refusal(
                "split",
                f"{split.value} does not go with level_budgets of {workload.name} that are given "
                "as numbers; use equal or optimal, or the split weights",
            )
    units = {str(workload.error_unit): workload.name for workload in workloads}
    if split is BudgetSplit.LEAST_ERROR and len(units) > 1:
        (one, first), (other, second) = list(units.items())[:2]
        raise Refusal(
            "split",
            f"least_error adds errors up, but that of {first} is in {one} and that of {second} in "
            f"{other}; use equal_errors or weights",
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedErrors:
    """Errors of the trees at some shares, and their change nearby.

    Args:
        shares: of the trees; positive.
        errors: (n,) predicted there, times the weights.
        falls: (n,) the powers of the parts with which they fall; from 1/16 to 64 are taken.
        coupled: (n,) which trees share a certified rho; none where all of them share the budget.
        order: k, of the rho by what is left to the coupled trees.
    """

    shares: tuple[Fraction, ...]
    errors: Floats
    falls: Floats
    coupled: Flags
    order: float = 1.0

    def loss(self, split: BudgetSplit) -> float:
        """The loss that a split minimizes: the logarithm of the largest over the least error, or of
        the sum of errors."""
        logs = self._log_errors
        if split is BudgetSplit.EQUAL_ERRORS:
            return float(logs.max() - logs.min())
        return log_add_exp(logs)

    def is_done(self, split: BudgetSplit) -> bool:
        """Whether the shares are as good as they are said to be."""
        if split is BudgetSplit.EQUAL_ERRORS:
            return self.loss(split) <= log1p(EQUALITY)
        there = self._log_parts(self._multiplier(split), split)
        logs = self._log_errors - self._powers * (there - self._log_worth)
        return self.loss(split) - log_add_exp(logs) <= _LEAST_GAIN

    def next_shares(self, split: BudgetSplit, step: float) -> tuple[Fraction, ...]:
        """The shares that would be best if the powers held everywhere.

        Args:
            split: what is wanted.
            step: how far to go there, on logarithms; 1 is all the way.
        """
        parts = self._log_parts(self._multiplier(split), split)
        if self.coupled.any():
            # s_i = u_i S^(1 - k), with S^k the sum of u_i.
            left = log_add_exp(parts[self.coupled]) / self.order
            parts = parts + np.where(self.coupled, (1 - self.order) * left, 0.0)
        logs = self._log_shares + step * (parts - self._log_shares)
        return rounded_shares(exp(logs - log_add_exp(logs)))

    @cached_property
    def _log_errors(self) -> Floats:
        return log(np.maximum(self.errors, _NOTHING))

    @property
    def _powers(self) -> Floats:
        return np.clip(self.falls, *_FALLS)

    @cached_property
    def _log_slopes(self) -> Floats:
        return self._log_errors + log(self._powers)

    @cached_property
    def _log_shares(self) -> Floats:
        return log(np.array([float(share) for share in self.shares]))

    @cached_property
    def _log_worth(self) -> Floats:
        """(n,) logarithms of u_i; of s_i for trees that are not coupled."""
        logs = self._log_shares
        if not self.coupled.any():
            return logs
        left = log_add_exp(logs[self.coupled])
        return logs + np.where(self.coupled, (self.order - 1) * left, 0.0)

    def _log_parts(self, multiplier: float, split: BudgetSplit) -> Floats:
        """(n,) logarithms of u_i at a multiplier, as a logarithm; for the least sum that of the
        coupled trees, from which the others' follows: m = m_coupled k (sum u_i)^(1 - 1/k)."""
        worth, falls = self._log_worth, self._powers
        if split is BudgetSplit.EQUAL_ERRORS:
            return worth + (self._log_errors - multiplier) / falls

        def parts(level: float) -> Floats:
            return worth + (self._log_slopes - worth - level) / (1 + falls)

        if not self.coupled.any():
            return parts(multiplier)
        inner = parts(multiplier)
        total = log_add_exp(inner[self.coupled])
        outer = parts(multiplier + log(self.order) + (1 - 1 / self.order) * total)
        return np.where(self.coupled, inner, outer)

    def _multiplier(self, split: BudgetSplit) -> float:
        """The logarithm of the multiplier at which shares sum to 1: the sum falls with it."""
        low, high = -1e5, 1e5
        for _ in range(100):
            middle = (low + high) / 2
            parts = self._log_parts(middle, split)
            total = parts[~self.coupled]
            if self.coupled.any():
                total = np.append(total, log_add_exp(parts[self.coupled]) / self.order)
            low, high = (middle, high) if log_add_exp(total) > 0 else (low, middle)
        return (low + high) / 2


def solve_shares(
    split: BudgetSplit,
    start: Sequence[Fraction],
    predicted: Callable[[tuple[Fraction, ...]], SharedErrors],
) -> tuple[Fraction, ...]:
    """The shares at which errors times weights are equal, or their sum is the least.

    Errors that jump may allow no equal ones; the shares at which they are nearest to it are found.

    Args:
        split: which of the two.
        start: shares that can be planned.
        predicted: the errors at shares; a ValueError where a tree cannot be planned with its own.

    Returns:
        Multiples of `SHARE_UNIT` whose sum is at most 1, or `start`.

    Raises:
        ValueError: as `predicted` at the start.

    >>> def predicted(shares):
    ...     errors = np.array([3.0, 1.0]) / np.array([float(each) for each in shares])
    ...     return SharedErrors(shares=shares, errors=errors, falls=np.ones(2),
    ...                         coupled=np.zeros(2, dtype=np.bool_))
    >>> solve_shares(BudgetSplit.EQUAL_ERRORS, [Fraction(1, 2)] * 2, predicted)
    (Fraction(3, 4), Fraction(1, 4))
    """
    best, step = predicted(tuple(start)), 1.0
    for _ in range(_MOST_ROUNDS):
        if best.is_done(split):
            break
        shares, step = best.next_shares(split, step), step / 2
        if shares == best.shares:
            break
        with suppress(ValueError):  # then half the step
            trial = predicted(shares)
            if trial.loss(split) < best.loss(split):
                best, step = trial, 1.0
    return best.shares


def rounded_shares(shares: Sequence[float] | Floats) -> tuple[Fraction, ...]:
    """Shares of sum 1 as multiples of `SHARE_UNIT`, at least one each, of sum at most 1.

    >>> [str(each) for each in rounded_shares([0.25, 0.75])], sum(rounded_shares([1 / 3] * 3)) < 1
    (['1/4', '3/4'], True)
    """
    whole = SHARE_UNIT.denominator
    # Rounded first, so that a share of just a quarter is one on every machine.
    units = [max(1, math.floor(round(float(share) * whole, 3))) for share in shares]
    units[units.index(max(units))] -= max(0, sum(units) - whole)
    return tuple(Fraction(each, whole) for each in units)


def joint_error(split: BudgetSplit, weights: Sequence[Fraction], errors: Sequence[float]) -> float:
    """The error that compositions are compared by: the weighted sum of the logarithms of the trees'
    errors where shares follow the weights, else the logarithm of the largest error times its
    weight, or of the sum of these."""
    logs = [log(max(error, _NOTHING)) for error in errors]
    pairs = list(zip(weights, logs, strict=True))
    if split is BudgetSplit.WEIGHTS:
        return math.fsum(float(weight) * each for weight, each in pairs)
    weighted = [log(float(weight)) + each for weight, each in pairs]
    return max(weighted) if split is BudgetSplit.EQUAL_ERRORS else log_add_exp(np.array(weighted))
