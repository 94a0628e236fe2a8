"""Answers about a released table: exact ones without noise, intervals, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa

from dptrees.dpcore.tables.released import ReleasedTable
from tests.dpcore.refusals import check_refused_calls
from tests.dpcore.tables.tables import people, released_people

ROWS = people(4000)
SIDES = {
    "age": (24, 40),
    "hours": (20, 50),
    "education": ("school", "college"),
    "town": ("rome", "rome"),
    "day": ("2020-01-24", "2020-06-10"),
}


@cache
def exact() -> ReleasedTable:
    """A release whose noise is 0."""
    return released_people(ROWS)


@cache
def noisy() -> ReleasedTable:
    return released_people(ROWS, Fraction(1))


def inside(name: str) -> np.ndarray:
    """Which rows lie in the side of a column."""
    low, high = SIDES[name]
    column = ROWS[name].to_numpy()
    if name in ("education", "town"):
        return np.asarray(column == low)
    if name == "day":
        low, high = np.datetime64(low), np.datetime64(high)
    return np.asarray((column >= low) & (column < high))


def test_boxes_of_one_column_without_noise() -> None:
    for name in SIDES:
        answer = exact().box({name: SIDES[name]})
        assert answer.asked is None and answer.remark is None
        assert answer.estimate == answer.count == inside(name).sum()


def test_boxes_of_chosen_pairs_without_noise() -> None:
    """And of others: the truth is in the interval that follows from the columns."""
    tree = exact()
    for place, first in enumerate(SIDES):
        for second in list(SIDES)[place + 1 :]:
            truth = (inside(first) & inside(second)).sum()
            answer = tree.box({second: SIDES[second], first: SIDES[first]})
            assert answer.ci_low <= truth <= answer.ci_high
            if (first, second) in tree.pairs and answer.std_error is not None:
                # The model is fitted to a few rows.
                assert answer.estimate == truth and abs(answer.count - truth) <= 5
            if (first, second) not in tree.pairs:
                assert answer.std_error is None and "was not measured" in str(answer.remark)
    assert len(tree.pairs) >= 2


def test_the_sides_of_a_box_come_in_any_order_and_are_rounded_down() -> None:
    tree = exact()
    both = tree.box({"age": (25, 41), "town": ("oslo", "oslo")})
    assert both.label == "age [24, 40), town oslo" and both.asked is not None
    assert both.asked == "age [25, 41), town oslo"
    open_ = tree.box({"age": ("", 24)})
    assert open_.label == "age [16, 24)" and open_.in_words == "age below 24"
    assert tree.box({}).label == "all" and tree.box({"age": ("", "")}).count == len(ROWS)
    assert tree.box({"age": (24, 24)}).count == 0


def test_cdf_range_and_quantiles_of_a_column() -> None:
    column = exact().select_column("age")
    ages = ROWS["age"].to_numpy()
    assert column.cdf(40).estimate == (ages < 40).sum()
    assert column.range(24, 40).estimate == inside("age").sum()
    for q in (0.1, 0.5, 0.9):
        found = column.quantile(q)
        # Within the group of four years that holds it.
        assert abs(found["value"] - np.quantile(ages, q)) <= 4  # type: ignore[operator]
        assert found["ci_low"] <= np.quantile(ages, q) <= found["ci_high"]  # type: ignore[operator]
    assert exact().select_column("day").quantile("0.5")["value_text"] > "2020-06"  # type: ignore[operator]
    largest = exact().select_column("town").top(1, 2)[0]
    assert largest.label == "town oslo"


def test_intervals_of_quantiles_hold_the_truth() -> None:
    """Releases have much noise: twelve intervals miss one time in ten thousand each."""
    ages = ROWS["age"].to_numpy()
    for number in range(4):
        tree = released_people(ROWS, Fraction(1, 20), nonce=number.to_bytes(16, "big"))
        column = tree.at_confidence(0.9999).select_column("age")
        for q in (0.25, 0.5, 0.75):
            found = column.quantile(q)
            cell = 16 + (np.sort(ages)[int(q * len(ages))] - 16) // 4 * 4
            assert found["ci_low"] <= cell + 4 and cell <= found["ci_high"]  # type: ignore[operator]


def test_released_rows_and_their_intervals() -> None:
    tree = noisy()
    (total,) = tree.top(1, 0)
    assert total.label == "all" and abs(total.count - len(ROWS)) < 500
    (cell,) = tree.top(1, 1)
    again = tree.at_path(cell.label)
    assert again == cell and cell.std_error is not None
    wide, narrow = (tree.at_confidence(each).at_path(cell.label) for each in (0.99, 0.5))
    assert wide.ci_low <= cell.ci_low <= narrow.ci_low <= narrow.ci_high <= cell.ci_high
    for level in (1, 2):
        rows = tree._rows(level)
        assert (rows["count"].to_numpy() >= 0).all()
        assert len(set(rows["label"].to_pylist())) == len(rows)


def test_the_model_follows_from_the_released_rows() -> None:
    """What is read back is what was measured: the counts of the rows are its model's."""
    tree = noisy()
    for first, second in (table.pair for table in tree.noisy.pairs):
        np.testing.assert_allclose(tree.model.pair(first, second).sum(), tree.model.rows)
    counts = tree._rows(1)["count"].to_numpy()
    for place, size in enumerate(tree.question.domain.sizes):
        own = counts[tree.question.domain.shape.column_slice(place)]
        assert len(own) == size and np.abs(own - tree.model.column(place)).max() <= 1


def test_no_rows_at_all() -> None:
    tree = released_people(ROWS.slice(0, 0))
    assert tree.total <= 1 and tree.box({"age": (24, 40)}).estimate == 0
    assert tree.select_column("age").quantile(0.5)["ci_low"] == 16


def test_what_is_refused() -> None:
    tree = exact()
    age, town = tree.select_column("age"), tree.select_column("town")
    three = {name: SIDES[name] for name in ("age", "hours", "town")}
    check_refused_calls(
        [
            (lambda: tree.box(three), "answers boxes of one or two columns"),
            (lambda: tree.box({"height": (1, 2)}), "column: 'height' is none of age"),
            (lambda: tree.box({"age": (40, 24)}), "box: 40 is above 24"),
            (lambda: tree.box({"town": ("paris", "paris")}), "'paris'"),
            (lambda: tree.box({}, "UA"), "key: tree people has no keys"),
            (lambda: tree.cdf(3), "has several columns: say which with --column"),
            (lambda: town.cdf("rome"), "cdf: the categories of town have no order"),
            (lambda: age.cdf(30, simultaneous=True), "a table has no simultaneous band"),
            (lambda: age.quantile(2), "not between 0 and 1"),
            (lambda: age.quantile("x"), "is not a number"),
            (lambda: tree.sum(["age"]), "query a box"),
            (lambda: tree.top(1, 3), "level: 3 is none of 0"),
            (lambda: tree.at_path("age"), "is no label of a cell that was released"),
            (lambda: tree.at_confidence(2), "is not above 0 and at most 0.9999"),
        ]
    )


def test_the_type_of_a_part() -> None:
    for level in (0, 1, 2):
        rows = noisy()._rows(level)
        assert rows.schema.field("first_cells").type == pa.dictionary(pa.int32(), pa.string())
