"""The plan of a wide table: what its counts, its choices and its measured pairs may spend.

    columns   the one-way counts of every column are measured, each with `column_amount`
    choices   a pair is chosen at a time, each with `choice_amount`, up to `most_pairs` times
    pairs     the two-way counts of the chosen pairs are measured; they share `pair_amount`

A choice is the exponential mechanism over the pairs. The score of a pair is the L1 distance of its
two-way counts, cells added up to groups, from a public table (the one that the released numbers
predict), less a public number: what the noise of measuring it is expected to be.

Guarantee (proof sketch). Everything that a step depends on except the exact counts (groups, public
tables, amounts) was released before it, so the steps compose adaptively: their amounts add up, of
epsilon and of rho alike, and no transcript spends more than d `column_amount` + k `choice_amount` +
`pair_amount`, with k choices. A column's counts, and a pair's, are counts of disjoint cells:
sensitivities (L1, L2^2) as one level of a tree (`dpcore.privacy.sensitivity.level_sensitivity`);
groups of cells are disjoint too. Adding cells up and subtracting a public table never raise L1, so
every score moves by at most L1 in either direction (`distance_sensitivity`): its range is 2 L1.

    epsilon   permute-and-flip with the weights exp(rate score) loses 2 L1 rate: the rate is
              amount / (2 L1), less what rounded weights cost
    rho       the exponential mechanism of range 2 L1 rate is (2 L1 rate)^2 / 8-zCDP: the rate is
              sqrt(2 amount) / L1, less the same

A weight is at least `dpcore.exponential.weights.FLOOR`, beside 1 for the best: this clips scores at
a fixed number below the largest score, and clipped scores move by no more than L1.

Source: McKenna, Miklau, Sheldon, "Winning the NIST Contest", 2021 (MST: a tree of pairs by their
distance from independence); McKenna et al., "AIM", VLDB 2022 (scores less expected noise); McKenna
and Sheldon, "Permute-and-Flip", NeurIPS 2020; Cesar and Rogers, ALT 2021, lemma 3.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from dpcore.codec import CONTEXT, INLINE, Coded
from dpcore.exponential.plan import SLACK
from dpcore.marginals.shape import TableShape
from dpcore.noise.laws import DiscreteLaplace, NoiseLaw
from dpcore.privacy.budget import Budget, Measure
from dpcore.privacy.sensitivity import distance_sensitivity, level_sensitivity, noise_law
from dpcore.privacy.spending import Spending
from dpcore.privacy.unit import PrivacyUnit
from dpcore.refusal import Refusal

# Of the budget: what the one-way counts spend, and what the choices of pairs may spend.
COLUMN_PART = Fraction(3, 10)
CHOICE_PART = Fraction(1, 10)
_ROOT_BITS = 64


@dataclass(frozen=True, kw_only=True)
class MarginalsPlan(Coded):
    """The plan of the counts of a wide table. Holds no data.

    Args:
        shape: the columns.
        unit: what neighbors differ in.
        budget: of everything together.
        column_amount: of the counts of each column.
        choice_amount: of each choice of a pair.
        pair_amount: of the counts of all chosen pairs together.
        most_pairs: k, the most pairs that are chosen.

    Raises:
        Refusal: an amount that is not above 0, or amounts that exceed the budget; more pairs than a
            spanning tree has; noise that cannot be drawn.

    >>> from dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = MarginalsPlan.planned(
    ...     shape=TableShape(sizes=(3, 4, 5)), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> plan.column_law, str(plan.pair_amount), plan.most_pairs
    (DiscreteLaplace(scale=Fraction(10, 1)), '3/5', 2)
    """

    shape: TableShape
    unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)
    column_amount: Fraction
    choice_amount: Fraction
    pair_amount: Fraction
    most_pairs: int

    def __post_init__(self) -> None:
        for name in ("column_amount", "choice_amount", "pair_amount"):
            if not getattr(self, name) > 0:
                raise Refusal(name, f"{getattr(self, name)} is not above 0")
        if not 1 <= self.most_pairs < self.shape.columns:
            raise Refusal(
                "most_pairs", f"{self.most_pairs} is not from 1 to {self.shape.columns - 1}"
            )
        if self.spent > self.budget.amount:
            raise Refusal(
                "pair_amount",
                f"all amounts sum to {self.spent}, above the budget {self.budget.amount}",
            )
        if not self.choice_rate > 0:
            raise Refusal("choice_amount", f"{self.choice_amount} is too small to choose by")
        _ = self.column_law, self.law(self.pair_amount / self.shape.columns)

    @classmethod
    def planned(cls, *, shape: TableShape, unit: PrivacyUnit, budget: Budget) -> MarginalsPlan:
        """The plan by rule: three tenths for the columns, one for the choices, the rest for pairs.

        Args:
            shape: the columns.
            unit: what neighbors differ in.
            budget: of everything together.

        Raises:
            Refusal: a budget too small for the columns.
        """
        pairs = shape.columns - 1
        try:
            return cls(
                shape=shape,
                unit=unit,
                budget=budget,
                column_amount=budget.amount * COLUMN_PART / shape.columns,
                choice_amount=budget.amount * CHOICE_PART / pairs,
                pair_amount=budget.amount * (1 - COLUMN_PART - CHOICE_PART),
                most_pairs=pairs,
            )
        except ValueError as error:
            raise Refusal(
                budget.measure.value,
                f"{float(budget.amount):g} is too little for {shape.columns} columns: {error}",
            ) from error

    @property
    def spent(self) -> Fraction:
        """The most that all steps spend together."""
        columns, pairs = self.shape.columns, self.most_pairs
        return columns * self.column_amount + pairs * self.choice_amount + self.pair_amount

    @property
    def spending(self) -> Spending:
        """Privacy loss of the whole plan."""
        if self.budget.measure is Measure.EPSILON:
            return Spending(epsilon=self.budget.amount)
        return Spending(rho=self.budget.amount, moved=None)

    @cached_property
    def sensitivity(self) -> tuple[int, int]:
        """(L1, L2^2) of the counts of a column, and of the counts of a pair."""
        return level_sensitivity(self.unit, single_node=False)

    def law(self, amount: Fraction) -> NoiseLaw:
        """Noise law of the counts of a column, or of a pair, that spends an amount."""
        return noise_law(Budget(measure=self.budget.measure, amount=amount), *self.sensitivity)

    @cached_property
    def column_law(self) -> NoiseLaw:
        """Noise law of the counts of each column."""
        return self.law(self.column_amount)

    @cached_property
    def choice_rate(self) -> Fraction:
        """Rate of the weights of a choice, for a row of score."""
        moved = distance_sensitivity(self.unit)
        if self.flips:
            return self.choice_amount / (2 * moved) - SLACK
        return _root_below(2 * self.choice_amount) / moved - SLACK

    @property
    def flips(self) -> bool:
        """Whether pairs are chosen by permute-and-flip: under a pure epsilon."""
        return self.budget.measure is Measure.EPSILON


def mean_size(law: NoiseLaw) -> float:
    """The mean absolute value of noise, in rows: exactly for large scales, else about.

    >>> from dpcore.noise.laws import DiscreteLaplace
    >>> mean_size(DiscreteLaplace(scale=Fraction(10)))
    10.0
    """
    if isinstance(law, DiscreteLaplace):
        return float(law.scale)
    return math.sqrt(law.variance * 2 / math.pi)


def _root_below(square: Fraction) -> Fraction:
    """A rational that is no more than the square root, and less by at most 2^-64."""
    scaled = (square.numerator << 2 * _ROOT_BITS) // square.denominator
    return Fraction(math.isqrt(scaled), 1 << _ROOT_BITS)
