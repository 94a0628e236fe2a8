"""The section of an ordered domain: how its bounds are written, and its defaults."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from jsonschema import Draft202012Validator

from dptrees.pipelines.kinds.domains import ordered_schema, read_domain
from dptrees.pipelines.sections.document import RuleBroken
from tests.pipelines.refusals import not_refused


def test_values_name_the_first_and_the_last() -> None:
    stars = read_domain({"column": "stars", "values": [1, 5]})
    assert stars == read_domain({"column": "stars", "type": "integer", "lower": 1, "upper": 6})
    assert stars.cells == 5
    month = read_domain({"column": "day", "values": ["2013-02-01", date(2013, 2, 28)]})
    bounds = {"lower": date(2013, 2, 1), "upper": date(2013, 3, 1)}
    assert month == read_domain({"column": "day", **bounds})


def test_other_values_are_refused() -> None:
    days = [datetime(2013, 1, 1), datetime(2013, 1, 2)]
    rows: list[tuple[dict[str, Any], str]] = [
        ({"values": [1, 5], "upper": 5}, ".values: replaces lower and upper; leave upper out"),
        ({"values": [1, 2, 3]}, ".values: ...must be the first and the last value"),
        ({"values": 5}, ".values: ...must be the first and the last value"),
        ({"values": [0.5, 1]}, ".values: ...must be two integers or two dates"),
        ({"values": [1, 5], "type": "number"}, ".values: ...of type number say lower and upper"),
        ({"values": [True, 5]}, ".values: ...must be two integers or two dates"),
        ({"values": [1, date(2013, 1, 1)]}, ".values: ...must be two integers or two dates"),
        ({"values": days}, ".values: ...must be two integers or two"),
    ]
    assert not not_refused(lambda given: read_domain({"column": "x", **given}), rows, RuleBroken)


def test_values_go_with_the_schema() -> None:
    schema = Draft202012Validator(ordered_schema())
    assert schema.is_valid({"column": "stars", "type": "integer", "values": [1, 5]})
    assert schema.is_valid({"column": "stars", "type": "integer", "lower": 1, "upper": 6})
    both = {"column": "stars", "type": "integer", "values": [1, 5], "lower": 1, "upper": 6}
    assert not schema.is_valid(both)


def test_dates_and_times_outside_are_dropped_by_default() -> None:
    """The days of February are requested: the other eleven months are not the 28th."""
    days = {"column": "x", "lower": date(2013, 2, 1), "upper": date(2013, 3, 1)}
    assert read_domain(days).drops_rows and not read_domain(days).clamps
    assert read_domain(days | {"out_of_range": "clamp"}).clamps
    hours = {"column": "x", "lower": datetime(2013, 1, 1), "upper": datetime(2013, 1, 2)}
    assert not read_domain(hours | {"cells": 24}).clamps
    numbers = {"column": "x", "lower": 0, "upper": 8, "cells": 8}
    assert read_domain(numbers).clamps
