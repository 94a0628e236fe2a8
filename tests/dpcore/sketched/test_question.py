"""Sketches as releases: exact before the noise, of the stated law, unbiased, with true intervals.

Statistical limits have a false-alarm probability of at most 1e-6; the keys are fixed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.questions.messages import Increments, Partial, Place
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.questions.released import SKETCH
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.rows.columns import unpack
from dptrees.dpcore.sketched.domain import SketchDomain
from dptrees.dpcore.sketched.question import SketchQuestion, sketch_seed
from dptrees.dpcore.sketched.workload import SketchWorkload
from dptrees.dpcore.sketches.estimates import RowError, SketchEstimator
from dptrees.dpcore.sketches.sketch import SketchKind, SketchShape
from dptrees.dpcore.specification import Refusal
from tests.dpcore.neighboring import largest
from tests.dpcore.noise_laws import p_value, scaled
from tests.dpcore.single_questions import KEY, alone, released, silenced

FALSE_ALARM = 1e-6
EPSILON = Budget(measure=Measure.EPSILON, amount=Fraction(1))
RHO = Budget(measure=Measure.RHO, amount=Fraction(1, 2))
PERSON = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=2)
CHOICES = KeyedChoices(key=KEY, release="r")
TEXTS = SketchDomain(column="value")
CODES = SketchDomain(column="value", widths=(3, 5), notation="hex")


def make_question(
    kind: SketchKind = SketchKind.COUNT_SKETCH,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    *,
    domain: SketchDomain = TEXTS,
    rows: int = 3,
    width: int = 64,
    budget: Budget = EPSILON,
    **fields: Any,
) -> SketchQuestion:
    shape = SketchShape(kind=kind, rows=rows, width=width)
    return SketchQuestion(
        name="s", domain=domain, shape=shape, release_unit=unit, spent=budget, **fields
    )


def cells(question: SketchQuestion, rows: dict[str, Any], **how: Any) -> np.ndarray:
    """The released cells of all tables."""
    tree = released(question, rows, **how)
    return np.concatenate([tree._chunk(place.number) for place in question.places])


def zipf_rows(size: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).zipf(1.3, size) % 5000


def texts(numbers: np.ndarray) -> dict[str, Any]:
    return {"value": pa.array([f"v{number}" for number in numbers])}


# --- Counting.


@pytest.mark.parametrize("kind", SketchKind)
def test_cells_are_those_of_the_hash_functions_that_the_seed_gives(kind: SketchKind) -> None:
    """An oracle counts row by row, from what is released alone."""
    numbers = zipf_rows(400) % 256
    question = silenced(make_question(kind, domain=CODES, width=16, chunk_cells=20))
    found = cells(question, {"value": pa.array(numbers)}, nonce=b"folder")
    seed = sketch_seed(replace(CHOICES, nonce=b"folder"), "s")
    expected = np.zeros((2, 3, 16), np.int64)
    for level, functions in enumerate(question.hashes(seed)):
        for number in numbers:
            code = np.array([number >> (8 - CODES.levels[level])], np.uint64)
            for row, (columns, signs) in enumerate(functions.cells(code)):
                expected[level, row, columns[0]] += 1 if signs is None else signs[0]
    assert found.tolist() == expected.reshape(-1).tolist()
    assert not np.array_equal(found, cells(question, {"value": pa.array(numbers)}, nonce=b"other"))


def counted(question: SketchQuestion, numbers: np.ndarray, *, dense: bool, size: int) -> Any:
    """Partial counts by place, and the sum that the counter reports."""
    keyed, total = question.with_choices(CHOICES), 0
    counter, partials = question.counter(dense=dense, choices=CHOICES), list[Partial]()
    for start in range(0, len(numbers), size):
        rows = texts(numbers[start : start + size])
        total += counter.add(keyed.increments(rows), len(rows["value"]))
        if start % (2 * size) == 0:
            partials += counter.take()
    return [*partials, *counter.take()], total


@pytest.mark.parametrize("kind", SketchKind)
def test_batches_bundles_and_the_order_of_merging_do_not_matter(kind: SketchKind) -> None:
    question = make_question(kind, width=32, chunk_cells=40)
    numbers, results = zipf_rows(900), []
    for dense, size in product((True, False), (50, 300, 900)):
        partials, total = counted(question, numbers, dense=dense, size=size)
        by_place: dict[Place, list[bytes]] = {place: [] for place in question.places}
        for partial in partials:
            by_place[partial.place].append(partial.data)
        merged = [question.merge(place, each) for place, each in by_place.items()]
        again = [question.merge(place, each[::-1]) for place, each in by_place.items()]
        assert [each.to_bytes() for each in merged] == [each.to_bytes() for each in again]
        assert total == sum(each.total for each in merged)
        results.append([unpack(each.to_bytes()).tolist() for each in merged])
    assert all(each == results[0] for each in results)
    # How many messages there are does not follow from the rows.
    for dense in (True, False):
        one, other = (counted(question, rows, dense=dense, size=300)[0] for rows in
                      (numbers, np.zeros(900, np.int64)))  # fmt: skip
        assert [each.place for each in one] == [each.place for each in other]


def test_a_counter_is_due_by_its_rows_where_the_table_is_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dptrees.dpcore.questions.messages.BUFFERED_ROWS", 3000)
    question, increments = make_question(), Increments(pa.array(np.zeros(500, np.uint64)))
    for dense, due in ((True, False), (False, True)):
        counter = question.counter(dense=dense, choices=CHOICES)
        counter.add(increments, 500)
        assert not counter.is_due
        counter.add(increments, 500)
        assert counter.is_due == due


EQUAL: dict[str, tuple[str, pa.Array, list[Any], list[int]]] = {
    "strings": ("text", pa.array(["a", "b", None, "a", ""]), ["a", b"a", "", "A"], [2, 2, 1, 0]),
    "dictionary": ("text", pa.array(["a", None, "a"]).dictionary_encode(), ["a"], [2]),
    "integers": ("integer", pa.array([1, -1, None, 2**62]), ["1", -1, 2**62, 1.0], [1, 1, 1, 1]),
    "unsigned": ("integer", pa.array([2**64 - 1], pa.uint64()), [2**64 - 1, 1], [1, 0]),
    "decimals": ("integer", pa.array([Decimal("1.00"), Decimal("1.50")]), [1, 2], [1, 0]),
    "truth": ("boolean", pa.array([True, None, True]), ["true", False], [2, 0]),
    "dates": ("date", pa.array([date(2020, 1, 2)] * 2), ["2020-01-02", date(2020, 1, 3)], [2, 0]),
    "times": (
        "timestamp",
        pa.array([datetime(2020, 1, 2, 5)], pa.timestamp("ns")),
        ["2020-01-02T05:00:00", "2020-01-02T06:00:00+01:00", datetime(2020, 1, 2)],
        [1, 1, 0],
    ),
    "none": ("text", pa.array([None, None], pa.string()), ["", "None"], [0, 0]),
    "no rows": ("integer", pa.array([], pa.int64()), [0], [0]),
}


@pytest.mark.parametrize("name", EQUAL)
def test_values_are_equal_as_everywhere_and_missing_ones_are_not_counted(name: str) -> None:
    type, column, values, expected = EQUAL[name]
    question = make_question(domain=SketchDomain(column="value", type=type), width=2**12)
    question.check_types({"value": column.type})
    tree = released(silenced(question), {"value": column})
    assert [answer.estimate for answer in tree.counts(values)] == expected


def test_what_cannot_be_read_is_refused() -> None:
    question = make_question()
    for type, words in ((pa.int64(), "int64"), (pa.list_(pa.string()), "list"), (pa.float64(), "")):
        with pytest.raises(ValueError, match=f"column 'value' has type {words}.*needs strings"):
            question.check_types({"value": type})
    with pytest.raises(ValueError, match="this sketch needs integers"):
        make_question(domain=CODES).check_types({"value": pa.string()})
    with pytest.raises(Refusal, match="type: 'number' must be one of text, integer, boolean"):
        SketchDomain(column="x", type="number")
    with pytest.raises(Refusal, match="cells of all tables are more than"):
        make_question(width=2**29)
    whole = make_question(domain=SketchDomain(column="value", type="integer"))
    tree = released(whole, {"value": pa.array([1])})
    for value in (1.5, "x", 2**64, None, "1/2"):
        with pytest.raises(ValueError, match="is not one of whole numbers"):
            tree.counts([value])


# --- Privacy.


def largest_moves(question: SketchQuestion, values: tuple[Any, ...]) -> tuple[int, int]:
    """The largest distances between the exact cells of neighbors, for one seed."""
    found = []
    for rest in ((), (values[0], values[0])):
        sums = np.array(
            [
                cells(
                    silenced(question),
                    {
                        "value": pa.array([*rest, *own], pa.int64()),
                        "user": pa.array([-1] * len(rest) + [1] * len(own), pa.int64()),
                    },
                )
                for size in range(4)
                for own in combinations_with_replacement(values, size)
            ]
        )
        found.append(largest(sums, question.release_unit.neighbors, without=sums[0]))
    return max(l1 for l1, _ in found), max(l2 for _, l2 in found)


@pytest.mark.parametrize("kind", SketchKind)
@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_the_sensitivity_is_that_of_brute_force(kind: SketchKind, neighbors: Neighbors) -> None:
    """All units of up to three rows of two counted, over values of two levels of prefixes.

    Which values collide is the seed's; that a count sketch's worst case is attained needs two
    values of opposite signs in one cell of all rows, so bounds are compared, and without signs
    equality.
    """
    unit = replace(PERSON, neighbors=neighbors)
    question = make_question(kind, unit, domain=CODES, rows=2, width=8)
    moved, allowed = largest_moves(question, (0, 40, 100, 201)), question.sensitivity
    assert moved[0] == allowed[0] and moved[1] <= allowed[1]
    if kind is SketchKind.COUNT_MIN:
        assert moved == allowed
    # One hash function or one level fewer would not be enough.
    for fewer in (make_question(kind, unit, rows=2), make_question(kind, unit, rows=3)):
        assert moved[0] > fewer.sensitivity[0] and moved[1] > fewer.sensitivity[1] / 2


@pytest.mark.parametrize(
    ("budget", "law"),
    [
        (EPSILON, DiscreteLaplace(scale=Fraction(6))),
        (RHO, DiscreteGaussian(sigma_squared=Fraction(12))),
    ],
)
def test_the_noise_has_the_law_of_the_sensitivity(budget: Budget, law: NoiseLaw) -> None:
    question = make_question(unit=PERSON, budget=budget, width=2**11, chunk_cells=1000)
    assert question.law == law
    rows = {"value": pa.array(["a", "b"]), "user": pa.array([1, 2])}
    noise = cells(question, rows) - cells(silenced(question), rows)
    assert p_value(noise, law) > FALSE_ALARM > p_value(noise, scaled(law, Fraction(7, 10)))


def test_the_seed_is_of_the_key_the_release_the_folder_and_the_tree() -> None:
    others = (
        replace(CHOICES, nonce=b"x"),
        replace(CHOICES, release="x"),
    )
    seeds = {sketch_seed(each, "s") for each in (CHOICES, *others)} | {sketch_seed(CHOICES, "t")}
    assert len(seeds) == 4
    law = released(make_question(), texts(zipf_rows(9)))._read(SKETCH, "s", 0, -1)
    assert set(law["seed"].to_pylist()) == {sketch_seed(CHOICES, "s").hex()}


# --- Answers.


def counts_by_seed(question: SketchQuestion, rows: dict[str, Any], values: list[str]) -> Any:
    """(draws, values, 3) the estimates and the ends of intervals, under seeds and noise of many
    folders."""
    result = []
    for draw in range(120):
        tree = released(question, rows, nonce=b"%d" % draw)
        answers = tree.counts(values)
        result.append([(each.estimate, each.ci_low, each.ci_high) for each in answers])
    return np.array(result)


@pytest.mark.parametrize(
    ("kind", "rows"), [(SketchKind.COUNT_MIN, 3), (SketchKind.COUNT_SKETCH, 4)]
)
def test_estimates_are_unbiased_and_intervals_hold(kind: SketchKind, rows: int) -> None:
    numbers = zipf_rows(3000)
    truth = Counter(f"v{number}" for number in numbers.tolist())
    values = [*(word for word, _ in truth.most_common(20)), *(f"none{at}" for at in range(20))]
    exact = np.array([truth[word] for word in values])
    question = make_question(kind, rows=rows, width=256)
    found = counts_by_seed(question, texts(numbers), values)
    errors = (found[:, :, 0] - exact).mean(axis=1)
    margin = stats.norm.isf(FALSE_ALARM / 2) * errors.std(ddof=1) / np.sqrt(len(errors))
    # The minimum's bias is taken off by what the cells of one table say of it.
    slack = 0.5 if kind is SketchKind.COUNT_MIN else 0.0
    assert abs(errors.mean()) < margin + slack
    assert abs(errors.mean() + 4 * margin + 1) > margin + slack  # a planted bias
    holds = (found[:, :, 1] <= exact) & (exact <= found[:, :, 2])
    # Values of one table are not independent: the draws are.
    rates = holds.mean(axis=1)
    reach = stats.norm.isf(FALSE_ALARM) * rates.std(ddof=1) / np.sqrt(len(rates))
    assert rates.mean() > 0.95 - reach
    assert rates.mean() < 0.999


@pytest.mark.parametrize("kind", SketchKind)
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_ends_of_errors_are_those_of_all_draws(kind: SketchKind, rows: int) -> None:
    """Order statistics of independent cells, enumerated."""
    shape = SketchShape(kind=kind, rows=rows, width=4)
    table = np.tile(np.array([0, 1, 5, 30]), (rows, 1))
    error = RowError.from_table(shape, table)
    for estimator in (SketchEstimator.MINIMUM, SketchEstimator.MEDIAN):
        if estimator is SketchEstimator.MINIMUM and shape.signed:
            continue
        atoms = error.counted if estimator is SketchEstimator.MINIMUM else error.unbiased
        atoms = np.unique(atoms) if not shape.signed else np.sort([0, 0, -1, 1, -5, 5, -30, 30])
        combine = np.min if estimator is SketchEstimator.MINIMUM else np.median
        draws = np.array([combine(each) for each in product(atoms, repeat=rows)])
        for confidence in (0.5, 0.8, 0.95):
            low, high = error.ends(estimator, confidence)
            assert (draws < low - 1e-9).mean() <= (1 - confidence) / 2 + 1e-9
            assert (draws > high + 1e-9).mean() <= (1 - confidence) / 2 + 1e-9
            if rows % 2:  # of an even number the ends may be farther than they must
                assert (draws <= low + 1e-9).mean() > (1 - confidence) / 2 - 1e-9
                assert (draws >= high - 1e-9).mean() > (1 - confidence) / 2 - 1e-9


@pytest.mark.parametrize("kind", SketchKind)
def test_the_law_in_the_release_is_that_of_its_cells(kind: SketchKind) -> None:
    question = make_question(kind, width=128, chunk_cells=100)
    tree = released(question, texts(zipf_rows(2000)))
    table = np.concatenate([tree._chunk(place.number) for place in question.places])
    expected = RowError.from_table(question.shape, table.reshape(3, 128))
    found = tree._level(0).error
    assert np.allclose(found.unbiased, expected.unbiased)
    assert np.allclose(found.counted, expected.counted)
    assert tree._level(0).totals.tolist() == table.reshape(3, 128).sum(axis=1).tolist()


def test_the_heaviest_codes_are_found_by_descent() -> None:
    numbers = zipf_rows(20_000) % 256
    truth = Counter(numbers.tolist())
    question = make_question(domain=CODES, width=256)
    rows = {"value": pa.array(numbers)}
    tree = released(question, rows)
    heaviest = [f"{code:02x}/8" for code, _ in truth.most_common(3)]
    assert [answer.label for answer in tree.top(3, 2)] == heaviest
    above = Counter(int(number) >> 5 for number in numbers)
    assert tree.top(1, 1)[0].label == f"{above.most_common(1)[0][0] << 5:02x}/3"
    assert tree.top(3, 2)[0].remark is not None
    named = tree.top_among([str(code) for code in range(256)], 3)
    assert [f"{int(answer.label):02x}/8" for answer in named] == heaviest


# --- Plans.


def test_the_predicted_error_is_the_one_that_is_found() -> None:
    """On rows of the guessed law; by the counts of values that are not there."""
    size, values = 100_000, 4096
    weights = 1 / np.arange(1, values + 1)
    counts = np.floor(size * weights / weights.sum()).astype(int)
    numbers = np.repeat(np.arange(values), counts)
    workload = SketchWorkload(name="s", domain=TEXTS, rows=size, values=values, width=512, hashes=5)
    question = workload.planned(Setting(unit=ADD_REMOVE_ROW, budget=EPSILON))
    found = [
        np.mean([each.estimate**2 for each in tree.counts([f"none{at}" for at in range(100)])])
        for tree in (released(question, texts(numbers), nonce=b"%d" % n) for n in range(12))
    ]
    assert 0.85 < np.sqrt(np.mean(found)) / workload.predicted(question) < 1.15


def test_the_kind_and_the_hashes_of_the_smallest_error_are_chosen() -> None:
    setting = Setting(unit=ADD_REMOVE_ROW, budget=EPSILON)
    given = {"name": "s", "domain": TEXTS, "rows": 10**6, "values": 10**5, "memory": 2**16}
    chosen = SketchWorkload(**given).planned(setting)
    errors = {
        (kind, hashes): SketchWorkload(**given, hashes=hashes, type=kind)
        for kind in SketchKind
        for hashes in (1, 3, 5, 7, 9)
    }
    found = {name: each.predicted(each.planned(setting)) for name, each in errors.items()}
    assert min(found, key=lambda name: found[name]) == (chosen.shape.kind, chosen.shape.rows)
    assert 8 * chosen.cells <= 2**16 < 16 * chosen.cells + 2**15


def test_a_question_comes_back_from_its_specification() -> None:
    for domain in (TEXTS, CODES):
        plan = alone(make_question(domain=domain, guess=(10, 20)))
        assert plan_from_spec(plan.spec()) == plan
