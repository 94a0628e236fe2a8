"""The plan of a wide table: its layout of counts, and what counts, choices and pairs may spend.

    columns   the one-way counts of every column are measured; they share d `column_amount`
    choices   one pair after the other is chosen; all choices share `choice_amount`
    pairs     the two-way counts of the chosen pairs are measured; they share `pair_amount`

Where rows are few beside the noise, a *design* moves parts of `pair_amount` to the columns and to
the choices. The narrowest column is measured before, with what every design gives it: its noisy
sum shows how many rows there are. With c cells the noise of a table sums to c / epsilon in mean,
so tables of more cells get more (`cell_amounts`).

Pairs that are *named* are measured first, without a choice: which they are is public. The tree of
pairs that the first round chooses then only joins what they leave apart, and a design without any
choice gives `choice_amount` to the pairs too.

A choice is the exponential mechanism over the pairs; a score is the L1 distance of a pair's
grouped counts from a public table, less a public number: half of the expected noise. Where rows
are many beside the noise, a second round adds pairs that make cliques of three or four columns.
Guarantee (proof sketch). All that a step depends on except the exact counts follows from what was
released before, the design too, so the steps compose adaptively. A design only moves budget, and
the narrowest column gets the same in each: no transcript spends more than d `column_amount` +
`choice_amount` + `pair_amount` (`MarginalsPlan.spent_by`). The counts of a column or pair are of
disjoint cells, so their sensitivities are as for one level of a tree. Adding cells up and
subtracting a public table never raise L1, so scores move by at most L1 in either direction: range
2 L1.

    epsilon   permute-and-flip with the weights exp(rate score) loses 2 L1 rate: the rate is
              amount / (2 L1), less what rounded weights cost
    rho       the exponential mechanism is (2 L1 rate)^2 / 8-zCDP: the rate is
              sqrt(2 amount) / L1, less the same

A weight is at least `FLOOR`, beside 1 for the best: clipped scores move by no more than L1.
Source: McKenna, Miklau, Sheldon 2021 (MST); McKenna et al. 2022 (AIM); McKenna, Sheldon 2020;
Cesar, Rogers 2021, lemma 3.4. Layout: the columns' counts, then each pair i < j, cell a n_j + b.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import combinations

from dptrees.dpcore.arithmetic.elementary import cube_root
from dptrees.dpcore.arithmetic.sums import ordered_sum, root_below
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.exponential.plan import SLACK
from dptrees.dpcore.noise.laws import DiscreteLaplace, NoiseLaw
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.sensitivity import distance_sensitivity, level_sensitivity, noise_law
from dptrees.dpcore.privacy.unit import Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.messages import ArrayCounts
from dptrees.dpcore.specification import CONTEXT, INLINE, Coded, Refusal, coded

MOST_COLUMNS = 64
MOST_COUNTERS = 2**22

Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class TableShape(Coded):
    """The columns of a table, by their numbers of cells.

    Args:
        sizes: n_i, of each column.
        ordered: whether the cells of each column have an order, so that neighbors are alike; none:
            no column's have.
        apart: whether the last cell of each column is apart from the order of the others; none: no
            column's is.

    Raises:
        Refusal: fewer than 2 or more than 64 columns, a column without cells, flags that are not
            one a column, or more than 2^22 counters.

    >>> shape = TableShape(sizes=(2, 3, 4))
    >>> shape.length, shape.column_slice(1), shape.pair_slice(0, 2)
    (35, slice(2, 5, None), slice(15, 23, None))
    """

    sizes: tuple[int, ...]
    ordered: tuple[bool, ...] = field(default=(), metadata=coded(omit=()))
    apart: tuple[bool, ...] = field(default=(), metadata=coded(omit=()))

    def __post_init__(self) -> None:
        if not 2 <= len(self.sizes) <= MOST_COLUMNS:
            raise Refusal(
                "sizes", f"{len(self.sizes)} columns; a table has 2 to {MOST_COLUMNS} of them"
            )
        if min(self.sizes) < 1:
            raise Refusal("sizes", f"{min(self.sizes)} cells; a column has at least 1")
        for name in ("ordered", "apart"):
            flags = len(getattr(self, name))
            if flags not in (0, len(self.sizes)):
                raise Refusal(name, f"{flags} flags for {len(self.sizes)} columns; state all")
        if self.length > MOST_COUNTERS:
            raise Refusal(
                "sizes",
                f"{self.length:,} counters in all; at most {MOST_COUNTERS:,}: give the columns "
                "fewer cells",
            )

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.sizes)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """All pairs of columns i < j, in their order."""
        return tuple(combinations(range(self.columns), 2))

    @cached_property
    def _starts(self) -> dict[Pair | int, int]:
        starts: dict[Pair | int, int] = {}
        place = 0
        for column, size in enumerate(self.sizes):
            starts[column], place = place, place + size
        for first, second in self.pairs:
            starts[first, second] = place
            place += self.sizes[first] * self.sizes[second]
        return starts

    @cached_property
    def length(self) -> int:
        """Number of counters."""
        total = sum(self.sizes)
        return total + (total**2 - sum(size**2 for size in self.sizes)) // 2

    def is_ordered(self, column: int) -> bool:
        """Whether the cells of a column have an order."""
        return bool(self.ordered) and self.ordered[column]

    def is_apart(self, column: int) -> bool:
        """Whether the last cell of a column is apart from the order of the others."""
        return bool(self.apart) and self.apart[column]

    def column_slice(self, column: int) -> slice:
        """The counters of one column."""
        start = self._starts[column]
        return slice(start, start + self.sizes[column])

    def pair_slice(self, first: int, second: int) -> slice:
        """The counters of a pair of columns, first < second."""
        start = self._starts[first, second]
        return slice(start, start + self.sizes[first] * self.sizes[second])

    def column_counts(self, counts: Integers, column: int) -> Integers:
        """(n_i,) counts of a column.

        Args:
            counts: (length,) all counters.
            column: i.
        """
        return counts[self.column_slice(column)]

    def pair_counts(self, counts: Integers, first: int, second: int) -> Integers:
        """(n_i, n_j) counts of a pair.

        Args:
            counts: (length,) all counters.
            first, second: i < j.
        """
        table = counts[self.pair_slice(first, second)]
        return table.reshape(self.sizes[first], self.sizes[second])

    def merged(self, partials: Iterable[bytes]) -> ArrayCounts:
        """Add partial counts, in any order: a row counts in each column and in each pair.

        Args:
            partials: `Partial.data`; empty bytes count nothing.
        """
        return ArrayCounts.merged(self.length, partials, times=self.columns + len(self.pairs))


# Of the budget, where rows are many: what the one-way counts spend, and the choices of pairs.
COLUMN_PART = Fraction(7, 20)
CHOICE_PART = Fraction(1, 20)
# Narrower columns get as much as one of so many cells.
_FEWEST_CELLS = 8
MOST_CLIQUE_COLUMNS = 4
# No pair gets less than this part of an equal part (`dpcore.tables.question.pair_amounts`).
_SMALLEST_PART = 256
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True, kw_only=True)
class PairDesign(Coded):
    """What is measured of a table, and what for, by its number of rows.

    Args:
        least_rows: the fewest rows that the design is for, in mean sizes of the noise of one cell
            of a pair where all pairs of a tree share `pair_amount` equally; at least 0.
        further_pairs: the most pairs of the second round; 0: there is none.
        further_part: of `pair_amount`, for the second round; 0 where there is none.
        clique_columns: the most columns of a clique, 2 to 4.
        column_part: of `pair_amount`, that the columns get.
        choice_part: of `pair_amount`, that the choices get.
        first_part: of the pairs of a tree, rounded up, that the first round may choose.

    Raises:
        Refusal: an argument out of range.
    """

    least_rows: int
    further_pairs: int = 0
    further_part: Fraction = Fraction(0)
    clique_columns: int = 2
    column_part: Fraction = field(default=Fraction(0), metadata=coded(omit=Fraction(0)))
    choice_part: Fraction = field(default=Fraction(0), metadata=coded(omit=Fraction(0)))
    first_part: Fraction = field(default=Fraction(1), metadata=coded(omit=Fraction(1)))

    def __post_init__(self) -> None:
        if self.least_rows < 0:
            raise Refusal("least_rows", f"{self.least_rows} is below 0")
        if self.further_pairs < 0:
            raise Refusal("further_pairs", f"{self.further_pairs} is below 0")
        if not 0 <= self.further_part < 1 or bool(self.further_part) != bool(self.further_pairs):
            raise Refusal("further_part", f"{self.further_part} does not fit the further pairs")
        if not 2 <= self.clique_columns <= MOST_CLIQUE_COLUMNS:
            raise Refusal(
                "clique_columns", f"{self.clique_columns} is not from 2 to {MOST_CLIQUE_COLUMNS}"
            )
        for name in ("column_part", "choice_part"):
            if getattr(self, name) < 0:
                raise Refusal(name, f"{getattr(self, name)} is below 0")
        if not self.moved_part < 1:
            raise Refusal("column_part", "the columns and choices leave nothing for the pairs")
        if not 0 < self.first_part <= 1:
            raise Refusal("first_part", f"{self.first_part} is not above 0 and at most 1")

    @property
    def moved_part(self) -> Fraction:
        """The part of `pair_amount` that is not for pairs."""
        return self.column_part + self.choice_part


@dataclass(frozen=True, kw_only=True)
class MarginalsPlan(Coded):
    """The plan of the counts of a wide table. Holds no data.

    Args:
        shape: the columns.
        unit: what neighbors differ in.
        budget: of everything together.
        column_amount: of the counts of each column, in mean; designs add to it.
        choice_amount: of all choices together; designs add to it.
        pair_amount: of the counts of all chosen pairs together; designs take from it.
        designs: by rising numbers of rows, the first for any number.
        named: pairs i < j that are measured without a choice.
        column_parts: of what all columns get, for each; none: equal ones.

    Raises:
        Refusal: an amount that is not above 0, or amounts that exceed the budget; designs that are
            not in order; noise that cannot be drawn; named pairs that are no pairs of columns
            or twice there; parts of columns that are not above 0 and of sum 1, or none where
            a design gives columns more.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = MarginalsPlan.planned(
    ...     shape=TableShape(sizes=(3, 18, 32)), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> [round(1 / float(each)) for each in plan.column_amounts(plan.designs[-1])]
    [13, 9, 6]
    >>> str(plan.pair_amount), plan.most_pairs
    ('3/5', 3)
    """

    shape: TableShape
    unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)
    column_amount: Fraction
    choice_amount: Fraction
    pair_amount: Fraction
    designs: tuple[PairDesign, ...] = (PairDesign(least_rows=0),)
    named: tuple[Pair, ...] = field(default=(), metadata=coded(omit=()))
    column_parts: tuple[Fraction, ...] = field(default=(), metadata=coded(omit=()))

    def __post_init__(self) -> None:
        if len({*self.named} & {*self.shape.pairs}) < len(self.named):
            raise Refusal("named", "not all are pairs i < j of columns, each once")
        for name in ("column_amount", "choice_amount", "pair_amount"):
            if not getattr(self, name) > 0:
                raise Refusal(name, f"{getattr(self, name)} is not above 0")
        least = [each.least_rows for each in self.designs]
        if not least or least[0] != 0 or least != sorted(set(least)):
            raise Refusal("designs", "their least_rows must rise from 0")
        for design in self.designs:
            if self.choices(design) and not self.choice_rate(design) > 0:
                raise Refusal("choice_amount", f"{self.choice_amount} is too small to choose by")
            measured = len(self.named) + self.choices(design)
            self.law(self.pair_amount * (1 - design.moved_part) / (_SMALLEST_PART * measured))
        if self.column_parts:
            if len(self.column_parts) != self.shape.columns or sum(self.column_parts) != 1:
                raise Refusal("column_parts", "not one for each column, of sum 1")
            if not min(self.column_parts) > 0:
                raise Refusal("column_parts", f"{min(self.column_parts)} is not above 0")
        elif any(each.column_part for each in self.designs):
            raise Refusal("column_parts", "there are none, and a design gives columns more")
        if self.spent > self.budget.amount:
            raise Refusal(
                "pair_amount",
                f"all amounts sum to {self.spent}, above the budget {self.budget.amount}",
            )
        for amount in self.column_amounts(self.designs[-1]):
            self.law(amount)

    @classmethod
    def planned(
        cls, *, shape: TableShape, unit: PrivacyUnit, budget: Budget, named: tuple[Pair, ...] = ()
    ) -> MarginalsPlan:
        """The plan by rule: the columns, a twentieth or more for choices, then the pairs.

        Columns get 7/20 of the budget where rows are many, and up to 4/5 where they are few.

        Args:
            shape: the columns.
            unit: what neighbors differ in.
            budget: of everything together.
            named: pairs that are measured without a choice.

        Raises:
            Refusal: a budget too small for the columns.

        Source: benchmarks/wide_tables.py, and docs/decisions/0063 for the designs.
        """
        try:
            return cls(
                shape=shape,
                unit=unit,
                budget=budget,
                column_amount=budget.amount * COLUMN_PART / shape.columns,
                choice_amount=budget.amount * CHOICE_PART,
                pair_amount=budget.amount * (1 - COLUMN_PART - CHOICE_PART),
                designs=_planned_designs(shape, named),
                named=named,
                column_parts=cell_amounts(
                    [max(each, _FEWEST_CELLS) for each in shape.sizes],
                    Budget(measure=budget.measure, amount=Fraction(1)),
                ),
            )
        except ValueError as error:
            raise Refusal(
                budget.measure.value,
                f"{float(budget.amount):g} is too little for {shape.columns} columns: {error}",
            ) from error

    @property
    def spent(self) -> Fraction:
        """The most that all steps spend together."""
        return max(map(self.spent_by, self.designs))

    def spent_by(self, design: PairDesign) -> Fraction:
        """The most that all steps spend together in a design."""
        pairs = self.pair_amount * (1 - design.moved_part)
        return sum(self.column_amounts(design)) + self.choices_amount(design) + pairs

    @property
    def first_columns(self) -> Sequence[int]:
        """The columns that are measured before the design is known: it follows from their sums.

        All of them where they get the same in every design, else the narrowest.
        """
        sizes = self.shape.sizes
        return (sizes.index(min(sizes)),) if self.column_parts else range(len(sizes))

    def column_amounts(self, design: PairDesign) -> tuple[Fraction, ...]:
        """(d,) amounts of the counts of each column; in all designs the narrowest gets the same."""
        whole = self.shape.columns * self.column_amount
        if not self.column_parts:
            return (self.column_amount,) * self.shape.columns
        (first,) = self.first_columns
        own = self.column_parts[first]
        growth = 1 + design.column_part * self.pair_amount / (whole * (1 - own))
        return tuple(
            part * whole * (1 if column == first else growth)
            for column, part in enumerate(self.column_parts)
        )

    @cached_property
    def tree_pairs(self) -> int:
        """The most pairs of the first round of choices, in any design."""
        return _joining_pairs(self.shape, self.named)

    def first_pairs(self, design: PairDesign) -> int:
        """The most pairs of the first round of choices."""
        return math.ceil(self.tree_pairs * design.first_part)

    def choices_amount(self, design: PairDesign) -> Fraction:
        """The amount of all choices together, in a design."""
        return self.choice_amount + design.choice_part * self.pair_amount

    @property
    def most_pairs(self) -> int:
        """The most pairs that are measured."""
        return min(len(self.shape.pairs), len(self.named) + max(map(self.choices, self.designs)))

    def choices(self, design: PairDesign) -> int:
        """The most choices of both rounds."""
        return self.first_pairs(design) + design.further_pairs

    def design(self, first: Sequence[Integers]) -> PairDesign:
        """The design for a number of rows, which released numbers show.

        Args:
            first: the noisy counts of each of the `first_columns`.
        """
        rows = row_estimate(first, [1.0] * len(first))
        pairs = len(self.named) + self.tree_pairs
        noise = mean_size(self.law(self.pair_amount / pairs))
        return [each for each in self.designs if rows >= each.least_rows * noise][-1]

    def first_amounts(self, design: PairDesign) -> tuple[Fraction, Fraction]:
        """Budgets of all named pairs and of the first round of choices: equal parts a pair."""
        amount = self.pair_amount * (1 - design.moved_part) * (1 - design.further_part)
        if not self.choices(design):
            amount += self.choices_amount(design)
        part = Fraction(len(self.named), len(self.named) + self.first_pairs(design))
        return amount * part, amount * (1 - part)

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

    def variance(self, amount: Fraction) -> float:
        """Variance of each count of a column, or of a pair, that spends an amount, in rows^2.

        Noise other than 0 never comes below it, and quotients of variances stay within floating
        point.
        """
        return max(self.law(amount).variance, _LEAST_VARIANCE)

    def choice_rate(self, design: PairDesign) -> Fraction:
        """Rate of the weights of one choice, for a row of score."""
        amount = self.choices_amount(design) / self.choices(design)
        moved = distance_sensitivity(self.unit)
        if self.flips:
            return amount / (2 * moved) - SLACK
        return root_below(2 * amount) / moved - SLACK

    @property
    def flips(self) -> bool:
        """Whether pairs are chosen by permute-and-flip: under a pure epsilon."""
        return self.budget.measure is Measure.EPSILON


def _joining_pairs(shape: TableShape, named: Iterable[Pair]) -> int:
    """How many pairs a tree over the columns has beside the named ones."""
    trees = list(range(shape.columns))
    for first, second in named:
        trees = [trees[first] if each == trees[second] else each for each in trees]
    return len(set(trees)) - 1


# Designs for few rows: the fewest rows, as in `PairDesign`, and the parts of the budget.
_FEW_ROWS = (
    (0, Fraction(4, 5), Fraction(1, 10), Fraction(1, 3)),
    (20, Fraction(7, 10), Fraction(1, 10), Fraction(1)),
    (160, Fraction(3, 5), Fraction(1, 10), Fraction(1)),
    (450, Fraction(9, 20), CHOICE_PART, Fraction(1)),
)
_MANY_ROWS = 2_200
# The most that columns get where pairs are named: these are all measured.
_MOST_BESIDE_NAMED = Fraction(1, 2)


def _planned_designs(shape: TableShape, named: tuple[Pair, ...]) -> tuple[PairDesign, ...]:
    tree, pairs = shape.columns - 1, 1 - COLUMN_PART - CHOICE_PART
    few = [
        PairDesign(
            least_rows=rows,
            column_part=(min(columns, _MOST_BESIDE_NAMED if named else 1) - COLUMN_PART) / pairs,
            choice_part=(choices - CHOICE_PART) / pairs,
            first_part=first,
        )
        for rows, columns, choices, first in _FEW_ROWS
    ]
    if len(shape.pairs) <= len(named) + _joining_pairs(shape, named):
        return (*few, PairDesign(least_rows=_MANY_ROWS))
    return (
        *few,
        PairDesign(
            least_rows=_MANY_ROWS,
            further_pairs=tree,
            further_part=Fraction(9, 20),
            clique_columns=3,
        ),
        PairDesign(
            least_rows=10 * _MANY_ROWS,
            further_pairs=2 * tree,
            further_part=Fraction(3, 5),
            clique_columns=4,
        ),
    )


def cell_amounts(cells: Sequence[int], budget: Budget) -> tuple[Fraction, ...]:
    """Amounts of tables that share a budget, which minimize the sum of all mean sizes of noise.

    With c cells the noise of a table sums to c / epsilon, or c / sqrt(2 rho), in mean: the optimal
    amounts are proportional to the root of c, or to c^(2/3).

    Args:
        cells: of each table.
        budget: of all of them.

    >>> cell_amounts((1, 9), Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    (Fraction(1, 4), Fraction(3, 4))
    """
    if not cells:
        return ()
    if budget.measure is Measure.EPSILON:
        weights = [math.sqrt(each) for each in cells]
    else:
        weights = [cube_root(float(each * each)) for each in cells]
    total = math.fsum(weights)
    return budget.split([weight / total for weight in weights])


def row_estimate(counts: Sequence[Integers], variances: Sequence[float]) -> float:
    """The number of rows, by the sums of some columns' noisy counts; at least 1.

    Args:
        counts: of each of the columns.
        variances: of each of its counts, in rows^2.
    """
    # Of equal variances every quotient is exactly 1.
    weights = [
        variances[0] / variance / len(each)
        for each, variance in zip(counts, variances, strict=True)
    ]
    total = ordered_sum(
        weight * float(each.sum()) for weight, each in zip(weights, counts, strict=True)
    )
    return max(1.0, total / ordered_sum(weights))


def mean_size(law: NoiseLaw) -> float:
    """The mean absolute value of noise, in rows: exactly for large scales, else about.

    >>> from dptrees.dpcore.noise.laws import DiscreteLaplace
    >>> mean_size(DiscreteLaplace(scale=Fraction(10)))
    10.0
    """
    if isinstance(law, DiscreteLaplace):
        return float(law.scale)
    # The variance of almost no noise is 0 as a float.
    return max(math.sqrt(law.variance * 2 / math.pi), 1e-9)
