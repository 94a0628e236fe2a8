"""The exact privacy loss of a whole series, between data sets that differ in one unit of it.

The unit has rows in several periods, in one leaf or in many, in more periods than it is counted in
or in fewer, and other units come and go around it. Every run is made from its rows and from what
the run before left under seal; every draw of noise records to which exact counts it was added. What
the draws of all runs lose together is compared with the claim of the series.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

import pyarrow as pa

from benchmarks.audit.exact import Finding, Loss
from benchmarks.audit.recording import Draw, KnownCounts, Place, Recorded, recorded
from dptrees.dpcore.distinct.domain import DistinctDomain
from dptrees.dpcore.distinct.workload import DistinctWorkload
from dptrees.dpcore.hypercube.domain import HypercubeDomain
from dptrees.dpcore.hypercube.workload import HypercubeWorkload
from dptrees.dpcore.mean.workload import MeanWorkload
from dptrees.dpcore.ordered.make import make_domain
from dptrees.dpcore.ordered.workload import OrderedWorkload
from dptrees.dpcore.partitions.choices import PartitionChoices
from dptrees.dpcore.partitions.plan import Holding
from dptrees.dpcore.privacy.budget import Budget, Measure, Neighbors
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.place import STATE, UNITS
from dptrees.dpcore.questions.workload import ReleaseTerms, Share, Workload
from dptrees.dpcore.release.in_memory import RunBefore, release_rows
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.series.runs import Series
from dptrees.dpcore.series.workload import SeriesWorkload

Row = tuple[str, str, int]  # its unit, its key and its value
Days = list[list[Row]]  # the rows of each period
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
        run = Series(
            periods=series.periods,
            period=period,
            fanout=series.fanout,
            max_periods=series.max_periods,
        )
        question = SeriesWorkload.from_workload(workload, run).planned(
            Share(budget=budget), ReleaseTerms(unit=unit)
        )
        plans.append(ReleasePlan(name="r", unit=unit, budget=budget, questions=(question,)))
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
    plans: Sequence[ReleasePlan], days: Days, given: Sequence[Recorded] | None = None
) -> list[Recorded]:
    """All runs of a series, with a record of their draws.

    Args:
        plans: of the runs.
        days: the rows of each.
        given: a series whose noisy counts are used in place of its own.
    """
    runs: list[Recorded] = []
    known: KnownCounts = {}
    for number, (plan, rows) in enumerate(zip(plans, days, strict=True)):
        columns = {
            "person": pa.array([unit for unit, _, _ in rows], pa.string()),
            "place": pa.array([key for _, key, _ in rows], pa.string()),
            "value": pa.array([value for _, _, value in rows], pa.int64()),
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


def series_loss(plans: Sequence[ReleasePlan], one: Days, two: Days) -> tuple[Fraction, bool]:
    """The loss of a pair of neighbors in parts of the claim, and whether the second series showed
    anything exact once it was given the noisy counts of the first."""
    first = released(plans, one)
    second = released(plans, two, first)
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
        if part.kind not in (STATE, UNITS)
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
