"""The section of an ordered domain: how its bounds are written, and its defaults."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dptrees.pipelines.kinds.domains import ordered_schema, read_domain
from dptrees.pipelines.sections.document import RuleBroken


def test_values_name_the_first_and_the_last() -> None:
    stars = read_domain({"column": "stars", "values": [1, 5]})
    assert stars == read_domain({"column": "stars", "type": "integer", "lower": 1, "upper": 6})
    assert stars.cells == 5
    month = read_domain({"column": "day", "values": ["2013-02-01", date(2013, 2, 28)]})
    bounds = {"lower": date(2013, 2, 1), "upper": date(2013, 3, 1)}
    assert month == read_domain({"column": "day", **bounds})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"values": [1, 5], "upper": 5}, "replaces lower and upper; leave upper out"),
        ({"values": [1, 2, 3]}, "must be the first and the last value"),
        ({"values": 5}, "must be the first and the last value"),
        ({"values": [0.5, 1]}, "must be two integers or two dates"),
        ({"values": [1, 5], "type": "number"}, "of type number say lower and upper"),
        ({"values": [True, 5]}, "must be two integers or two dates"),
        ({"values": [1, date(2013, 1, 1)]}, "must be two integers or two dates"),
        ({"values": [datetime(2013, 1, 1), datetime(2013, 1, 2)]}, "must be two integers or two"),
    ],
)
def test_other_values_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(RuleBroken, match=words) as caught:
        read_domain({"column": "x", **given})
    assert caught.value.at == ".values"


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
