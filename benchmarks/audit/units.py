"""Private keys and series whose neighbors differ in one privacy unit of many rows.

**Private keys.** Rows pass through bounding and the question's own map, and the release draws as it
does; what is recorded is of how many units each key was decided, and by which budget. Each decision
is a coin of its own, whose probability is computed here from the recursion of the paper: the coins
of both tables are composed outcome by outcome. Source: Desfontaines, Voss, Gipson, Mandayam 2022,
definition 6.

**Series.** The unit has rows in several periods, in one leaf or in many, in more periods than it is
counted in or in fewer, and other units come and go around it. Every run is made from its rows and
from what the run before left under seal; every draw of noise records to which exact counts it was
added. What the draws of all runs lose together is compared with the claim of the series.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from benchmarks.audit.exact import Finding, Loss
from benchmarks.audit.published import audit_sparse, audit_thresholds, both_ways
from benchmarks.audit.recording import (
    SECRET,
    Draw,
    KnownCounts,
    Place,
    Recorded,
    plan_of,
    recorded,
    stated_plan,
)
from benchmarks.audit.trees import COLUMN, UNITS, Palette, Palettes, Row, batches, neighboring_units
from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.plan import Holding
from dptrees.dpcore.boxes.planner import PartitionChoices
from dptrees.dpcore.boxes.question import HypercubeWorkload
from dptrees.dpcore.choices import key_selection as selection_question
from dptrees.dpcore.choices.key_selection import (
    KeyColumns,
    SelectionPlan,
    SelectionQuestion,
    counted_once,
)
from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.numbers import DistinctDomain, DistinctWorkload, MeanWorkload
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.partition_selection import SelectionLaw
from dptrees.dpcore.privacy.unit import Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.questions.messages import STATE
from dptrees.dpcore.questions.messages import UNITS as UNIT_FILES
from dptrees.dpcore.questions.planning import Setting, Workload
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import RunBefore, release_rows
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.series.runs import Series
from dptrees.dpcore.series.workload import SeriesWorkload

audit_sparse_units = functools.partial(audit_sparse, units=UNITS)
# A unit is counted once in a search.
audit_threshold_units = functools.partial(
    audit_thresholds, units=[unit for unit in UNITS if unit.rows == 1]
)
STATED_OF_KEYS = (
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
    return stated_plan(question, question.plan.epsilon, question.plan.delta)


def selection_case(rng: Random, unit: PrivacyUnit) -> tuple[SelectionQuestion, Palettes]:
    """A random selection for a unit, with keys of strings, of numbers or of both."""
    epsilon, delta = rng.choice(STATED_OF_KEYS)
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
    return max(each.delta(float(epsilon)) for each in both_ways(laws))


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


PeriodRow = tuple[str, str, Any]  # its unit, its key and its value
Days = list[list[PeriodRow]]  # the rows of each period
KEYS = ("north", "south", "east")
AMOUNTS = (Fraction(1, 3), Fraction(1), Fraction(7, 2))
CELLS, MOST_PERIODS = 4, 5


def random_workload(rng: Random, keys: KeyList | None) -> Workload[Any]:
    """A tree whose periods add up, a box of all periods so far, or one of each period alone."""
    domain = make_domain({"column": "value", "type": "integer", "lower": 0, "upper": CELLS})
    kind = rng.randrange(7)
    if kind == 0:
        return MeanWorkload(name="t", domain=domain, keys=keys)
    if kind == 1:
        values = DistinctDomain(column="value")
        return DistinctWorkload(name="t", domain=values, keys=keys, max_values=rng.choice([1, 2]))
    if kind in (2, 3) and keys is None:
        return HypercubeWorkload(
            name="t",
            domain=HypercubeDomain(axes=(domain,), depths=(2,)),
            choices=_random_choices(rng),
        )
    return OrderedWorkload(name="t", domain=domain, keys=keys, quantiles=())


def _random_choices(rng: Random) -> PartitionChoices:
    """Levels of a box, which of its nodes are split, and how exact counts are held."""
    own: dict[str, Any] = {"holding": rng.choice([Holding.DENSE, Holding.SPARSE])}
    if rng.random() < 0.5:
        own = {"holding": Holding.SKETCH, "most": 1, "width": 2, "hash_rows": rng.choice([1, 3])}
    return PartitionChoices(
        depth=2,
        bits_apart=1,
        split_errors=rng.choice([0.0, 0.5, 3.0]),
        root=rng.random() < 0.5,
        **own,
    )


def series_plans(
    workload: Workload[Any], unit: PrivacyUnit, budget: Budget, series: Series
) -> list[ReleasePlan]:
    """The plan of every run of a series."""
    plans = []
    for period in range(1, series.periods + 1):
        run = replace(series, period=period)
        question = SeriesWorkload.from_workload(workload, run).planned(
            Setting(unit=unit, budget=budget)
        )
        plans.append(plan_of(question, budget))
    return plans


def random_plans(rng: Random, measure: str) -> list[ReleasePlan]:
    """Return the plans of a random series."""
    periods = rng.randint(2, MOST_PERIODS)
    keys = KeyList(column="place", keys=KEYS) if rng.random() < 0.4 else None
    bounds: dict[str, Any] = {"rows": rng.choice([1, 2, 3])}
    if keys is not None and rng.random() < 0.5:
        bounds = {"rows": 4, "keys": 2, "rows_per_key": 2}
    unit = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("person",), **bounds)
    series = Series(
        periods=periods,
        period=1,
        fanout=rng.choice([None, 2, 2, 3]) if periods > 2 else None,
        max_periods=rng.randint(1, periods),
    )
    budget = Budget(measure=Measure(measure), amount=rng.choice(AMOUNTS))
    return series_plans(random_workload(rng, keys), unit, budget, series)


def unit_days(rng: Random, unit: str, periods: int) -> Days:
    """Rows of a unit in some of the periods, all alike or of a few kinds."""
    kinds = [(rng.choice(KEYS), rng.randrange(CELLS)) for _ in range(rng.choice([1, 1, 3]))]
    present = rng.choice([0.4, 0.8, 1.0])
    return [
        [(unit, *rng.choice(kinds)) for _ in range(rng.randint(1, 6))]
        if rng.random() < present
        else []
        for _ in range(periods)
    ]


def neighboring_days(rng: Random, periods: int) -> tuple[Days, Days]:
    """Two data sets of all periods; the second has one unit more."""
    others = [unit_days(rng, f"u{number}", periods) for number in range(rng.choice([0, 1, 6]))]
    more = unit_days(rng, "x", periods)
    tables: list[Days] = []
    for units in (others, [*others, more]):
        days = [[row for unit in units for row in unit[period]] for period in range(periods)]
        for day in days:
            rng.shuffle(day)
        tables.append(days)
    return tables[0], tables[1]


def released(
    plans: Sequence[ReleasePlan],
    days: Days,
    given: Sequence[Recorded] | None = None,
    values: str = "int64",
) -> list[Recorded]:
    """All runs of a series, with a record of their draws.

    Args:
        plans: of the runs.
        days: the rows of each.
        given: a series whose noisy counts are used in place of its own.
        values: type of the values.
    """
    runs: list[Recorded] = []
    known: KnownCounts = {}
    for number, (plan, rows) in enumerate(zip(plans, days, strict=True)):
        columns = {
            "person": pa.array([unit for unit, _, _ in rows], pa.string()),
            "place": pa.array([key for _, key, _ in rows], pa.string()),
            "value": pa.array([value for _, _, value in rows], pa.type_for_alias(values)),
        }
        batches = pa.table(columns).to_batches(max_chunksize=3)
        nonce = bytes([number + 1])
        before = [
            RunBefore(run.release, bytes([earlier]))
            for earlier, run in enumerate(runs, start=1)
            if run.release is not None
        ]

        def wanted(place: Place, draw: Draw, number: int = number) -> Any:
            return None if given is None else given[number].draws[place].noisy

        runs.append(
            recorded(
                lambda key, plan=plan, nonce=nonce, before=before, batches=batches: release_rows(  # type: ignore[misc]
                    plan, batches, key, nonce=nonce, before=before
                ),
                wanted,
                known,
            )
        )
    return runs


def series_loss(
    plans: Sequence[ReleasePlan], one: Days, two: Days, values: str = "int64"
) -> tuple[Fraction, bool]:
    """The loss of a pair of neighbors in parts of the claim, and whether the second series showed
    anything exact once it was given the noisy counts of the first."""
    first = released(plans, one, None, values)
    second = released(plans, two, first, values)
    loss, leaked = Loss(), False
    for run, other in zip(first, second, strict=True):
        assert run.draws.keys() == other.draws.keys()
        for place, draw in run.draws.items():
            twin = other.draws[place]
            assert draw.law == twin.law and draw.exact is not None and twin.exact is not None
            loss.add(draw.law, (draw.exact - twin.exact).tolist())
        leaked |= _shown(run) != _shown(other)
    budget = plans[0].budget
    spent = loss.epsilon if budget.measure is Measure.EPSILON else loss.rho
    return spent / budget.amount, leaked


def _shown(run: Recorded) -> dict[Any, str]:
    """All that a run publishes: not what it leaves to the next one, which is sealed."""
    release = run.release
    assert release is not None
    (question,) = release.plan.questions
    return {
        part: repr(release.part(part.kind, part.tree, part.key, part.index).to_pydict())
        for part in question.parts()
        if part.kind not in (STATE, UNIT_FILES)
    }


def audit_series(measure: str, *, plans: int, pairs: int, seed: int = 0) -> Finding:
    """Random series, each with random pairs of neighboring data sets; as `exact.audit`.

    Args:
        measure: "epsilon" or "rho".
        plans, pairs, seed: as there.
    """
    rng, found = Random(f"series {measure} {seed}"), Finding()
    for _ in range(plans):
        runs = random_plans(rng, measure)
        for _ in range(pairs):
            found.add(*series_loss(runs, *neighboring_days(rng, len(runs))))
    return found
