"""Which literal values are edges between cells, so that a question that names them is exact."""

from __future__ import annotations

from datetime import date, datetime, timezone

import pytest

from dptrees.dpcore.ordered.dates import DateDomain
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.ordered.integers import IntegerDomain
from tests.dpcore.cases import for_each

WEEKS = DateDomain(column="x", lower=date(2024, 1, 1), upper=date(2024, 12, 30), days_per_cell=7)


def number(lower: float, upper: float, cells: int) -> OrderedDomain:
    spec = IntegerDomain(column="x", lower=0, upper=4).spec()
    return make_domain(spec | {"type": "number", "lower": lower, "upper": upper, "cells": cells})


def timestamps(zone: timezone | None) -> OrderedDomain:
    first, end = datetime(2024, 1, 1, tzinfo=zone), datetime(2024, 1, 2, tzinfo=zone)
    spec = {"type": "timestamp", "lower": first.isoformat(), "upper": end.isoformat(), "cells": 24}
    return make_domain(IntegerDomain(column="x", lower=0, upper=4).spec() | spec)


DOMAINS = {
    "tenths": number(0, 1, 10),
    "numbers": number(-7.5, 1000, 100),
    "integers": IntegerDomain(column="x", lower=-8, upper=40, cells=6),
    "weeks": WEEKS,
    "hours": timestamps(None),
    "instants": timestamps(timezone.utc),
}


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=list(DOMAINS))
def test_edges_are_edges_as_values_and_as_texts(domain: OrderedDomain) -> None:
    cells = domain.cells
    edges = [*domain.lower_edges(0, cells), *domain.upper_edges(cells - 1, cells)]
    texts = [edge.as_py() for edge in edges]
    for place, edge in enumerate(texts):
        for value in (edge, str(edge)):
            assert domain.is_edge(value) and domain.find_boundary(value) == place


@for_each(
    ("name", "value"),
    [
        ("tenths", "0.30001"),
        ("tenths", "-0.1"),
        ("tenths", "1.1"),
        ("tenths", "inf"),
        ("integers", "1"),
        ("integers", "0.5"),
        ("integers", 8.5),
        ("integers", "41"),
        ("integers", "-9"),
        ("weeks", "2024-01-02"),
        ("weeks", "2024-01-08T12:00"),
        ("weeks", datetime(2024, 1, 8, 12)),
        ("weeks", "2025-01-06"),
        ("hours", "2024-01-01 05:00:01"),
        ("instants", "2024-01-01T05:30Z"),
    ],
)
def test_other_values_are_rounded_down(name: str, value: object) -> None:
    assert not DOMAINS[name].is_edge(value)


@for_each(
    ("name", "value"),
    [
        ("tenths", 0.3),
        ("tenths", "1e-1"),
        ("integers", "8.0"),
        ("integers", 8),
        ("weeks", "2024-01-08T00:00"),
        ("weeks", date(2024, 12, 30)),
        ("instants", "2024-01-01T06:00+01:00"),
    ],
)
def test_edges_may_be_written_otherwise(name: str, value: object) -> None:
    assert DOMAINS[name].is_edge(value)


def test_categories_are_edges() -> None:
    spec = IntegerDomain(column="x", lower=0, upper=4).spec()
    sizes = make_domain(
        {"kind": "ordered", "type": "category", "map_version": spec["map_version"]}
        | {"column": "x", "categories": ["S", "M"], "unknown": "drop", "missing": "drop"}
    )
    assert sizes.is_edge("S") and sizes.is_edge("M")
