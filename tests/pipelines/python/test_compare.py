"""Comparisons of two keys, and cross tables, in Python."""

from __future__ import annotations

import math
import re
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dptrees
from dptrees.pipelines.python.answers import Answers
from dptrees.pipelines.python.release import Release

SEXES, CITIES = ["m", "f"], ["x", "y", "z"]


def people(size: int = 6_000) -> pa.Table:
    random = np.random.default_rng(3)
    sex, city = random.choice(SEXES, size), random.choice(CITIES, size)
    pay = np.where(sex == "m", 2_500.0, 2_300.0) + random.normal(0, 300, size)
    return pa.table({"sex": sex, "city": city, "pay": pay, "day": pa.array(["a"] * size)})


@pytest.fixture(scope="module")
def released() -> Release:
    return (
        dptrees.of(people(), epsilon=8)
        .by(["sex", "city"], {"sex": SEXES, "city": CITIES})
        .count(name="cross")
        .by("sex", SEXES)
        .mean("pay", (0, 5_000))
        .quantiles("pay", [0.5, 0.9], (0, 5_000), name="quantiles")
        .release()
    )


def true_means() -> dict[str, float]:
    rows = people()
    sex, pay = rows["sex"].to_numpy(zero_copy_only=False), rows["pay"].to_numpy()
    return {each: float(pay[sex == each].mean()) for each in SEXES}


def test_a_difference_of_means_has_an_interval(released: Release) -> None:
    means, true = released["pay"].mean(), true_means()
    found = means.compare("m", "f")
    (low, high), difference = found.interval, true["m"] - true["f"]
    own = [row["ci_high"] - row["ci_low"] for row in means]
    assert max(own) < high - low < sum(own)
    assert abs(found.value - difference) < 3 * (high - low)
    assert "pay: mean, m less f, 95 % intervals" in repr(found)
    back = means.compare("f", "m")
    assert (back.value, back.interval) == (-found.value, (-high, -low))


def test_a_ratio_of_means_has_an_interval(released: Release) -> None:
    found, true = released["pay"].mean().compare("m", "f", ratio=True), true_means()
    low, high = found.interval
    assert low < found.value < high
    assert abs(found.value - true["m"] / true["f"]) < 3 * (high - low)
    assert "m divided by f" in repr(found)


def test_each_answer_is_compared_with_the_one_of_its_name(released: Release) -> None:
    median, other = released["quantiles"].quantiles().compare("m", "f")
    assert (median["q"], other["q"]) == (0.5, 0.9)
    own = released["quantiles"].quantiles(0.5)
    widths = [row["ci_high"] - row["ci_low"] for row in own]
    assert median["ci_high"] - median["ci_low"] >= sum(widths)  # no standard error is known
    counts = released["cross"].top(3)
    by_name = {(row["key"], row["label"]): row["estimate"] for row in counts}
    for row in counts.compare("m", "f"):
        assert row["value"] == by_name["m", row["label"]] - by_name["f", row["label"]]
    described = released["quantiles"].describe().compare("m", "f")
    assert described["statistic"][:2] == ["rows", "mean"]
    points = released["quantiles"].cdf([2_400]).compare("m", "f", ratio=True)
    assert points.interval[0] < points.value < points.interval[1]


def test_what_cannot_be_compared_is_refused(released: Release) -> None:
    means = released["pay"].mean()
    columns = {
        "label": ["x", "y"],
        "value": [1.0, 2.0],
        "ci_low": [0.0, 1.0],
        "ci_high": [2.0, 3.0],
    }
    few = Answers(table=pa.table({"key": SEXES, **columns}), title="few", confidence=0.95)
    with pytest.raises(dptrees.Error, match="there is no key 'w'"):
        means.compare("m", "w")
    with pytest.raises(dptrees.Error, match="there is no column 'key'"):
        means.compare("m", "f").compare("m", "f")
    with pytest.raises(dptrees.Error, match="compare: f has no answer for x"):
        few.compare("m", "f")
    days = dptrees.release(
        {"sex": SEXES * 50, "day": [date(2024, 1, 1), date(2024, 1, 5)] * 50},
        {
            "privacy": {"neighbors": "add_remove", "epsilon": 50},
            "trees": [
                {
                    "name": "day",
                    "domain": {"column": "day", "values": [date(2024, 1, 1), date(2024, 1, 31)]},
                    "group_by": {"column": "sex", "keys": SEXES},
                }
            ],
        },
    )
    with pytest.raises(dptrees.Error, match=r"compare: 2024-01-\d\d is no number"):
        days["day"].median().compare("m", "f")


def test_answers_without_intervals_have_differences_without() -> None:
    request = dptrees.of(people(), epsilon=8).by("sex", SEXES)
    alone = request.median("pay", (0, 5_000), optimize_for="quantiles").release()
    found = alone["pay"].quantiles().compare("m", "f")
    assert found.interval.count(None) == 2 and not math.isnan(found.value)


def test_a_cross_table_is_a_count_of_the_last_column_by_the_others() -> None:
    lists: dict[str, list[Any]] = {"sex": SEXES, "city": CITIES, "day": ["a", "b"]}
    request = dptrees.of(people(), epsilon=1).by(list(lists), lists).count(name="cross")
    (tree,) = request.config["trees"]
    assert tree["domain"] == {"column": "day", "categories": ["a", "b"]}
    assert tree["group_by"] == {
        "columns": ["sex", "city"],
        "keys": {"sex": SEXES, "city": CITIES},
    }
    assert request.groups is not None and request.groups["columns"] == list(lists)
    found = request.release()["cross"].top(2, key="m/x")
    assert [row["label"] for row in found] == ["a", "b"]
    with pytest.raises(dptrees.Error, match=r"^count: give a column and its values, or groups of"):
        dptrees.of(people(), epsilon=1, delta=1e-6).by(["sex", "city"], "private").count()


def test_answers_are_frames_of_polars(released: Release) -> None:
    polars = pytest.importorskip("polars")
    found = released["pay"].mean()
    assert found.to_polars().equals(polars.from_arrow(found.table))


def test_lazy_frames_are_read() -> None:
    polars = pytest.importorskip("polars")
    lazy = polars.from_arrow(people()).lazy()
    request = dptrees.of(lazy, epsilon=1000).mean("pay", (0, 5_000))
    whole = dptrees.of(people(), epsilon=1000).mean("pay", (0, 5_000))
    assert request.config == whole.config
    assert request.release()["pay"].mean().value == pytest.approx(2_400, abs=20)
    with pytest.raises(dptrees.Error, match=re.escape("'fare'")):
        dptrees.of(lazy, epsilon=1).mean("fare", (0.0, 1.0)).release()
    broken = lazy.with_columns(polars.col("city").cast(polars.Int64).alias("pay"))
    with pytest.raises(dptrees.Error, match=r"^rows: the LazyFrame cannot be collected: rows\.c"):
        dptrees.of(broken, epsilon=1).mean("pay", (0.0, 1.0)).release()


def test_a_cross_table_of_one_column_is_its_count() -> None:
    request = dptrees.of(people(), epsilon=1)
    one = request.by(["sex"], {"sex": SEXES}).count().config
    assert one == request.by("sex", SEXES).count().config
    for lists in ({"sex": SEXES}, {"sex": SEXES, "city": CITIES, "day": ["a"]}):
        with pytest.raises(dptrees.Error, match=r"^by: keys must have a list for each of sex"):
            request.by(["sex", "city"], lists)
