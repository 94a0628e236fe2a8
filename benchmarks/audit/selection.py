"""The exact law of the released keys, between tables that differ in one unit of many rows.

Rows pass through bounding and the question's own map, and the release draws as it does; what is
recorded is of how many units each key was decided, and by which budget. Each decision is a coin of
its own, whose probability is computed here from the recursion of the paper: the coins of both
tables are composed outcome by outcome.

Source: Desfontaines, Voss, Gipson, Mandayam 2022, definition 6.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from benchmarks.audit.exact import Finding
from benchmarks.audit.outcomes import PrivacyLoss
from benchmarks.audit.recording import SECRET
from benchmarks.audit.rows import Palette, Palettes, Row, batches
from benchmarks.audit.units import COLUMN, UNITS, neighboring_units
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.selection import SelectionLaw
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.release.in_memory import release_rows
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.selection import question as selection_question
from dptrees.dpcore.selection.key_columns import KeyColumns
from dptrees.dpcore.selection.plan import SelectionPlan, counted_once
from dptrees.dpcore.selection.question import SelectionQuestion

STATED = (
    (Fraction(1), Fraction(1, 10)),
    (Fraction(2), Fraction(1, 10**3)),
    (Fraction(1, 2), Fraction(1, 10**5)),
)
# So many that some keys are likelier released than not.
PEOPLE = (*(f"p{number}" for number in range(12)), None)
# What decides about a key: of how many units, by which law.
Decision = tuple[int, SelectionLaw]


@functools.lru_cache(maxsize=64)
def probabilities(epsilon: Fraction, delta: Fraction, most: int) -> tuple[float, ...]:
    """Return the probabilities that a key of 0, 1, ... units is released, by the recursion.

    >>> probabilities(Fraction(1), Fraction(1, 10), 2)[1]
    0.1
    """
    found, grow = [0.0], math.exp(float(epsilon))
    for _ in range(most):
        last = found[-1]
        up, down = grow * last + float(delta), 1 - (1 - last - float(delta)) / grow
        found.append(min(up, down, 1.0))
    return tuple(found)


def released_with(decision: Decision) -> float:
    """The probability that a key is released."""
    units, law = decision
    rank = max(0, units - law.threshold + 1)
    return probabilities(law.epsilon, law.delta, 64)[min(rank, 64)]


def selection_plan(question: SelectionQuestion) -> ReleasePlan:
    """The release of a selection of keys."""
    epsilon, delta = question.plan.epsilon, question.plan.delta
    return ReleasePlan(
        name="r",
        unit=question.unit,
        budget=Budget(measure=Measure.EPSILON, amount=epsilon),
        questions=(question,),
        stated=(epsilon, delta),
    )


def selection_case(rng: Random, unit: PrivacyUnit) -> tuple[SelectionQuestion, Palettes]:
    """A random selection for a unit, with keys of strings, of numbers or of both."""
    epsilon, delta = rng.choice(STATED)
    plan = SelectionPlan(
        unit=counted_once(unit), epsilon=epsilon, delta=delta, threshold=rng.choice([1, 1, 3])
    )
    types = rng.choice([("text",), ("integer",), ("text", "integer")])
    columns = tuple(f"{type}_by" for type in types)
    values = {
        "text_by": Palette(type=pa.string(), values=("x", "y", "z", "", None)),
        "integer_by": Palette(type=pa.int64(), values=(-1, 0, 7, 2**62, None)),
    }
    question = SelectionQuestion(
        name="keys", domain=KeyColumns(columns=columns, types=types), plan=plan, shards=2
    )
    people = Palette(type=pa.string(), values=PEOPLE)
    return question, {**{name: values[name] for name in columns}, COLUMN: people}


def decisions(
    rng: Random, question: SelectionQuestion, palettes: Palettes, rows: Sequence[Row]
) -> tuple[dict[Any, Decision], set[Any]]:
    """What each key of a table was decided by, and which were released."""
    found: dict[Any, Decision] = {}
    shown: set[Any] = set()
    own_draw, own_released = SelectionQuestion.draw, SelectionLaw.released
    waiting: list[Any] = []

    def draw(self: SelectionQuestion, place: Any, counts: bytes, noise: Any) -> Any:
        waiting[:] = [NodeCounts.from_bytes(counts).keys.to_pylist()]
        drawn = own_draw(self, place, counts, noise)
        shown.update(NodeCounts.from_bytes(drawn.sent).keys.to_pylist())
        return drawn

    def released(self: SelectionLaw, units: Any, stream: Any) -> Any:
        found.update({key: (n, self) for key, n in zip(waiting[0], units.tolist(), strict=True)})
        return own_released(self, units, stream)

    parts = [pa.RecordBatch.from_pydict(dict(each)) for each in batches(rng, palettes, rows)]
    with (
        patch.object(selection_question.SelectionQuestion, "draw", draw),
        patch.object(SelectionLaw, "released", released),
    ):
        release_rows(selection_plan(question), parts, ReleaseKey(SECRET))
    assert shown <= found.keys(), "a key was released that no coin was thrown for"
    return found, shown


def selection_loss(one: dict[Any, Decision], two: dict[Any, Decision], epsilon: Fraction) -> float:
    """The delta at an epsilon of all that is released, the larger of both directions."""
    laws = []
    for key in sorted(one.keys() | two.keys(), key=str):
        pair = [released_with(each[key]) if key in each else 0.0 for each in (one, two)]
        if pair[0] != pair[1]:
            laws.append([{True: p, False: 1 - p} for p in pair])
    directions = (laws, [(b, a) for a, b in laws])
    return max(
        PrivacyLoss.composed(PrivacyLoss.between(a, b) for a, b in pairs).delta(float(epsilon))
        for pairs in directions
    )


def audit_selection(
    *, plans: int, pairs: int, seed: int = 0, units: Sequence[PrivacyUnit] = UNITS
) -> Finding:
    """Random selections of keys, each with random pairs of tables that differ in a unit.

    The ratio is of deltas: that at the stated epsilon, in parts of the stated one.
    """
    rng, found = Random(f"selection {seed}"), Finding()
    order = rng.sample(units, len(units))
    for number in range(plans):
        unit = order[number % len(order)]
        question, palettes = selection_case(rng, unit)
        for _ in range(pairs):
            tables = neighboring_units(rng, palettes, unit, rng.choice([0, 10, 30, 60]))
            (one, _), (two, _) = (decisions(rng, question, palettes, rows) for rows in tables)
            delta = selection_loss(one, two, question.plan.epsilon)
            found.add(delta / float(question.plan.delta), leaked=False)
    return found
