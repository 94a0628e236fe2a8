"""Boxes of all periods so far: each node of time has one noise, whichever run looks at it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.held_counts import HeldCodes, HeldTables
from dptrees.dpcore.boxes.plan import Holding
from dptrees.dpcore.boxes.planner import PartitionChoices
from dptrees.dpcore.boxes.question import HypercubeQuestion, HypercubeWorkload
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.questions.messages import Place
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.release.plan import ReleasePlan, plan_from_spec
from dptrees.dpcore.release.released import ReleaseReader, RunBefore, release_rows
from dptrees.dpcore.series.runs import Series
from dptrees.dpcore.series.temporal import Span
from dptrees.dpcore.series.totals_to_date import AccumulatedPeriods, ClosedNode, PlaceCounts
from dptrees.dpcore.series.workload import SeriesWorkload

Patch = pytest.MonkeyPatch
KEY = ReleaseKey(bytes(range(32)))
PERIODS, CELLS = 5, 64
SKETCH = {"holding": Holding.SKETCH, "width": 16, "hash_rows": 1}
HOLDINGS: dict[str, dict[str, Any]] = {
    "dense": {"holding": Holding.DENSE},
    "sparse": {"holding": Holding.SPARSE},
    "sketch": SKETCH,
    "sketch of three rows": SKETCH | {"hash_rows": 3},
}
# A change that is meant to draw other noise changes these.
COMMITTED = {
    "dense": "e6c0a64331469f70",
    "sparse": "03a28f61b12e9df5",
    "sketch": "815db5e922ef6432",
    "sketch of three rows": "e1c03d936863694e",
}
by_holding = pytest.mark.parametrize("holding", HOLDINGS)


def workload(holding: str) -> HypercubeWorkload:
    domain = make_domain(
        {"column": "x", "type": "integer", "lower": 0, "upper": CELLS, "outside": "clamp"}
    )
    box = HypercubeDomain(axes=(domain,), depths=(6,))
    choices = PartitionChoices(depth=6, bits_apart=2, split_errors=1.0, **HOLDINGS[holding])
    return HypercubeWorkload(name="box", domain=box, choices=choices)


def plans(
    holding: str,
    *,
    measure: Measure = Measure.EPSILON,
    fanout: int | None = 2,
    max_periods: int | None = None,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
) -> list[ReleasePlan]:
    """The plan of every run."""
    budget, made = Budget(measure=measure, amount=Fraction(3)), []
    for period in range(1, PERIODS + 1):
        series = Series(periods=PERIODS, period=period, fanout=fanout, max_periods=max_periods)
        question = SeriesWorkload.from_workload(workload(holding), series).planned(
            Setting(unit=unit, budget=budget)
        )
        made.append(ReleasePlan(name="r", unit=unit, budget=budget, questions=(question,)))
    return made


def rows(period: int) -> pa.Table:
    """The rows of a period: about another place in each, and none at all in the second."""
    random = np.random.default_rng(period)
    number = 0 if period == 2 else 200
    return pa.table({"x": random.normal(10 * period, 4, number).astype(np.int64)})


def runs(made: list[ReleasePlan]) -> Iterator[ReleaseReader]:
    """All runs, one after the other."""
    before: list[RunBefore] = []
    for period, plan in enumerate(made, 1):
        nonce = bytes([period])
        run = release_rows(plan, rows(period).to_batches(), KEY, nonce=nonce, before=before)
        before.append(RunBefore(run, nonce))
        yield run


@dataclass
class Looks:
    """All that was measured: of each level of the box, every node, by what seeds the noise.

    Attributes:
        values: of each temporal node, in each run that looked at it.
        together: of all periods to date, by run.
    """

    values: dict[bytes, list[list[Floats]]] = field(default_factory=dict)
    together: list[list[Floats]] = field(default_factory=list)


def every_node(measured: Any, depths: tuple[int, ...]) -> list[Floats]:
    levels = list(enumerate(depths))[1:]
    return [measured.at(n, depth, np.arange(1 << depth, dtype=np.uint64)) for n, depth in levels]


@pytest.fixture
def looks(monkeypatch: Patch) -> Looks:
    found = Looks()
    for held in (HeldCodes, HeldTables):
        own, added = held.measurement, held.together

        def measurement(self: Any, sent: Any, noise: NoiseSource, own: Any = own) -> Any:
            measured = own(self, sent, noise)
            nodes = every_node(measured, self.plan.depths)
            found.values.setdefault(noise.spec_digest, []).append(nodes)
            return measured

        def together(self: Any, measurements: Any, added: Any = added) -> Any:
            measured = added(self, measurements)
            parts = [every_node(each, self.plan.depths) for each in measurements]
            found.together.append([every_node(measured, self.plan.depths), *parts])
            return measured

        monkeypatch.setattr(held, "measurement", measurement)
        monkeypatch.setattr(held, "together", together)
    return found


# --- one noise for each node of time ---


@by_holding
def test_later_runs_look_at_the_noise_of_the_run_that_drew_it(holding: str, looks: Looks) -> None:
    for _ in runs(plans(holding)):
        pass
    # Nodes of time: five periods, two pairs, four periods.
    assert len(looks.values) == 8
    again = [seen for seen in looks.values.values() if len(seen) > 1]
    assert len(again) >= 3
    for seen in again:
        for level in range(3):
            values = [each[level].estimate for each in seen]
            assert all((values[0] == other).all() for other in values[1:])


def test_other_noise_in_later_runs_would_be_seen(monkeypatch: Patch, looks: Looks) -> None:
    def source(self: ClosedNode, noise: NoiseSource) -> NoiseSource:
        return replace(noise, spec_digest=self.seeds[0], own_digest=b"")

    monkeypatch.setattr(ClosedNode, "source", source)
    for _ in runs(plans("sparse")):
        pass
    again = [seen for seen in looks.values.values() if len(seen) > 1]
    assert any((one[0].estimate != other[0].estimate).any() for one, other, *_ in again)


def test_nodes_of_time_with_the_same_rows_have_other_noise(looks: Looks) -> None:
    """The second period has no rows: periods 1 and 2 together have the counts of period 1, and it
    is one draw in which the second period and the pair are measured."""
    made = runs(plans("sparse"))
    next(made), next(made)
    one, two, pair = (seen[0] for seen in looks.values.values())
    noise = [np.concatenate([level.estimate for level in each]) for each in (one, two, pair)]
    assert (noise[0] != noise[2]).mean() > 0.5 and (noise[1] != noise[2] - noise[0]).any()


@by_holding
@pytest.mark.parametrize("fanout", [None, 2, 3])
def test_all_periods_are_the_sum_of_the_largest_nodes_of_time(
    holding: str, fanout: int | None, looks: Looks
) -> None:
    made = plans(holding, fanout=fanout)
    question: Any = made[0].questions[0]
    for _ in runs(made):
        pass
    roots = [len(question.temporal.roots(period)) for period in range(1, PERIODS + 1)]
    assert [len(parts) - 1 for parts in looks.together] == [each for each in roots if each > 1]
    for whole, *parts in looks.together:
        for level, node in enumerate(whole):
            values = [part[level].estimate for part in parts]
            variances = [part[level].variance for part in parts]
            if holding != "sketch of three rows" or level == 0:  # medians do not add up
                bias = 0.0 if holding in ("dense", "sparse") or level == 0 else 10.0
                assert np.allclose(node.estimate, np.sum(values, axis=0), atol=1e-9 + bias)
            if holding in ("dense", "sparse"):
                assert np.allclose(node.variance, np.sum(variances, axis=0), rtol=1e-9)


def test_the_tree_to_date_has_the_errors_of_the_sum() -> None:
    for measure in Measure:
        question: Any = plans("sparse", measure=measure)[2].questions[0]
        whole = question.released_tree(question.to_date)
        parts = [question.levels[span.level] for span in question.temporal.roots(3)]
        assert len(parts) == 2, measure
        for level, law in enumerate(whole.plan.laws[1:], 1):
            wanted = math.fsum(part.plan.laws[level].variance for part in parts)
            # Under rho sigma^2 adds up, which is the variance but for 10^-6.
            assert law.variance == pytest.approx(wanted, rel=1e-6), measure


# --- what it spends, and how it is described ---


def test_all_runs_spend_the_budget_together() -> None:
    for measure, max_periods in product(Measure, (None, 3, PERIODS)):
        unit = ADD_REMOVE_ROW
        if max_periods is not None:
            unit = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("who",), rows=2)
        for plan in plans("dense", measure=measure, max_periods=max_periods, unit=unit):
            (question,) = plan.questions
            spent = question.spending
            assert (spent.epsilon if measure is Measure.EPSILON else spent.rho) == 3
            assert question.budget == plan.budget, (measure, max_periods)


def test_a_specification_gives_the_plan_again() -> None:
    for holding in HOLDINGS:
        for plan in plans(holding):
            assert plan_from_spec(plan.spec()) == plan, holding
            (question,) = plan.questions
            assert isinstance(question, AccumulatedPeriods), holding


def test_a_tree_whose_noise_depends_on_what_was_split_is_refused() -> None:
    own = replace(workload("sparse"), mechanism="privtree", choices=PartitionChoices())
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    tree: Any = own.planned(Setting(unit=ADD_REMOVE_ROW, budget=budget))
    assert isinstance(tree, HypercubeQuestion) and not tree.accumulates
    (question, *_) = plans("sparse")[0].questions
    assert isinstance(question, AccumulatedPeriods)
    with pytest.raises(ValueError, match="cannot be released of several periods"):
        AccumulatedPeriods.from_trees(question.temporal, 1, [tree] * 3, "box")


def test_what_is_carried_on_is_a_part_of_the_digest() -> None:
    counts = workload("sparse")
    question: Any = plans("sparse")[0].questions[0]
    own = question.levels[0].merge(Place(0, 0), [])
    digests = {
        PlaceCounts(own=own, carried=carried).digest(KEY, "r", "box", Place(0, 0))
        for carried in (b"", b"one", b"two")
    }
    assert len(digests) == 3 and counts.may_accumulate


def test_the_periods_that_are_released_together_are_found() -> None:
    question: Any = plans("sparse")[3].questions[0]
    assert [(each.first, each.last) for each in question.released_spans] == [(4, 4), (3, 4), (1, 4)]
    assert question.find_released(3) == Span(1, 3, 4) and question.find_released(2) is None
    last: Any = plans("sparse")[4].questions[0]
    assert [(each.first, each.last) for each in last.released_spans] == [(5, 5), (1, 5)]


@by_holding
def test_the_counts_of_a_series_are_the_committed_ones(holding: str) -> None:
    """On every processor: the whole counts of all runs, of every part and of all spans."""
    digest = hashlib.sha256()
    for run in runs(plans(holding)):
        for depth in (0, 2, 4, 6):
            table = run.part("nodes", "box", 0, depth)
            for name in ("first", "last", "node", "count"):
                digest.update(table[name].to_numpy().astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == COMMITTED[holding]
