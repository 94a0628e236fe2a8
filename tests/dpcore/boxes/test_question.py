"""From rows to a released partition: without noise the data's own distribution to one cell, in all
holdings and by all mechanisms; the same bits however rows are cut; how far a row moves what is
measured; what is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.boxes.plan import Estimation, Holding
from dptrees.dpcore.boxes.question import HypercubeQuestion, HypercubeWorkload
from dptrees.dpcore.boxes.released import ReleasedHypercube
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.privacy.sensitivity import level_sensitivity, sketch_sensitivity
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Budget,
    Measure,
    PrivacyUnit,
)
from dptrees.dpcore.questions.messages import Place
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.release.plan import ReleasePlan, plan_from_spec
from dptrees.dpcore.release.released import release_counts, release_rows
from dptrees.dpcore.rows.columns import unpack
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.sketches.sketch import SketchKind
from tests.dpcore.boxes.boxes import (
    HOLDINGS,
    KEY,
    MECHANISMS,
    box_domain,
    draw_rows,
    plan_question,
    released,
)
from tests.dpcore.refusals import check_refused_calls

ADD, SUB = ADD_REMOVE_ROW, SUBSTITUTE_ROW
BOX = box_domain(5, 9)
ROWS = draw_rows(BOX, 3000)


def count_cells(tree: ReleasedHypercube) -> Counter[tuple[int, ...]]:
    """The rows of each cell, each part being one cell."""
    starts, stops, counts, _ = tree.partition.parts
    assert all(((stop - start) == 1).all() for start, stop in zip(starts, stops, strict=True))
    places = zip(*(start.tolist() for start in starts), strict=True)
    return Counter(dict(zip(places, counts.tolist(), strict=True)))


def exact(rows: pa.RecordBatch) -> Counter[tuple[int, ...]]:
    return Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))


@pytest.mark.parametrize("holding", HOLDINGS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_without_noise_it_is_the_data_to_one_cell(mechanism: str, holding: Holding) -> None:
    choices: dict[str, Any] = {} if mechanism == "pmm" else {"most": 2**BOX.bits}
    if mechanism == "privhp":
        # A sketch is never sure that nothing collided, so its counts would be shrunk.
        choices["estimation"] = Estimation.LEAST_SQUARES
    question = plan_question(BOX, mechanism, holding=holding, split_errors=0.0, **choices)
    tree = released(question, ROWS)
    assert +count_cells(tree) == exact(ROWS)
    assert tree.total == ROWS.num_rows
    assert sum(len(part) for part in count_cells(tree)) == 2 * 5 * 9


def test_the_comparison_with_the_data_sees_noise() -> None:
    question = plan_question(BOX, most=2**BOX.bits, split_errors=0.0, amount=Fraction(1))
    assert +count_cells(released(question, ROWS)) != exact(ROWS)


@pytest.mark.parametrize("depths", [(3, 4), (1, 2), (2, 1)])
def test_coarser_parts_are_sums_of_cells(depths: tuple[int, int]) -> None:
    domain = box_domain(5, 9, depths=depths)
    tree = released(plan_question(domain, most=2**domain.bits, split_errors=0.0), ROWS)
    starts, stops, counts, _ = tree.partition.parts
    cells = exact(ROWS)
    for place, count in enumerate(counts.tolist()):
        sides = [range(int(a[place]), int(b[place])) for a, b in zip(starts, stops, strict=True)]
        assert count == sum(cells[x, y] for x in sides[0] for y in sides[1])
    assert counts.sum() == ROWS.num_rows


# All pairs of a mechanism, a holding, a measure and a unit are there.
COMBINED = [
    (mechanism, holding, tuple(Measure)[(i + j) % 3 % 2], ROW_UNITS[(i + 2 * j) % 3 % 2])
    for i, mechanism in enumerate(MECHANISMS)
    for j, holding in enumerate(HOLDINGS)
]


@pytest.mark.parametrize("mechanism, holding, measure, unit", COMBINED)
def test_every_mechanism_runs_with_noise(
    mechanism: str, holding: Holding, measure: Measure, unit: PrivacyUnit
) -> None:
    """And what is released tiles the box, adds up, and is nonnegative."""
    domain = box_domain(13, 6, 3)
    rows = draw_rows(domain, 2000)
    question = plan_question(
        domain, mechanism, holding=holding, measure=measure, unit=unit, amount=Fraction(2)
    )
    tree = released(question, rows)
    starts, stops, counts, _ = tree.partition.parts
    covered = np.zeros((13, 6, 3), np.int64)
    for place in range(len(counts)):
        covered[
            tuple(slice(int(a[place]), int(b[place])) for a, b in zip(starts, stops, strict=True))
        ] += 1
    assert (covered == 1).all()
    assert counts.min() >= 0 and counts.sum() == tree.total
    assert abs(tree.total - 2000) < 300
    for place, above, level in tree.partition.tree.pairs():
        own = tree.partition.counts
        sums = own[place].reshape(-1, level.fanout(above)).sum(axis=1)
        assert np.array_equal(sums, own[place - 1][level.split(above)])


def make_choices() -> KeyedChoices:
    return KeyedChoices(key=KEY, release="boxes")


def exact_places(
    question: HypercubeQuestion, batches: list[pa.RecordBatch], *, dense: bool = True
) -> dict[Place, bytes]:
    """Merged exact counts of some batches, each counted by a worker of its own."""
    received: dict[Place, list[bytes]] = {place: [] for place in question.places}
    for batch in batches:
        counter = question.counter(dense=dense, choices=make_choices())
        columns = {name: batch.column(name) for name in question.columns}
        counter.add(question.increments(columns), batch.num_rows)
        for counted in counter.take():
            received[counted.place].append(counted.data)
    return {
        place: question.merge(place, parts[::-1]).to_bytes() for place, parts in received.items()
    }


@pytest.mark.parametrize("holding", HOLDINGS)
def test_the_same_bits_however_rows_are_cut_and_counted(holding: Holding) -> None:
    question = plan_question(BOX, holding=holding, amount=Fraction(1), width=None, memory=2**20)
    order = np.random.default_rng(3).permutation(ROWS.num_rows)
    shuffled = ROWS.take(pa.array(order))
    pieces = [shuffled.slice(start, 700) for start in range(0, 3000, 700)]
    whole = exact_places(question, [ROWS])
    assert exact_places(question, pieces) == whole
    assert exact_places(question, pieces[::-1], dense=False) == whole
    assert exact_places(question, [ROWS.slice(0, 0), *pieces]) == whole
    # As counts, as a caller with counts gives them.
    plan = make_plan(question)
    columns = {name: ROWS.column(name) for name in question.columns}
    by_rows = release_rows(plan, pieces, KEY).tree("box")
    by_counts = release_counts(plan, {"box": BOX.leaf_counts(columns)}, KEY).tree("box")
    assert tables(by_rows) == tables(by_counts)


def tables(tree: Any) -> list[pa.Table]:
    return [tree._rows(depth) for depth in tree.question.plan.depths]


def make_plan(question: HypercubeQuestion) -> ReleasePlan:
    return ReleasePlan(
        name="boxes", unit=question.unit, budget=question.budget, questions=(question,)
    )


def source(nonce: bytes = b"") -> NoiseSource:
    return NoiseSource(key=KEY, release="boxes", spec_digest=b"s", global_digest=b"g", nonce=nonce)


@pytest.mark.parametrize("holding", HOLDINGS)
def test_a_retry_gives_the_same_bits_and_another_nonce_others(holding: Holding) -> None:
    question = plan_question(BOX, holding=holding, amount=Fraction(1))
    counts = exact_places(question, [ROWS])

    def gathered(nonce: bytes, order: int) -> list[pa.Table]:
        noise = source(nonce)
        sent = {
            place: question.draw(place, data, noise).sent
            for place, data in list(counts.items())[::order]
        }
        return [part.table for part in question.gather(0, sent, noise).released]

    assert gathered(b"", 1) == gathered(b"", -1)
    assert gathered(b"", 1) != gathered(b"n", 1)


@pytest.mark.parametrize("holding", HOLDINGS)
def test_no_rows_at_all(holding: Holding) -> None:
    none = ROWS.slice(0, 0)
    for amount in (Fraction(1), Fraction(10**6)):
        question = plan_question(BOX, holding=holding, amount=amount)
        tree = released(question, none)
        assert tree.total >= 0 and np.isfinite(tree.partition.estimates[0]).all()
    assert tree.total == 0


@pytest.mark.parametrize("holding", HOLDINGS)
def test_places_and_parts_do_not_reveal_rows(holding: Holding) -> None:
    """The same partials, by place, of no rows, one, and many."""
    question = plan_question(BOX, holding=holding, amount=Fraction(1))
    seen = []
    for batch in (ROWS.slice(0, 0), ROWS.slice(0, 1), ROWS):
        counter = question.counter(dense=True, choices=make_choices())
        columns = {name: batch.column(name) for name in question.columns}
        counter.add(question.increments(columns), batch.num_rows)
        seen.append([counted.place for counted in counter.take()])
        tree = released(question, batch)
        assert len(tables(tree)) == len(question.plan.depths)
    assert seen[0] == seen[1] == seen[2] == question.places


def one_row(x: int, y: int) -> pa.RecordBatch:
    return pa.record_batch({"c0": pa.array([x]), "c1": pa.array([y])})


def count_differences(
    question: HypercubeQuestion, with_: Any, without: Any
) -> Iterator[np.ndarray]:
    """Yield the differences of the exact counts of each level, or of the cells of its sketch."""
    first, second = (exact_places(question, [each]) for each in (with_, without))
    if question.plan.holding is Holding.SKETCH:
        for place in question.places:
            yield unpack(first[place]) - unpack(second[place])
        return
    both = [question.held.measurement(counts, source()).counts for counts in (first, second)]
    for depth in question.plan.depths[1:]:
        nodes = np.arange(2**depth, dtype=np.uint64)
        yield both[0].at(depth, nodes) - both[1].at(depth, nodes)


@pytest.mark.parametrize("unit", ROW_UNITS)
@pytest.mark.parametrize("kind", [None, *SketchKind])
def test_a_row_moves_each_level_by_no_more_than_its_sensitivity(
    unit: PrivacyUnit, kind: SketchKind | None
) -> None:
    """Over all pairs of rows of a small box: the bound holds and is attained. Under add_remove the
    other data set lacks the row; under substitute it has another."""
    domain = box_domain(3, 4)
    choices: dict[str, Any] = {"holding": Holding.DENSE}
    if kind is not None:
        choices = {
            "holding": Holding.SKETCH, "sketch": kind, "hash_rows": 3, "width": 4, "most": 1,
            "shares": "lemma_5", "root": True,
        }  # fmt: skip
    question = plan_question(domain, unit=unit, amount=Fraction(1), bits_apart=1, **choices)
    cells = [(x, y) for x in range(3) for y in range(4)]
    l1, l2 = Counter[int](), Counter[int]()
    for cell in cells:
        others = cells if unit is SUB else [None]
        for other in others:
            without = ROWS.slice(0, 0) if other is None else one_row(*other)
            for level, difference in enumerate(
                count_differences(question, one_row(*cell), without)
            ):
                l1[level] = max(l1[level], int(np.abs(difference).sum()))
                l2[level] = max(l2[level], int((difference**2).sum()))
    allowed = level_sensitivity(unit, single_node=False)
    sketched = allowed if kind is None else sketch_sensitivity(
        unit, 3, signed=kind is SketchKind.COUNT_SKETCH
    )  # fmt: skip
    levels = sorted(l1)
    if kind is None:
        assert [(l1[level], l2[level]) for level in levels] == [allowed] * len(levels)
        return
    # Counters of the root alone here: one node, which no substitution moves.
    assert l1[0] <= 1
    for level in levels[1:]:
        assert l1[level] <= sketched[0] and l2[level] <= sketched[1]
    assert max(l1[level] for level in levels[1:]) == sketched[0]


def test_only_noisy_counts_shape_what_is_released() -> None:
    """A partition grown from the noisy counts of all nodes, without the exact ones, is the same
    as one grown where exact counts get their noise when they are looked at."""
    question = plan_question(BOX, amount=Fraction(1))
    counts = exact_places(question, [ROWS])
    noisy = question.held.measurement(counts, source())

    class Remembered:
        """The noisy counts of all nodes, and nothing else."""

        def __init__(self) -> None:
            depths = enumerate(question.plan.depths)
            self.levels = {
                level: noisy.at(level, depth, np.arange(2**depth, dtype=np.uint64))
                for level, depth in depths
            }

        def variance(self, level: int) -> float:
            return noisy.variance(level)

        def at(self, level: int, depth: int, nodes: np.ndarray) -> Any:
            own = self.levels[level]
            return type(own)(*(each[nodes.astype(np.int64)] for each in own))

    first = question.plan.estimated(BOX, noisy)
    second = question.plan.estimated(BOX, Remembered())
    for a, b in zip(first.counts, second.counts, strict=True):
        assert np.array_equal(a, b)


def test_the_specification_reads_back() -> None:
    for mechanism, holding in product(MECHANISMS, HOLDINGS):
        question = plan_question(BOX, mechanism, holding=holding, amount=Fraction(1))
        spec = json.loads(json.dumps(question.spec(), allow_nan=False))
        assert HypercubeQuestion.from_spec(spec) == question
        plan = make_plan(question)
        again = plan_from_spec(json.loads(json.dumps(plan.spec(), allow_nan=False)))
        assert again == plan and again.digest == plan.digest
        shown = replace(plan, questions=(replace(question, confidence=0.9),))
        assert shown.digest == plan.digest


def test_what_shapes_the_map_or_the_noise_changes_the_digest() -> None:
    one = Fraction(1)
    questions = [
        plan_question(BOX, amount=one),
        plan_question(box_domain(5, 9, depths=(3, 3)), amount=one),
        plan_question(box_domain(5, 10), amount=one),
        plan_question(box_domain(5, 9, outside="drop"), amount=one),
        plan_question(BOX, amount=one, most=3),
        plan_question(BOX, amount=one, depth=6),
        plan_question(BOX, amount=one, split_errors=2.0, bits_apart=2),
        plan_question(BOX, amount=one, root=True),
        plan_question(BOX, amount=one, root=True, estimation=Estimation.EVEN_SHARES),
        plan_question(BOX, amount=one, holding=Holding.SKETCH),
    ]
    digests = {make_plan(question).digest for question in questions}
    assert len(digests) == len(questions)


@pytest.mark.parametrize("holding", HOLDINGS)
def test_a_public_total_is_reported_exactly_and_children_sum_to_it(holding: Holding) -> None:
    kept = box_domain(5, 9, missing="first")
    for mechanism in MECHANISMS:
        question = plan_question(kept, mechanism, holding=holding, unit=SUB, amount=Fraction(1, 10))
        tree = released(question, ROWS)
        assert question.plan.public_total and question.plan.laws[0] is None
        assert tree.total == tree.sampler().total == ROWS.num_rows
        found = tree.node(0, 0)
        assert found.estimate == found.ci_low == found.ci_high == ROWS.num_rows
        assert question.spending.epsilon == Fraction(1, 10)


def test_the_total_is_public_only_where_no_row_is_dropped() -> None:
    one = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    kept, dropped = box_domain(5, 9, missing="first"), BOX
    for domain, setting, public in (
        (kept, Setting(unit=SUB, budget=one), True),
        (kept, Setting(unit=ADD, budget=one), False),
        (kept, Setting(unit=SUB, budget=one, drops_rows=True), False),
        (dropped, Setting(unit=SUB, budget=one), False),
    ):
        question = HypercubeWorkload(name="box", domain=domain).planned(setting)
        assert question.plan.public_total is public
        tree = released(question, ROWS)
        reported = tree._rows(0)
        assert (reported["std_error"].to_pylist() == [0.0]) is public
        if public:
            assert tree.total == ROWS.num_rows


def test_what_is_refused() -> None:
    question = plan_question(BOX, amount=Fraction(1))
    kept = plan_question(box_domain(5, 9, missing="first"), unit=SUB, amount=Fraction(1))
    assert kept.plan.public_total
    changes = [
        (question, {"keys": KeyList(column="k", keys=("a",))}, "keys: a hypercube has none"),
        (question, {"domain": box_domain(3, 2)}, "plan: it is 7 bits deep, the domain 3"),
        (question, {"confidence": 1.0}, "confidence: 1.0 is not above 0"),
        (kept, {"domain": BOX}, "the total is not public where rows may be dropped"),
    ]
    calls = [(partial(replace, of, **fields), words) for of, fields, words in changes]
    tiny = partial(plan_question, BOX, amount=Fraction(1, 2**60), split_errors=0.0)
    check_refused_calls([*calls, (tiny, "no noise fits the budget of a level")])
    for holding in HOLDINGS:
        held = plan_question(BOX, holding=holding, amount=Fraction(1))
        with pytest.raises(ValueError, match="counts: those of tree box are no counts of codes"):
            next(held.split_counts(np.zeros(3), make_choices()))
