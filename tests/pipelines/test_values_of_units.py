"""One value of each unit: what is released of a configuration or a request, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dptrees
from tests.dpcore.cases import for_each

ROWS = {"column": "fare", "lower": 0, "upper": 300}
SUM = {**ROWS, "per_unit": "sum"}


def rides() -> pa.Table:
    """8,000 rides of 1,000 people in two cities: the sums of fares are 0 to 500."""
    rng = np.random.default_rng(6)
    person = rng.integers(0, 1000, 8000)
    fare = np.round(rng.gamma(1, 20, 8000), 2)
    city = np.where(rng.random(8000) < 0.5, "bonn", "ulm")
    return pa.table({"person": person, "fare": fare, "city": city})


def sums(table: pa.Table, city: str | None = None) -> np.ndarray:
    """The sum of each person, clamped."""
    kept = np.ones(len(table), bool) if city is None else table["city"].to_numpy() == city
    person, fare = (table[name].to_numpy()[kept] for name in ("person", "fare"))
    return np.clip(np.bincount(person, fare)[np.unique(person)], 0, 300)


def config(*trees: dict[str, Any], **privacy: Any) -> dict[str, Any]:
    chosen = {"epsilon": 1000, "neighbors": "add_remove", "unit": "person"} | privacy
    return {"release": "rides", "privacy": chosen, "trees": list(trees)}


def tree(name: str = "spent", **more: Any) -> dict[str, Any]:
    return {"name": name, "domain": SUM, "objective": "mean", **more}


def test_totals_means_and_quantiles_are_of_units() -> None:
    table = rides()
    by = {"column": "city", "keys": ["bonn", "ulm"]}
    median = {"name": "median", "domain": SUM | {"cells": 3000}, "objective": "quantiles"}
    released = dptrees.release(
        table,
        config(tree(), tree("by_city", group_by=by), {**median, "quantiles": [0.5]}, max_keys=2),
    )
    own = sums(table)
    assert released["spent"].mean().value == pytest.approx(own.mean(), abs=0.5)
    assert released["spent"].total().value == pytest.approx(own.sum(), abs=50)
    for city, total in zip(("bonn", "ulm"), released["by_city"].total(), strict=True):
        assert total["value"] == pytest.approx(sums(table, city).sum(), abs=50)
    assert released["median"].median().value == pytest.approx(np.median(own), abs=1)
    assert "all sums of units, counted as [0, 300)" in repr(released["spent"].mean())
    assert "counts each person once, in at most 2 groups: the sum of fare" in repr(released)


def test_noise_does_not_grow_with_the_rows_of_a_unit() -> None:
    def error(domain: dict[str, Any], **privacy: Any) -> float:
        (entry,) = dptrees.plan(config(tree(domain=domain), epsilon=1, **privacy)).to_dicts()
        return float(entry["error"])

    assert error(SUM) == error(SUM, max_rows=1) == error(SUM, max_rows=50)
    assert error(ROWS, max_rows=50) == pytest.approx(50 * error(SUM))


def test_the_guarantee_says_that_values_count_and_not_rows() -> None:
    by = {"column": "city", "keys": ["bonn", "ulm"]}
    texts = {
        "one value of each)": config(tree()),
        "at most 2 values of each)": config(tree(group_by=by), max_keys=2),
        "at most 5 rows of each)": config(
            tree(), {"name": "rows", "domain": ROWS, "objective": "mean"},
            max_rows=5,
        ),
    }  # fmt: skip
    for text, given in texts.items():
        released = dptrees.release(rides(), given)
        assert text in repr(released)
        assert "put together from all its rows" in str(released.manifest["guarantee"])


def test_requests_per_unit() -> None:
    table = rides()
    request = dptrees.of(table, epsilon=1000, unit="person").per("person")
    request = request.total("fare", (0, 300)).median("fare", (0, 300), cells=3000, name="half")
    released = request.count().release()
    assert released["fare"].total().value == pytest.approx(sums(table).sum(), abs=50)
    assert released["half"].median().value == pytest.approx(np.median(sums(table)), abs=1)
    assert released["person"].node("")["estimate"][0] == pytest.approx(len(sums(table)), abs=1)
    rows = dptrees.of(table, epsilon=1000, unit="person").per("person", "rows")
    mean = rows.mean("fare", (0, 50)).release()["fare"].mean().value
    assert mean == pytest.approx(len(table) / len(sums(table)), abs=0.1)
    largest = dptrees.of(table, epsilon=1000, unit="person").per("person", "largest")
    assert largest.mean("fare", (0, 500)).release()["fare"].mean().value > mean


@for_each(
    ("given", "words"),
    [
        (config(tree(), unit="row"), "trees[0].domain.per_unit: needs a privacy unit"),
        (config(tree(domain=SUM | {"upper": "auto"})), "domain.upper: auto chooses bounds for"),
        (config(tree(domain=SUM | {"per_unit": "median"})), "'median' must be one of sum, mean"),
        (config(tree(domain=SUM | {"missing": "last"})), "domain.missing: must be drop"),
        (config(tree(domain=SUM | {"type": "date"})), "per_unit: unknown key"),
        (
            config(tree(), {"name": "rows", "domain": ROWS, "objective": "mean"}),
            "privacy.max_rows: is required if the unit is not the row",
        ),
        (config(tree(), max_rows="auto"), "no tree counts rows of a unit"),
        (
            config({
                "name": "both",
                "domain": {"kind": "table", "columns": [SUM, {"column": "a", "values": [1, 2]}]},
            }, max_rows=1),
            "per_unit: goes with a tree of one column alone",
        ),
    ],
)  # fmt: skip
def test_what_has_no_value_of_units_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(dptrees.Error) as refused:
        dptrees.plan(given)
    assert words in str(refused.value)


def test_a_request_per_another_column_is_refused() -> None:
    request = dptrees.of(rides(), epsilon=1, unit="person")
    with pytest.raises(dptrees.Error, match="per: 'city' is not the privacy unit, person"):
        request.per("city")
    with pytest.raises(dptrees.Error, match="per: 'person' is not the privacy unit, the row"):
        dptrees.of(rides(), epsilon=1).per("person")
    with pytest.raises(dptrees.Error, match="counts rows, not units"):
        request.per("person").distinct("city")
    with pytest.raises(dptrees.Error, match="count: after per"):
        request.per("person").count("city", ["bonn"])
