"""Numbers of different values in memory: exact before the noise, bounded, and of the stated law.

Statistical limits have a false-alarm probability of at most 1e-6; the keys are fixed.
"""

from __future__ import annotations

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
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.numbers import DistinctDomain, DistinctQuestion, DistinctWorkload
from dptrees.dpcore.privacy.sensitivity import distinct_sensitivity
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.specification import Refusal
from tests.dpcore.neighboring import largest
from tests.dpcore.noise_laws import p_value, scaled
from tests.dpcore.single_questions import KEY, alone, released, silenced

FALSE_ALARM = 1e-6
EPSILON = Budget(measure=Measure.EPSILON, amount=Fraction(1))
RHO = Budget(measure=Measure.RHO, amount=Fraction(1, 2))
PERSON = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=8)
GROUPS = KeyList(column="group", keys=("x", "y", "z"))


def make_question(
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    *,
    values: int = 1,
    keys: KeyList | None = None,
    budget: Budget = EPSILON,
    shards: int = 5,
) -> DistinctQuestion:
    domain = DistinctDomain(column="value")
    return DistinctQuestion(
        name="d",
        domain=domain,
        keys=keys,
        release_unit=unit,
        spent=budget,
        max_values=values,
        shards=shards,
    )


def numbers(question: DistinctQuestion, rows: dict[str, Any], **how: Any) -> pa.Table:
    """The table of the released numbers."""
    return released(question, rows, **how)._read("nodes", "d", 0, 0)


def exact(question: DistinctQuestion, rows: dict[str, Any], size: int = 1000) -> list[int]:
    found: list[int] = numbers(silenced(question), rows, size=size)["estimate"].to_pylist()
    return found


VALUES: dict[str, tuple[pa.Array, int]] = {
    "strings": (pa.array(["a", "b", None, "a", "", "B", "a" * 9000, "a" * 9001]), 6),
    "dictionary": (pa.array(["a", "b", None, "a"]).dictionary_encode(), 2),
    "integers": (pa.array([1, -1, 2**62, 1, None]), 3),
    "unsigned": (pa.array([2**64 - 1, 2**64 - 2, 0], pa.uint64()), 3),
    "floats": (pa.array([0.1, 0.1, -0.0, 0.0, float("nan"), 2.0**60, 1e300]), 4),
    "decimals": (pa.array([Decimal("1.50"), Decimal("1.5"), Decimal("2")]), 2),
    "truth values": (pa.array([True, False, None, True]), 2),
    "dates": (pa.array([date(2020, 1, 1), date(2020, 1, 2), date(2020, 1, 1)]), 2),
    "times": (pa.array([datetime(2020, 1, 1, 5), datetime(2020, 1, 1, 5)]), 1),
    "none at all": (pa.array([None, None], pa.string()), 0),
    "no rows": (pa.array([], pa.int64()), 0),
}


def test_equal_values_count_once_and_missing_ones_do_not() -> None:
    for name in VALUES:
        column, number = VALUES[name]
        make_question().check_types({"value": column.type})
        assert exact(make_question(), {"value": column}) == [number], name


def test_values_of_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="column 'value' has type list<item: int64>, but differ"):
        make_question().check_types({"value": pa.list_(pa.int64())})
    with pytest.raises(Refusal, match="'date' must be one of text, integer, number"):
        DistinctDomain(column="x", type="date")


def random_rows(rows: int = 4000) -> dict[str, Any]:
    random = np.random.default_rng(3)
    return {
        "value": pa.array([f"v{n}" for n in random.zipf(1.4, rows) % 700]),
        "group": pa.array(random.choice(["x", "y", "z", "other"], rows, p=[0.6, 0.3, 0.05, 0.05])),
        "user": pa.array(random.integers(0, 300, rows)),
    }


def test_numbers_are_exact_for_each_key_whatever_the_batches_and_shards() -> None:
    for shards, size in product((1, 5, 32), (170, 4000)):
        rows = random_rows()
        pairs = set(zip(rows["group"].to_pylist(), rows["value"].to_pylist(), strict=True))
        expected = [sum(group == key for group, _ in pairs) for key in GROUPS.keys]
        assert exact(make_question(keys=GROUPS, shards=shards), rows, size) == expected
        one = KeyList(column="group", keys=("y",))
        assert exact(make_question(keys=one, shards=shards), rows, size) == [expected[1]]
        assert exact(make_question(shards=shards), rows, size) == [len({v for _, v in pairs})]


def test_of_a_unit_as_many_values_count_as_the_bound_says() -> None:
    # Each unit has 20 values of its own, the first in most of its rows.
    users = np.repeat(np.arange(50), 119)
    places = np.tile(np.concatenate([np.zeros(100, int), np.arange(1, 20)]), 50)
    rows = {"user": pa.array(users), "value": pa.array(users * 20 + places)}
    for values in (1, 3, 8):
        assert exact(make_question(PERSON, values=values), rows) == [50 * values]
    # A value of many rows is as likely to count as one of a single row.
    seen = exact(make_question(PERSON, values=1), rows | {"value": pa.array(places)})
    assert 10 < seen[0] <= 20


# The pairs of a group and a value that a unit may have.
ONE_GROUP = [("x", "a"), ("x", "b"), ("x", "c")]
TWO_GROUPS = [("x", "a"), ("x", "b"), ("y", "a"), ("y", "c")]


def largest_moves(unit: PrivacyUnit, *, keyed: bool, values: int = 2) -> tuple[int, int]:
    """The largest L1 and squared L2 distance between neighbors, over all units of up to three rows.

    Args:
        unit: what they differ in.
        keyed: a number for each group.
        values: how many of a unit count.
    """
    keys = KeyList(column="group", keys=("x", "y")) if keyed else None
    question = make_question(unit, values=values, keys=keys, shards=1)
    pairs = TWO_GROUPS if keyed else ONE_GROUP
    found = []
    for rest in ([], [("u", "x", "a"), ("v", "y", "b")]):
        sums = np.array(
            [
                _numbers(question, [*rest, *(("w", *row) for row in own)])
                for rows in range(4)
                for own in combinations_with_replacement(pairs, rows)
            ]
        )
        found.append(largest(sums, unit.neighbors, without=sums[0]))
    return max(l1 for l1, _ in found), max(l2 for _, l2 in found)


def _numbers(question: DistinctQuestion, rows: list[tuple[str, str, str]]) -> list[int]:
    users, groups, values = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {"user": users, "group": groups, "value": values}
    return exact(question, {name: pa.array(each, pa.string()) for name, each in columns.items()})


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_the_sensitivity_is_that_of_brute_force(neighbors: Neighbors, keyed: bool) -> None:
    unit = replace(PERSON, neighbors=neighbors, rows=2)
    assert largest_moves(unit, keyed=keyed) == distinct_sensitivity(unit, 2, keyed=keyed)


def test_a_bound_that_is_off_by_one_is_found() -> None:
    unit = replace(PERSON, rows=3)
    l1, _ = largest_moves(unit, keyed=False, values=3)
    assert l1 == 3 > distinct_sensitivity(unit, 2, keyed=False)[0]


@pytest.mark.parametrize(
    ("budget", "law"),
    [
        (EPSILON, DiscreteLaplace(scale=Fraction(3))),
        (RHO, DiscreteGaussian(sigma_squared=Fraction(9))),
    ],
)
def test_the_noise_has_the_law_of_the_sensitivity(budget: Budget, law: NoiseLaw) -> None:
    keys = KeyList(column="group", keys=tuple(range(4000)))
    question = make_question(PERSON, values=3, keys=keys, budget=budget)
    assert question.law == law
    none = {"value": pa.array([], pa.string()), "group": pa.array([], pa.int64())}
    rows = none | {"user": pa.array([], pa.int64())}
    noise = numbers(question, rows)["estimate"].to_numpy().astype(np.int64)
    assert p_value(noise, law) > FALSE_ALARM > p_value(noise, scaled(law, Fraction(7, 10)))


def test_intervals_hold_the_exact_number_as_often_as_stated() -> None:
    keys = KeyList(column="group", keys=tuple(range(3000)))
    rows = {"value": pa.array(["a"] * 3000), "group": pa.array(np.arange(3000))}
    table = numbers(make_question(keys=keys), rows)
    holds = (table["ci_low"].to_numpy() <= 1) & (table["ci_high"].to_numpy() >= 1)
    assert stats.binomtest(int(holds.sum()), 3000, 0.95, "less").pvalue > FALSE_ALARM
    assert set(table["std_error"].to_pylist()) == {np.sqrt(make_question(keys=keys).law.variance)}
    assert min(table["count"].to_pylist()) == 0 > min(table["estimate"].to_pylist())


def test_other_rows_and_another_nonce_draw_afresh_and_the_same_rows_the_same() -> None:
    keys = KeyList(column="group", keys=tuple(range(100)))
    rows = {"value": pa.array(["a"] * 100), "group": pa.array(np.arange(100))}
    question = make_question(keys=keys)
    first = numbers(question, rows)
    backwards = {name: each.take(pa.array(np.arange(100)[::-1])) for name, each in rows.items()}
    assert numbers(question, backwards) == first
    more = {"value": pa.array(["a"] * 100 + ["b"]), "group": pa.array([*range(100), 7])}
    # A row of a value that is there already: the numbers are the same, the counts are not.
    again = {"value": pa.array(["a"] * 101), "group": pa.array([*range(100), 7])}
    for other in (
        numbers(question, more),
        numbers(question, again),
        numbers(question, rows, nonce=b"other"),
    ):
        same = other["estimate"].to_numpy() == first["estimate"].to_numpy()
        assert same.mean() < 0.6


def test_every_place_has_a_partial_whatever_the_rows_are() -> None:
    choices = KeyedChoices(key=KEY, release="r")
    question = make_question(shards=4).with_choices(choices)
    for rows in (np.empty(0, np.int64), np.zeros(5, np.int64), np.arange(50)):
        counter = question.counter(dense=False, choices=choices)
        kept = counter.add(question.increments({"value": pa.array(rows)}), len(rows))
        partials = list(counter.take())
        assert sorted(each.place for each in partials) == question.places
        assert kept == len(rows) == sum(each.total for each in partials)


def test_cells_are_hashes_under_the_key_the_release_and_the_tree() -> None:
    """What a shuffle or a checkpoint holds is no test of whether a value is in the data."""
    rows = {"value": pa.array([f"person {n}" for n in range(500)])}
    other = ReleaseKey(bytes(32))
    sources = [(KEY, "r", "d"), (other, "r", "d"), (KEY, "other", "d"), (KEY, "r", "other")]
    cells: set[int] = set()
    for key, release, tree in sources:
        question = replace(make_question(), name=tree)
        keyed = question.with_choices(KeyedChoices(key=key, release=release))
        cells.update(keyed.increments(rows).cells.to_pylist())
    assert len(cells) == 500 * len(sources)
    with pytest.raises(RuntimeError, match="rows are read with a release key alone"):
        make_question().increments(rows)


def test_the_specification_reads_back() -> None:
    for question in (
        make_question(),
        make_question(PERSON, values=4, keys=GROUPS, budget=RHO),
        make_question(replace(PERSON, keys=3), values=3),
    ):
        whole = alone(question)
        assert plan_from_spec(whole.spec()) == whole


def test_a_bound_beyond_the_unit_is_refused() -> None:
    for unit, values, most in ((ADD_REMOVE_ROW, 2, 1), (PERSON, 9, 8), (PERSON, 0, 8)):
        with pytest.raises(Refusal, match=f"{values} is not from 1 to {most}, the bounds"):
            make_question(unit, values=values)
    with pytest.raises(Refusal, match="no noise fits it"):
        make_question(budget=replace(EPSILON, amount=Fraction(1, 2**50)))
    spec = alone(make_question()).spec()
    spec["trees"][0]["plan"]["keyed"] = True
    with pytest.raises(ValueError, match="plan: it does not follow from the other fields"):
        plan_from_spec(spec)
    with pytest.raises(ValueError, match="shards: 0 is not at least 1"):
        make_question(shards=0)


def test_a_unit_whose_own_column_is_counted_has_one_value() -> None:
    setting = Setting(unit=PERSON, budget=EPSILON)
    units = DistinctWorkload(name="d", domain=DistinctDomain(column="user"))
    others = replace(units, domain=DistinctDomain(column="city"))
    keyed = replace(units, keys=GROUPS)
    wanted = replace(units, max_values=4)
    found = [each.planned(setting) for each in (units, others, keyed, wanted)]
    assert [each.max_values for each in found] == [1, 8, 8, 4]
    assert found[0].law == DiscreteLaplace(scale=Fraction(1))
    rows = {"user": pa.array(["a"] * 20 + ["b", None, "c"])}
    (answer,) = released(silenced(units.planned(setting)), rows).top(5, 0)
    assert answer.estimate == 3


def test_answers_are_of_one_number_for_each_key() -> None:
    tree = released(make_question(keys=GROUPS), random_rows())
    (answer,) = tree.top(5, 0, "x")
    assert answer == tree.at_path("", "x") == tree.node(0, 0, "x")
    assert answer.estimate is not None and answer.std_error is not None
    assert answer.ci_low < answer.estimate < answer.ci_high and answer.fraction is None
    assert tree.rows_in_all() is None
    for refused, match in (
        (lambda: tree.top(1, 1, "x"), "level: 1 is not 0"),
        (lambda: tree.top(1, 0), "key: tree d needs a key"),
        (lambda: tree.at_path("a", "x"), "has one number for a key"),
        (lambda: tree.node(0, 1, "x"), "has node 0 of level 0 alone"),
        (lambda: tree.cdf(3, "x"), "has numbers of different values alone"),
    ):
        with pytest.raises(ValueError, match=match):
            refused()
