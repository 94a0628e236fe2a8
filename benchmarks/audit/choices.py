"""Exact laws of chosen bounds, of units and of values, and the loss between two laws of a choice.

**Bounds of units.** Rows pass through the question's own map, and the release chooses as it does;
what is recorded is the law by which it chose. Nothing is left to chance. Neighbors differ in one
unit of up to nine rows under up to four keys, beside many small units and some large ones.

**Bounds of values.** Rows pass through bounding and the question's own map, and the release chooses
as it does; what is recorded is the counts of its one histogram and the law of their noise, whose
exact losses are added up. Given the same noisy counts, the same bounds must follow from both
tables. Neighbors differ in one unit of up to nine rows. Half of the choices are of dates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import date
from fractions import Fraction
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from benchmarks.audit.exact import Finding, Loss, loss_ratio
from benchmarks.audit.recording import SECRET, plan_of, shuffled_pair
from dptrees.dpcore.choices import value_bounds
from dptrees.dpcore.choices.key_selection import KeyColumns
from dptrees.dpcore.choices.unit_bounds import BoundOf, BoundPlan, BoundQuestion
from dptrees.dpcore.choices.value_bounds import (
    SIDES,
    DateBoundsPlan,
    DateBoundsQuestion,
    ValueBoundsPlan,
    ValueBoundsQuestion,
)
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.release.released import release_rows

# Orders of Renyi divergences: a claim of rho bounds the divergence of order a by a rho.
ORDERS = (1.5, 2.0, 5.0, 8.0, 30.0, 40.0)


def flip_law(weights: Sequence[Fraction]) -> list[Fraction]:
    """The probability of each candidate by permute-and-flip: it succeeds, and is the one of all
    successes that is chosen.

    >>> [str(each) for each in flip_law([Fraction(1), Fraction(1, 2)])]
    ['3/4', '1/4']
    """
    found = []
    for own, weight in enumerate(weights):
        others = [Fraction(1)]  # the probability of so many other successes
        for other, chance in enumerate(weights):
            if other == own:
                continue
            more = [each * chance for each in others]
            fewer = [each * (1 - chance) for each in others]
            others = [
                a + b for a, b in zip([*fewer, Fraction(0)], [Fraction(0), *more], strict=True)
            ]
        found.append(weight * sum(each / (number + 1) for number, each in enumerate(others)))
    return found


def weight_law(weights: Sequence[Fraction]) -> list[Fraction]:
    """The probability of each candidate by the exponential mechanism."""
    total = sum(weights)
    return [weight / total for weight in weights]


def law_loss(one: Sequence[Fraction], two: Sequence[Fraction], measure: Measure) -> float:
    """The epsilon, or the rho, between two laws of the same outcomes, the larger of both
    directions.

    A rho is the largest of D_a / a over `ORDERS`, so it may be a little too small.

    Args:
        one, two: the probability of each outcome, above 0.
        measure: of the loss.

    >>> law = [Fraction(3, 4), Fraction(1, 4)]
    >>> round(law_loss(law, law[::-1], Measure.EPSILON), 6) == round(math.log(3), 6)
    True
    """
    logs = [(_log(a), _log(b)) for a, b in zip(one, two, strict=True)]
    if measure is Measure.EPSILON:
        return max(abs(a - b) for a, b in logs)
    return max(
        math.log(math.fsum(math.exp(order * a + (1 - order) * b) for a, b in each))
        / (order * (order - 1))
        for each in (logs, [(b, a) for a, b in logs])
        for order in ORDERS
    )


def _log(chance: Fraction) -> float:
    return math.log(chance.numerator) - math.log(chance.denominator)


Row = tuple[str, str]  # its unit and its key
SIZES = (1, 2, 4, 7)
SHOPS = KeyColumns(columns=("shop",), types=("text",))


def bound_question(rng: Random, neighbors: Neighbors, measure: Measure) -> BoundQuestion:
    """A random choice of a bound, of rows or of keys."""
    unit = PrivacyUnit(neighbors=neighbors, columns=("person",))
    of = rng.choice(list(BoundOf))
    plan = BoundPlan(
        unit=unit,
        budget=Budget(measure=measure, amount=rng.choice([Fraction(1, 8), Fraction(1, 2)])),
        sizes=SIZES,
        tolerated=rng.choice([Fraction(0), Fraction(1), Fraction(13, 2)]),
    )
    return BoundQuestion(
        name=of.key, of=of, domain=SHOPS if of is BoundOf.KEYS else None, plan=plan
    )


def unit_rows(rng: Random, unit: str) -> list[Row]:
    """Rows of a unit, often all under different keys, so that it has as many of both."""
    number, keys = rng.choice([1, 2, 3, 5, 9]), rng.choice([1, 4, 9])
    return [(unit, f"k{place % keys}") for place in range(number)]


def neighboring_tables(rng: Random, neighbors: Neighbors) -> Iterator[list[Row]]:
    """Two tables that differ in one unit: many small units and some large ones are alike."""
    others: list[Row] = []
    for number in range(rng.choice([3, 40, 90])):
        others += [(f"u{number}", f"k{place}") for place in range(rng.choice([1, 2, 2, 3, 5]))]
    for number in range(rng.choice([0, 5])):
        others += unit_rows(rng, f"v{number}")
    before = unit_rows(rng, "x") if neighbors is Neighbors.SUBSTITUTE else []
    return shuffled_pair(rng, others, before, unit_rows(rng, "x"))


def chosen_law(question: Any, columns: dict[str, pa.Array]) -> list[Fraction]:
    """The law of the choices that a release makes from rows."""
    found: list[list[Fraction]] = []

    def chosen(self: Any, counts: Any, stream: Any) -> Any:
        found.append(self.probabilities(counts))
        return self.sizes[:1]

    plan = plan_of(question, question.budget)
    with patch.object(type(question.plan), "chosen", chosen):
        rows = pa.table(columns).to_batches(max_chunksize=50)
        release_rows(plan, rows, ReleaseKey(SECRET))
    (result,) = found
    return result


def choice_ratio(question: Any, tables: Iterator[list[Any]], name: str, kind: Any) -> float:
    """What a pair of tables reveals by a choice, in parts of the claim.

    Args:
        question: the choice.
        tables: of rows of a unit and a value.
        name, kind: of the column of values.
    """
    laws = []
    for rows in tables:
        units, values = zip(*rows, strict=True) if rows else ((), ())
        columns = {"person": pa.array(units, pa.string()), name: pa.array(values, kind)}
        laws.append(chosen_law(question, columns))
    loss = law_loss(laws[0], laws[1], question.budget.measure)
    return loss / float(question.budget.amount)


def audit_bounds(measure: str, *, plans: int, pairs: int, seed: int = 0) -> Finding:
    """Random choices of bounds, each with random pairs of neighboring tables; as `exact.audit`.

    Args:
        measure: "epsilon" or "rho".
        plans, pairs, seed: as there.
    """
    rng, found = Random(f"bounds {measure} {seed}"), Finding()
    for _ in range(plans):
        neighbors = rng.choice(list(Neighbors))
        question = bound_question(rng, neighbors, Measure(measure))
        for _ in range(pairs):
            tables = neighboring_tables(rng, neighbors)
            found.add(choice_ratio(question, tables, "shop", pa.string()), leaked=False)
    return found


ValueRow = tuple[str, float | None]  # its unit and its value
CANDIDATES = (0.0, 1.0, 2.0, 4.0)
VALUES = (-math.inf, -1.0, 0.0, 1.5, 3.0, 9.0, math.nan, None)
# Bins of dates, and the date of each value in audits of them.
YEARS = tuple(date(year, 1, 1) for year in (2000, 2001, 2002, 2004))
DATES = (date.min, date(1999, 12, 31), YEARS[0], date(2001, 7, 1), date(2003, 12, 31), date.max)


def make_question(rng: Random, neighbors: Neighbors, measure: Measure) -> ValueBoundsQuestion:
    kinds: tuple[Any, Any, Any] = rng.choice(
        [
            (ValueBoundsPlan, CANDIDATES, ValueBoundsQuestion),
            (DateBoundsPlan, YEARS, DateBoundsQuestion),
        ]
    )
    plan = kinds[0](
        unit=PrivacyUnit(neighbors=neighbors, columns=rng.choice([(), ("person",)])),
        budget=Budget(measure=measure, amount=rng.choice([Fraction(1, 4), Fraction(1)])),
        sides=rng.choice(SIDES),
        candidates=kinds[1],
    )
    question: ValueBoundsQuestion = kinds[2](
        name="b", column="x", integers=False, trees=("x",), plan=plan
    )
    return question


def value_column(question: ValueBoundsQuestion, values: Sequence[float | None]) -> pa.Array:
    """The column of the values of rows; of a choice of dates that of their dates."""
    if not isinstance(question, DateBoundsQuestion):
        return pa.array(values, pa.float64())
    dates = dict(zip(VALUES, (*DATES, None, None), strict=True))
    return pa.array([dates[each] for each in values], pa.date32())


def make_rows(rng: Random, unit: str, *, is_row: bool) -> list[ValueRow]:
    """Rows of a unit, often all of one value."""
    values = rng.sample(VALUES, 2)
    return [(unit, rng.choice(values)) for _ in range(1 if is_row else rng.choice([1, 2, 5, 9]))]


def neighboring_values(rng: Random, unit: PrivacyUnit) -> Iterator[list[ValueRow]]:
    """Two tables that differ in one unit."""
    others: list[ValueRow] = []
    values = rng.sample(VALUES[1:6], 2)
    for number in range(rng.choice([3, 10, 40, 90])):
        others += [(f"u{number}", rng.choice(values))]
    for number in range(rng.choice([0, 3, 8])):
        others += [(f"v{number}", rng.choice(VALUES))]
    before = make_rows(rng, "x", is_row=unit.is_row) if unit.substitutes else []
    return shuffled_pair(rng, others, before, make_rows(rng, "x", is_row=unit.is_row))


def histogram_noise(question: ValueBoundsQuestion, columns: dict[str, pa.Array]) -> tuple[Any, Any]:
    """The exact counts to which a release adds noise, and the law of the noise; each is one."""
    found = []

    def added(law: NoiseLaw, exact: Any, stream: Any, *, largest: int) -> Any:
        found.append((exact, law))
        return np.zeros_like(exact)

    def chosen(self: Any, noisy: Any) -> Any:
        assert not noisy.any(), "bounds follow from more than the noisy counts"
        return ()

    with (
        patch.object(value_bounds, "add_noise", added),
        patch.object(type(question.plan), "chosen", chosen),
    ):
        rows = pa.table(columns).to_batches(max_chunksize=50)
        release_rows(plan_of(question, question.budget), rows, ReleaseKey(SECRET))
    (result,) = found
    return result


def losses(measure: Measure, pairs: int = 200) -> Iterator[Fraction | float]:
    """Yield the losses of random choices from random neighbors, in parts of the claim."""
    rng = Random(f"values {measure.value}")
    for _ in range(pairs):
        question = make_question(rng, rng.choice(list(Neighbors)), measure)
        drawn = []
        for rows in neighboring_values(rng, question.unit):
            units, values = zip(*rows, strict=True) if rows else ((), ())
            columns = {"person": pa.array(units, pa.string()), "x": value_column(question, values)}
            drawn.append(histogram_noise(question, columns))
        (one, law), (two, other) = drawn
        assert law == other, "a law depends on the data"
        loss = Loss()
        loss.add(law, (one - two).tolist())
        yield loss_ratio(plan_of(question, question.budget), {"b": loss})


def audit_value_bounds(measure: str, *, plans: int, pairs: int) -> Finding:
    """Random choices of bounds of values, each with a random pair of neighboring tables.

    Args:
        measure: "epsilon" or "rho".
        plans, pairs: their product is the number of choices.
    """
    found = Finding()
    for each in losses(Measure(measure), plans * pairs):
        found.add(each, leaked=False)
    return found
