"""Labels of cells that count values from outside the bounds too say so."""

from __future__ import annotations

from datetime import date, datetime, time

import numpy as np
import pyarrow as pa

from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import make_domain
from tests.dpcore.cases import for_each

CLAMPED = {
    "number": {"column": "x", "lower": 0, "upper": 1, "cells": 4},
    "integer": {"column": "x", "type": "integer", "lower": 1, "upper": 5},
    "date": {"column": "x", "lower": date(2013, 2, 1), "upper": date(2013, 3, 1)},
    "timestamp": {"column": "x", "lower": datetime(2013, 1, 1), "upper": datetime(2013, 1, 2)}
    | {"cells": 24},
    "time": {"column": "x", "type": "time", "lower": time(8), "upper": time(20), "cells": 12},
}
WORDS = {
    "number": ("below 0.25", "0.75 and above"),
    "integer": ("below 2", "4 and above"),
    "date": ("before 2013-02-02", "2013-02-28 and later"),
    "timestamp": ("before 2013-01-01 01:00:00", "2013-01-01 23:00:00 and later"),
    "time": ("before 09:00", "19:00 and later"),
}


def domain(kind: str, **more: object) -> OrderedDomain:
    return make_domain({"type": kind} | CLAMPED[kind] | more)


@for_each("kind", CLAMPED)
def test_the_ends_of_a_clamped_domain_say_so(kind: str) -> None:
    made, dropped = domain(kind, outside="clamp"), domain(kind, outside="drop")
    ends = made.clamped_label(0, 1), made.clamped_label(made.cells - 1, made.cells)
    assert tuple(str(each).replace(".000000", "") for each in ends) == WORDS[kind]
    assert made.clamped_label(1, 2) is None
    assert made.clamped_label(0, made.cells) == "all values"
    assert {dropped.clamped_label(0, 1), dropped.clamped_label(0, made.cells)} == {None}


@for_each("kind", CLAMPED)
def test_ends_of_a_quantile_s_interval_say_so(kind: str) -> None:
    """An end in the first or last cell may be far outside: no number is known for it."""
    made = domain(kind, outside="clamp")
    low, middle, high = made.value_at(np.array([0, 1, made.cells - 1]), np.zeros(3)).to_pylist()
    row = {"value_text": str(middle), "ci_low_text": str(low), "ci_high_text": str(high)}
    (found,) = made.quantiles_in_words([row])
    begins, ends = WORDS[kind]
    assert found["ci_low_in_words"].replace(".000000", "") == begins
    assert found["ci_high_in_words"].replace(".000000", "") == ends
    assert "in_words" not in found
    assert domain(kind, outside="drop").quantiles_in_words([row]) == [row]


@for_each(
    "domain",
    [
        *({"type": kind, "outside": "clamp"} | each for kind, each in CLAMPED.items()),
        {"type": "unit_rows", "column": "x", "most": 9},
        {"type": "duration", "column": "x", "lower": 0, "upper": 90, "unit": "minutes"},
        {"type": "number", "column": "x", "lower": -1e-300, "upper": 1e280, "cells": 7},
    ],
)
def test_the_text_of_every_quantile_is_read(domain: dict[str, object]) -> None:
    made = make_domain(domain)
    cells = np.array([0, made.cells // 2, made.cells - 1])
    for share in (0.0, 0.5, 1.0):
        values = made.value_at(cells, np.full(3, share)).cast(pa.string()).to_pylist()
        first, middle, last = made.clamped_values(values)
        assert first is not None and middle is None and last is not None
    assert made.clamped_values([None]) == [None]


def test_values_and_labels_at_the_ends() -> None:
    made = domain("integer", outside="clamp")
    found = made.clamped_values(["1", "2", "4"])
    assert found == ["below 2", None, "4 and above"]
    categories = make_domain({"column": "x", "type": "category", "categories": ["a", "b"]})
    assert categories.clamped_label(0, 1) is None
