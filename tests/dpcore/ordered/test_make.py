"""Ordered domains: cells against exact arithmetic on the edges, every policy, every refusal."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain, make_domain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.rows.keys import KeyList, make_key_list
from tests.dpcore.cases import for_each

INTEGER_TYPES = [
    getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)
]
NAN, INF = math.nan, math.inf


def number(lower: float = 0.0, upper: float = 1.0, cells: int = 10, **policy: str) -> NumberDomain:
    return NumberDomain(column="x", lower=lower, upper=upper, cells=cells, **policy)


def integer(lower: int, upper: int, cells: int | None = None, **policy: str) -> StepDomain:
    fields = {} if cells is None else {"cells": cells}
    return StepDomain(kind="integer", column="x", lower=lower, upper=upper, **fields, **policy)


def days(lower: date, upper: date, days_per_cell: int = 1, **policy: str) -> StepDomain:
    return StepDomain(
        kind="date", column="x", lower=lower, upper=upper, days_per_cell=days_per_cell, **policy
    )


def times(lower: datetime, upper: datetime, cells: int, **policy: str) -> StepDomain:
    return StepDomain(kind="timestamp", column="x", lower=lower, upper=upper, cells=cells, **policy)


def categories(*values: str | int, **policy: str) -> CategoryDomain:
    return CategoryDomain(column="x", categories=values, **policy)


YEAR = days(date(2013, 1, 1), date(2014, 1, 1))
DAY = times(datetime(2013, 1, 1), datetime(2013, 1, 2), 24)
DAY_UTC = times(
    datetime(2013, 1, 1, tzinfo=timezone.utc), datetime(2013, 1, 2, tzinfo=timezone.utc), 24
)
EVERY_KIND: list[OrderedDomain] = [
    number(-60, 600, 660),
    number(0.1, 0.9, 2**18),
    integer(-5, 120),
    integer(0, 120, 12),
    YEAR,
    days(date(1969, 12, 1), date(1970, 1, 12), 7),
    DAY,
    DAY_UTC,
    categories("S", "M", "L"),
    categories(7, -3, 10**12),
    CategoryDomain(column="x", categories=("b", "a"), ordered=False),
]


def all_edges(domain: NumberDomain) -> np.ndarray:
    last = domain.upper_edges(domain.cells - 1, domain.cells)
    return pa.concat_arrays([domain.lower_edges(0, domain.cells), last]).to_numpy()


def searched(edges: np.ndarray, values: np.ndarray, missing: int = -1) -> np.ndarray:
    """The cells under "clamp", straight from the definition."""
    cells = np.clip(np.searchsorted(edges, values, "right") - 1, 0, len(edges) - 2)
    return np.where(np.isnan(values), missing, cells)


def find_cells(domain: OrderedDomain, values: list, type: pa.DataType | None = None) -> list[int]:
    return domain.cell_ids(pa.array(values, type)).tolist()


@st.composite
def number_domains(draw: st.DrawFn, largest: int = 3000) -> NumberDomain:
    """Bounds as people write them and any floats; many cells, few cells, cells of a few floats."""
    cells = draw(st.integers(1, largest))
    lower = draw(
        st.integers(-1000, 1000).map(float)
        | st.integers(-(10**6), 10**6).map(lambda n: n / 1000)
        | st.floats(-1e9, 1e9)
    )
    width = draw(
        st.integers(1, 5000).map(float)
        | st.integers(1, 10**6).map(lambda n: n / 1000)
        | st.floats(1e-3, 1e12)
        | st.just(4 * cells * math.ulp(lower))
    )
    upper = lower + width
    try:
        return number(lower, upper, cells)
    except ValueError:
        return number(lower, lower + max(1.0, abs(lower)), cells)


class TestNumberEdges:
    @given(number_domains())
    @settings(max_examples=150, deadline=None)
    def test_each_edge_begins_its_cell(self, domain: NumberDomain) -> None:
        edges = all_edges(domain)
        assert np.all(np.diff(edges) > 0)
        assert (edges[0], edges[-1]) == (domain.lower, domain.upper)
        index = np.arange(domain.cells)
        inner = edges[:-1]
        assert np.array_equal(domain.cell_ids(pa.array(inner)), index)
        above = np.minimum(np.nextafter(inner, INF), np.nextafter(edges[1:], -INF))
        assert np.array_equal(domain.cell_ids(pa.array(above)), index)
        below = np.nextafter(edges[1:], -INF)
        assert np.array_equal(domain.cell_ids(pa.array(below)), index)

    def test_the_plain_formula_would_fail_here(self) -> None:
        edges = all_edges(number(0.1, 0.9, 1000))[:-1]
        plain = np.floor((edges - 0.1) * 1000 / (0.9 - 0.1))
        assert not np.array_equal(plain, np.arange(1000))

    @given(number_domains(largest=2**40))
    @settings(max_examples=100, deadline=None)
    def test_edges_are_the_nearest_floats_to_the_decimals(self, domain: NumberDomain) -> None:
        lower, upper = Fraction(repr(domain.lower)), Fraction(repr(domain.upper))
        for start in {0, domain.cells // 3, domain.cells - 1}:
            edge = domain.lower_edges(start, start + 1)[0].as_py()
            exact = lower + (upper - lower) * start / domain.cells
            largest = max(abs(edge), 2.0**-10 * abs(domain.lower))
            assert abs(Fraction(edge) - exact) <= Fraction(math.ulp(largest)) * Fraction(501, 1000)

    @for_each("cells", [10, 100, 1000, 10**6])
    def test_decimal_edges_are_those_people_write(self, cells: int) -> None:
        index = np.unique(np.linspace(0, cells - 1, 1000).astype(np.int64))
        domain = number(0, 1, cells)
        for start in index[::7].tolist():
            assert domain.lower_edges(start, start + 1)[0].as_py() == start / cells

    def test_no_table_and_table_agree(self) -> None:
        small, large = number(0.1, 0.7, 2**16), number(0.1, 0.7, 2**30)
        assert small.lower_edges(5, 9) == pa.array(
            [large.lower_edges(i * 2**14, i * 2**14 + 1)[0].as_py() for i in range(5, 9)]
        )


class TestNumberCells:
    @given(number_domains(), st.integers(0, 2**32))
    @settings(max_examples=100, deadline=None)
    def test_cells_are_those_of_a_search_in_the_edges(
        self, domain: NumberDomain, seed: int
    ) -> None:
        generator = np.random.default_rng(seed)
        edges = all_edges(domain)
        width = domain.upper - domain.lower
        values = np.concatenate(
            [
                generator.uniform(domain.lower - width, domain.upper + width, 300),
                generator.choice(edges, 100),
                np.nextafter(generator.choice(edges, 100), -INF),
                [NAN, INF, -INF, -0.0, 0.0, 5e-324, -5e-324, 1.7e308, -1.7e308],
            ]
        )
        assert np.array_equal(domain.cell_ids(pa.array(values)), searched(edges, values))

    @pytest.mark.parametrize("cells", [2**17, 2**17 + 1, 10**6])
    @pytest.mark.parametrize("bounds", [(0.0, 1.0), (0.1, 0.9), (-3e8, 1e-3), (1e6, 1e6 + 1)])
    def test_large_domains_compute_the_edges_in_doubt(
        self, cells: int, bounds: tuple[float, float]
    ) -> None:
        domain = number(*bounds, cells)
        edges = all_edges(domain)
        values = np.concatenate(
            [edges, np.nextafter(edges, -INF), np.nextafter(edges, INF), [NAN, INF, -INF]]
        )
        assert np.array_equal(domain.cell_ids(pa.array(values)), searched(edges, values))

    @pytest.mark.parametrize("cells", [2**30, 2**40])
    def test_very_large_domains_agree_with_their_edges(self, cells: int) -> None:
        domain = number(-60, 600, cells)
        index = np.random.default_rng(1).integers(0, cells, 500)
        edges = np.array([domain.lower_edges(i, i + 1)[0].as_py() for i in index.tolist()])
        assert np.array_equal(domain.cell_ids(pa.array(edges)), index)
        below = domain.cell_ids(pa.array(np.nextafter(edges, -INF)))
        assert np.array_equal(below, np.maximum(index - 1, 0))

    def test_cells_of_a_single_float(self) -> None:
        domain = number(1.0, 1.0 + 8 * math.ulp(1.0), 8, outside="drop")
        values = 1.0 + np.arange(-1, 9) * math.ulp(1.0)
        found = domain.cell_ids(pa.array([*values, NAN, 0.5, INF]))
        assert found.tolist() == [-1, *range(8), -1, -1, -1, -1]

    @for_each(
        ("outside", "missing", "expected"),
        [
            ("clamp", "drop", [0, 0, 0, 9, 9, 9, -1, -1]),
            ("clamp", "first", [0, 0, 0, 9, 9, 9, 0, 0]),
            ("clamp", "last", [0, 0, 0, 9, 9, 9, 9, 9]),
            ("drop", "drop", [-1, -1, 0, 9, -1, -1, -1, -1]),
            ("drop", "first", [-1, -1, 0, 9, -1, -1, 0, 0]),
            ("drop", "last", [-1, -1, 0, 9, -1, -1, 9, 9]),
        ],
    )
    @for_each("cells", [10, 10 * 2**17])
    def test_policies(self, outside: str, missing: str, expected: list[int], cells: int) -> None:
        domain = number(0, 1, cells, outside=outside, missing=missing)
        below_one = math.nextafter(1.0, 0.0)
        found = find_cells(domain, [-INF, -1e-300, -0.0, below_one, 1.0, INF, None, NAN])
        last = {9: cells - 1}
        assert found == [last.get(cell, cell) for cell in expected]
        assert domain.drops_rows == (-1 in expected)

    @for_each("type", INTEGER_TYPES)
    def test_integer_columns(self, type: pa.DataType) -> None:
        domain = number(-3.5, 100.25, 83)
        info = np.iinfo(str(type))
        values = [int(info.min), int(info.max), 0, 1, 57, 99, 100, 101]
        expected = searched(all_edges(domain), np.array(values, np.float64)).tolist()
        assert find_cells(domain, [*values, None], type) == [*expected, -1]

    @pytest.mark.parametrize("type", [pa.int64(), pa.uint64()], ids=str)
    def test_integers_past_the_floats_are_not_rounded_over_an_edge(self, type: pa.DataType) -> None:
        top = 2**63 if type == pa.int64() else 2**64
        domain = number(float(top // 2), float(top), 4096)
        edges = [int(edge) for edge in all_edges(domain)]
        values = [edge + step for edge in edges[1:-1] for step in (-1, 0, 1)] + [top - 1]
        expected = [i + (step >= 0) for i in range(4095) for step in (-1, 0, 1)] + [4095]
        assert find_cells(domain, values, type) == expected
        plain = domain.cell_ids(pa.array(np.array(values).astype(np.float64)))
        assert plain.tolist() != expected

    def test_negative_integers_past_the_floats(self) -> None:
        domain = number(-(2.0**63), -(2.0**62), 1024)
        values = [-(2**63), -(2**63) + 2**52 - 1, -(2**63) + 2**52, -(2**62) - 1]
        assert find_cells(domain, values, pa.int64()) == [0, 0, 1, 1023]

    @for_each("type", [pa.float16(), pa.float32(), pa.float64()])
    def test_float_columns(self, type: pa.DataType) -> None:
        domain = number(-1, 1, 97)
        values = np.random.default_rng(2).normal(0, 1, 500).astype(f"float{type.bit_width}")
        values[:3] = NAN, INF, -INF
        expected = searched(all_edges(domain), values.astype(np.float64))
        assert np.array_equal(domain.cell_ids(pa.array(values, type)), expected)

    @for_each(
        "type",
        [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(20, 2), pa.decimal256(60, 2)],
    )
    def test_decimals_lie_in_the_cell_they_name(self, type: pa.DataType) -> None:
        domain = number(0, 10, 1000)
        values = [Decimal(i).scaleb(-2) for i in range(1000)]
        column = pa.array([*values, None, Decimal("-7.5"), Decimal("99999.99")], type)
        assert domain.cell_ids(column).tolist() == [*range(1000), -1, 0, 999]
        assert domain.cell_ids(column[3:7]).tolist() == [3, 4, 5, 6]

    def test_decimals_are_rounded_to_the_nearest_float(self) -> None:
        domain = number(0, 0.001, 1000)
        column = pa.array([Decimal(i).scaleb(-6) for i in range(1000)], pa.decimal128(20, 6))
        assert domain.cell_ids(column).tolist() == list(range(1000))
        by_arrow = domain.cell_ids(column.cast(pa.float64()))
        assert by_arrow.tolist() != list(range(1000))

    def test_wide_decimals(self) -> None:
        domain = number(0, 1, 10)
        texts = ["0.2999999999999999", "0.3", "0.30000000000000000000001", "0.7", "0.1"]
        column = pa.array([Decimal(text) for text in texts], pa.decimal128(38, 30))
        assert domain.cell_ids(column).tolist() == [2, 3, 3, 7, 1]
        large = pa.array([Decimal(2**70), None, Decimal(-(2**53) - 1)], pa.decimal128(38, 0))
        whole = number(-(2.0**71), 2.0**71, 4)
        assert whole.cell_ids(large).tolist() == [3, -1, 1]
        assert whole.cell_ids(large[:1]).tolist() == [3]

    def test_blocks_join_seamlessly(self) -> None:
        values = np.random.default_rng(3).uniform(-1, 2, 3 * 8192 + 17)
        values[8192] = values[16_383] = NAN
        domain = number(0, 1, 77)
        assert np.array_equal(
            domain.cell_ids(pa.array(values)), searched(all_edges(domain), values)
        )


class TestColumnShapes:
    """Slices, offsets, chunks and dictionaries read the same rows as a plain array."""

    VALUES = (0.05, None, 0.15, 0.95, None, NAN, 0.31, 2.0, -1.0, 0.5, 0.61, None)

    @for_each("start", range(12))
    def test_slices_with_nulls(self, start: int) -> None:
        domain = number(missing="last")
        whole = find_cells(domain, list(self.VALUES))
        column = pa.array([None, *self.VALUES, 0.5])[1:13]
        for length in range(12 - start):
            rows = slice(start, start + length)
            assert domain.cell_ids(column[rows]).tolist() == whole[rows]

    def test_long_slices_with_nulls(self) -> None:
        domain = integer(0, 50, missing="last")
        values = np.random.default_rng(4).integers(0, 50, 2000)
        nulls = np.random.default_rng(5).random(2000) < 0.1
        column = pa.array(values, mask=nulls)
        expected = np.where(nulls, 49, values)
        for start in (0, 1, 7, 8, 9, 63, 64, 65, 1023):
            assert np.array_equal(domain.cell_ids(column[start:]), expected[start:])

    def test_chunks(self) -> None:
        domain = number()
        column = pa.chunked_array([list(self.VALUES[:5]), [], list(self.VALUES[5:])])
        assert domain.cell_ids(column).tolist() == find_cells(domain, list(self.VALUES))
        nothing = domain.cell_ids(pa.chunked_array([], pa.float64()))
        assert nothing.shape == (0,) and nothing.dtype == np.int64

    @for_each("domain", EVERY_KIND)
    def test_empty_and_all_null_columns(self, domain: OrderedDomain) -> None:
        assert domain.cell_ids(pa.array([], domain.value_type)).shape == (0,)
        assert domain.cell_ids(pa.nulls(3)).tolist() == [-1, -1, -1]
        assert domain.cell_ids(pa.nulls(3, domain.value_type)).tolist() == [-1, -1, -1]

    @for_each("domain", EVERY_KIND)
    def test_dictionaries(self, domain: OrderedDomain) -> None:
        plain = pa.concat_arrays(
            [domain.lower_edges(0, min(domain.cells, 20)), pa.nulls(2, domain.value_type)]
        )
        rows = plain.take(pa.array(np.random.default_rng(6).integers(0, len(plain), 300)))
        expected = domain.cell_ids(rows)
        encoded = rows.dictionary_encode()
        assert expected.min() == -1 and expected.max() > 0
        assert np.array_equal(domain.cell_ids(encoded), expected)
        assert np.array_equal(domain.cell_ids(encoded[7:11]), expected[7:11])
        chunks = pa.chunked_array([encoded[:100], rows[100:].dictionary_encode()])
        assert np.array_equal(domain.cell_ids(chunks), expected)

    def test_null_inside_a_dictionary(self) -> None:
        column = pa.DictionaryArray.from_arrays(
            pa.array([0, 1, None, 1, 0], pa.int8()), pa.array(["b", None])
        )
        domain = categories("a", "b", missing="first")
        assert domain.cell_ids(column).tolist() == [1, 0, 0, 0, 1]

    def test_the_result_is_fresh_and_writable(self) -> None:
        values = np.arange(5)
        found = integer(0, 5).cell_ids(pa.array(values))
        found[:] = 9
        assert values.tolist() == [0, 1, 2, 3, 4]


class TestIntegerDomain:
    @given(st.data())
    @settings(max_examples=150, deadline=None)
    def test_cells_follow_exact_integers(self, data: st.DataObject) -> None:
        cells = data.draw(st.integers(1, 1000))
        width = data.draw(st.integers(1, 2**50))
        lower = data.draw(st.integers(-(2**61), 2**61 - cells * width))
        outside = data.draw(st.sampled_from(["clamp", "drop"]))
        domain = integer(lower, lower + cells * width, cells, outside=outside)
        values = [lower, lower - 1, lower + width - 1, lower + width, lower + cells * width]
        values += [lower + cells * width - 1, -(2**63), 2**63 - 1, 0]
        values += data.draw(st.lists(st.integers(-(2**63), 2**63 - 1)))
        raw = [(value - lower) // width for value in values]
        if outside == "clamp":
            expected = [min(max(cell, 0), cells - 1) for cell in raw]
        else:
            expected = [cell if 0 <= cell < cells else -1 for cell in raw]
        assert find_cells(domain, values, pa.int64()) == expected

    @for_each("type", INTEGER_TYPES)
    @for_each("bounds", [(10, 90), (-(2**61), 2**61), (-300, 70_000)])
    def test_every_integer_type(self, type: pa.DataType, bounds: tuple[int, int]) -> None:
        lower, upper = bounds
        domain = integer(lower, upper, 4, outside="drop")
        info = np.iinfo(str(type))
        values = [int(info.min), int(info.max), 0, 9, 10, 29, 30, 89, 90, 127]
        width = (upper - lower) // 4
        expected = [(v - lower) // width if lower <= v < upper else -1 for v in values]
        assert find_cells(domain, [*values, None], type) == [*expected, -1]

    def test_uint64_past_int64(self) -> None:
        values = [2**63, 2**63 + 5, 2**64 - 1, 3]
        assert find_cells(integer(0, 10), values, pa.uint64()) == [9, 9, 9, 3]
        assert find_cells(integer(-10, -1), values, pa.uint64()) == [8, 8, 8, 8]
        assert find_cells(integer(0, 10, outside="drop"), values, pa.uint64()) == [-1, -1, -1, 3]

    def test_fractions_are_missing(self) -> None:
        values = [-0.5, 0.99, 1.0, 9.999, 10.0, NAN, None, INF, -INF, 1e300]
        assert find_cells(integer(0, 10, outside="drop"), values) == [-1, -1, 1] + [-1] * 7
        clamped = integer(0, 10, missing="first")
        assert find_cells(clamped, values) == [0, 0, 1, 0, 9, 0, 0, 9, 0, 9]
        assert find_cells(clamped, [1.5, NAN, 2.0], pa.float16()) == [0, 0, 2]

    def test_one_cell_per_integer_is_the_default(self) -> None:
        assert integer(-5, 120) == integer(-5, 120, 125)


class TestDates:
    @for_each("unit", ["s", "ms", "us", "ns"])
    @for_each("zone", [None, "UTC"])
    def test_the_day_of_a_timestamp(self, unit: str, zone: str | None) -> None:
        start = days(date(1969, 12, 30), date(1970, 1, 3), outside="drop")
        moments = [datetime(1969, 12, 31, 23, 59, 59) + timedelta(days=d) for d in range(-3, 4)]
        column = pa.array(moments, pa.timestamp(unit)).cast(pa.timestamp(unit, zone))
        assert start.cell_ids(column).tolist() == [-1, -1, 0, 1, 2, 3, -1]

    @pytest.mark.parametrize("type", [pa.date32(), pa.date64()], ids=str)
    def test_dates(self, type: pa.DataType) -> None:
        weeks = days(date(2012, 12, 31), date(2014, 1, 6), 7)
        values = [date(2012, 12, 30) + timedelta(days=d) for d in range(400)]
        expected = [min(max((d - 1) // 7, 0), 52) for d in range(400)]
        assert find_cells(weeks, [*values, None], type) == [*expected, -1]
        assert weeks.labels(0, 1)[0].as_py() == "[2012-12-31, 2013-01-07)"
        assert weeks.upper_edges(52, 53) == pa.array([date(2014, 1, 6)])

    @for_each("unit", ["s", "ms", "us", "ns"])
    def test_timestamps_of_every_unit(self, unit: str) -> None:
        seconds = np.random.default_rng(7).integers(-90_000, 180_000, 500)
        base = datetime(2013, 1, 1)
        moments = [base + timedelta(seconds=int(s)) for s in seconds]
        expected = np.clip(seconds // 3600, 0, 23)
        column = pa.array(moments, pa.timestamp(unit))
        assert np.array_equal(DAY.cell_ids(column), expected)
        assert np.array_equal(DAY_UTC.cell_ids(column.cast(pa.timestamp(unit, "UTC"))), expected)

    @for_each("unit", ["s", "ms", "us", "ns"])
    def test_extreme_timestamps_do_not_wrap(self, unit: str) -> None:
        column = pa.array([-(2**63), 2**63 - 1], pa.int64()).cast(pa.timestamp(unit))
        assert DAY.cell_ids(column).tolist() == [0, 23]
        dropping = times(DAY.lower, DAY.upper, 24, outside="drop")
        assert dropping.cell_ids(column).tolist() == [-1, -1]

    def test_instants_are_compared_whatever_the_zone(self) -> None:
        instant = datetime(2013, 1, 1, 5, tzinfo=timezone.utc)
        column = pa.array([instant], pa.timestamp("us", "America/New_York"))
        assert DAY_UTC.cell_ids(column).tolist() == [5]
        bounds = [
            bound.astimezone(timezone(timedelta(hours=2)))
            for bound in (DAY_UTC.lower, DAY_UTC.upper)
        ]
        assert times(bounds[0], bounds[1], 24) == DAY_UTC

    def test_dates_are_midnights(self) -> None:
        found = find_cells(DAY, [date(2012, 12, 31), date(2013, 1, 1), date(2013, 1, 2)])
        assert found == [0, 0, 23]

    def test_below_a_microsecond(self) -> None:
        column = pa.array([-1, 0, 999, 1000], pa.int64()).cast(pa.timestamp("ns"))
        epoch = datetime(1970, 1, 1)
        fine = times(epoch - timedelta(microseconds=2), epoch + timedelta(microseconds=2), 4)
        assert fine.cell_ids(column).tolist() == [1, 2, 2, 3]


class TestCategories:
    @for_each(
        "type",
        [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    )
    def test_texts(self, type: pa.DataType) -> None:
        sizes = categories("S", "M", "L", "", "é")
        column = pa.array(["M", "", "é", "m", None, "S"]).cast(type)
        assert sizes.cell_ids(column).tolist() == [1, 3, 4, -1, -1, 0]
        assert sizes.cell_ids(column[2:]).tolist() == [4, -1, -1, 0]

    @for_each("unknown", ["drop", "first", "last"])
    @for_each("missing", ["drop", "first", "last"])
    def test_policies(self, unknown: str, missing: str) -> None:
        cell = {"drop": -1, "first": 0, "last": 2}
        texts = categories("a", "b", "c", unknown=unknown, missing=missing)
        numbers = categories(5, 1, -7, unknown=unknown, missing=missing)
        expected = [1, cell[unknown], cell[missing]]
        assert find_cells(texts, ["b", "z", None]) == expected
        assert find_cells(numbers, [1, 2, None]) == expected
        assert texts.drops_rows == ("drop" in (unknown, missing))

    @for_each("type", INTEGER_TYPES)
    @for_each("listed", [(3, -1, 100, 2**40, -(2**63), 2**63 - 1), (100, 3, 0, -1)])
    def test_integers(self, type: pa.DataType, listed: tuple[int, ...]) -> None:
        info = np.iinfo(str(type))
        values = [0, 3, 100, 4, int(info.min), int(info.max)]
        expected = [listed.index(v) if v in listed else -1 for v in values]
        assert find_cells(categories(*listed), [*values, None], type) == [*expected, -1]

    def test_uint64_past_int64_is_unknown(self) -> None:
        domain = categories(2**63 - 1, 0)
        assert find_cells(domain, [2**63, 2**64 - 1, 2**63 - 1], pa.uint64()) == [-1, -1, 0]

    def test_a_categorys_edges_and_quantiles_are_the_category(self) -> None:
        sizes = categories("S", "M", "L")
        assert sizes.lower_edges(1, 3).to_pylist() == ["M", "L"]
        assert sizes.upper_edges(1, 3).to_pylist() == ["M", "L"]
        found = sizes.value_at(np.array([2, 0]), np.array([0.1, 1.0]))
        assert found.to_pylist() == ["L", "S"]
        assert categories(7, -3).labels(0, 2).to_pylist() == ["7", "-3"]


class TestKeyList:
    @for_each("size", [3, 4096, 4097, 20_000])
    @for_each("make", [str, int, lambda i: i * 10**10])
    @for_each("unknown", ["drop", "other"])
    def test_codes_are_positions(
        self, size: int, make: Callable[[int], str | int], unknown: str
    ) -> None:
        generator = np.random.default_rng(8)
        keys = tuple(make(int(i)) for i in generator.permutation(size))
        listed = KeyList(column="x", keys=keys, unknown=unknown)
        index = generator.integers(0, size, 500)
        rows = [keys[i] for i in index] + [make(size + 5), None]
        other = size if unknown == "other" else -1
        expected = [*index.tolist(), other, other]
        assert listed.codes(pa.array(rows)).tolist() == expected
        assert listed.codes(pa.array(rows).dictionary_encode()).tolist() == expected
        assert listed.codes(pa.chunked_array([rows[:7], rows[7:]])).tolist() == expected
        assert listed.codes(pa.array(rows)[490:]).tolist() == expected[490:]
        assert listed.size == size + (unknown == "other") == len(listed.labels)

    def test_labels_and_literals(self) -> None:
        listed = KeyList(column="x", keys=(10, -2), unknown="other")
        assert listed.labels == ("10", "-2", "other")
        assert [listed.find_code(value) for value in (10, "-2", "other")] == [0, 1, 2]
        assert (listed.value_type, KeyList(column="x", keys=("a",)).value_type) == (
            pa.int64(), pa.string(),
        )  # fmt: skip
        assert not listed.drops_rows and KeyList(column="x", keys=("a",)).drops_rows
        with pytest.raises(ValueError, match="'x': 3 is not a listed key"):
            listed.find_code(3)

    def test_all_null_column(self) -> None:
        assert KeyList(column="x", keys=("a",)).codes(pa.nulls(2)).tolist() == [-1, -1]

    @for_each(
        ("fields", "message"),
        [
            ({"keys": ()}, "keys must be a list of at least one value"),
            ({"keys": ["a"]}, "keys must be a list"),
            ({"keys": ("a", 1)}, "keys must be all texts or all whole numbers"),
            ({"keys": (True, False)}, "all texts or all whole numbers"),
            ({"keys": ("a", "b", "a")}, "keys hold 'a' more than once"),
            ({"keys": (2**63,)}, "valid Unicode texts or 64-bit signed integers"),
            ({"keys": ("\ud800",)}, "valid Unicode texts"),
            (
                {"keys": ("other",), "unknown": "other"},
                "keys must not hold 'other' when unknown is",
            ),
            ({"keys": ("a",), "unknown": "first"}, "unknown 'first' must be one of drop, other"),
            ({"keys": ("a",), "column": ""}, "column '' must be a text"),
            ({"keys": tuple(range(1_000_001))}, "keys must be at most 1000000, not 1000001"),
        ],
    )
    def test_refusals(self, fields: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            KeyList(**{"column": "x", **fields})

    def test_column_types(self) -> None:
        texts, numbers = KeyList(column="x", keys=("a",)), KeyList(column="x", keys=(1,))
        with pytest.raises(
            ValueError, match="column 'x' has type int64, but these keys need a col"
        ):
            texts.codes(pa.array([1]))
        with pytest.raises(
            ValueError, match="has type string, but these keys need a column of int"
        ):
            numbers.check_type(pa.string())
        texts.check_type(pa.dictionary(pa.int32(), pa.large_string()))
        numbers.check_type(pa.uint8())


class TestLabelsAndEdges:
    @for_each(
        ("domain", "expected"),
        [
            (number(0, 1, 10), ["[0, 0.1)", "[0.1, 0.2)", "[0.2, 0.3)", "[0.3, 0.4)"]),
            (number(-60, 600, 660), ["[-60, -59)", "[-59, -58)", "[-58, -57)", "[-57, -56)"]),
            (integer(-2, 3), ["-2", "-1", "0", "1"]),
            (integer(0, 120, 12), ["[0, 10)", "[10, 20)", "[20, 30)", "[30, 40)"]),
            (YEAR, ["2013-01-01", "2013-01-02", "2013-01-03", "2013-01-04"]),
        ],
    )
    def test_labels(self, domain: OrderedDomain, expected: list[str]) -> None:
        assert domain.labels(0, 4).to_pylist() == expected
        assert domain.labels(1, 3).to_pylist() == expected[1:3]
        assert domain.labels(2, 2).to_pylist() == []

    def test_labels_of_runs(self) -> None:
        start, stop = np.array([0, 3, 5]), np.array([5, 4, 7])
        expected = {
            number(0, 1, 10): ["[0, 0.5)", "[0.3, 0.4)", "[0.5, 0.7)"],
            integer(-2, 8): ["[-2, 3)", "1", "[3, 5)"],
            integer(0, 120, 12): ["[0, 50)", "[30, 40)", "[50, 70)"],
            YEAR: ["[2013-01-01, 2013-01-06)", "2013-01-04", "[2013-01-06, 2013-01-08)"],
            categories(*"abcdefg"): ["a..e", "d", "f..g"],
        }
        for domain, labels in expected.items():
            assert domain.range_labels(start, stop).to_pylist() == labels
            assert domain.range_labels(start[:0], stop[:0]).to_pylist() == []
            for runs in ((stop, start), (start - 1, stop), (start, stop + domain.cells)):
                with pytest.raises(ValueError, match="every run must satisfy 0 <= start < stop"):
                    domain.range_labels(*runs)
        with pytest.raises(ValueError, match="two arrays of one length"):
            YEAR.range_labels(start, stop[:2])

    def test_timestamp_labels(self) -> None:
        assert DAY.labels(0, 1)[0].as_py() == "[2013-01-01 00:00:00, 2013-01-01 01:00:00)"
        assert DAY_UTC.labels(23, 24)[0].as_py() == "[2013-01-01 23:00:00Z, 2013-01-02 00:00:00Z)"
        epoch = datetime(1970, 1, 1)
        fine = times(epoch, epoch + timedelta(microseconds=4), 2)
        assert fine.labels(0, 1)[0].as_py() == (
            "[1970-01-01 00:00:00.000000, 1970-01-01 00:00:00.000002)"
        )

    @for_each("domain", EVERY_KIND)
    def test_edges_and_labels_have_their_types_and_meet(self, domain: OrderedDomain) -> None:
        stop = min(domain.cells, 50)
        lower, upper = domain.lower_edges(0, stop), domain.upper_edges(0, stop)
        assert lower.type == upper.type == domain.value_type
        assert domain.labels(0, stop).type == pa.string()
        if domain.kind != "category":
            assert lower[1:] == upper[:-1]
        every = domain.lower_edges(0, domain.cells)
        assert np.array_equal(domain.cell_ids(every), np.arange(domain.cells))
        for start, end in ((-1, 2), (2, 1), (0, domain.cells + 1)):
            with pytest.raises(ValueError, match="must satisfy 0 <= start <= stop <="):
                domain.labels(start, end)
            with pytest.raises(ValueError, match="must satisfy"):
                domain.upper_edges(start, end)


class TestValueAt:
    @for_each("domain", EVERY_KIND)
    def test_values_lie_in_their_cells(self, domain: OrderedDomain) -> None:
        generator = np.random.default_rng(9)
        cell = generator.integers(0, domain.cells, 500)
        share = generator.choice([0.0, 1.0, 0.5, 5e-324, math.nextafter(1.0, 0.0)], 500)
        values = domain.value_at(cell, share)
        assert values.type == domain.value_type
        assert np.array_equal(domain.cell_ids(values), cell)

    @for_each("domain", [domain for domain in EVERY_KIND if domain.kind != "category"])
    def test_monotone(self, domain: OrderedDomain) -> None:
        cells = min(domain.cells, 100)
        cell = np.repeat(np.arange(cells), 21)
        share = np.tile(np.linspace(0, 1, 21), cells)
        values = domain.value_at(cell, share).to_numpy(zero_copy_only=False)
        assert np.all(values[1:] >= values[:-1])

    def test_interpolation(self) -> None:
        half = np.array([0.5])
        assert number(0, 10, 5).value_at(np.array([2]), half).to_pylist() == [5.0]
        assert integer(0, 10).value_at(np.array([2]), half).to_pylist() == [2]
        assert integer(0, 25, 5).value_at(np.array([2]), half).to_pylist() == [12]
        assert DAY.value_at(np.array([2]), half).to_pylist() == [datetime(2013, 1, 1, 2, 30)]
        assert YEAR.value_at(np.array([31]), half).to_pylist() == [date(2013, 2, 1)]

    def test_the_widest_cells_keep_their_values(self) -> None:
        wide = integer(-(2**61), 2**61, 2)
        values = wide.value_at(np.array([0, 0, 1, 1]), np.array([0.0, 1.0, 0.0, 1.0]))
        assert wide.cell_ids(values).tolist() == [0, 0, 1, 1]
        whole = integer(-(2**61), 2**61, 1)
        assert whole.value_at(np.array([0]), np.array([1.0]))[0].as_py() < 2**61

    @for_each(
        ("cell", "share", "message"),
        [
            ([10], [0.5], r"cell must lie in 0\.\.9"),
            ([-1], [0.5], r"cell must lie in 0\.\.9"),
            ([0], [1.5], r"share must lie in \[0, 1\]"),
            ([0], [NAN], r"share must lie in \[0, 1\]"),
            ([0, 1], [0.5], "two arrays of one length"),
        ],
    )
    def test_refusals(self, cell: list[int], share: list[float], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            number().value_at(np.array(cell), np.array(share))


class TestLiterals:
    @for_each("domain", EVERY_KIND)
    def test_edges_are_boundaries(self, domain: OrderedDomain) -> None:
        for cell in {0, domain.cells // 2, domain.cells - 1}:
            edge = domain.lower_edges(cell, cell + 1)[0].as_py()
            assert domain.find_cell(edge) == domain.find_boundary(edge) == cell
            assert domain.find_cell(str(edge)) == cell

    def test_boundaries_count_the_cells_wholly_below(self) -> None:
        tenths = number(0, 1, 10)
        assert [tenths.find_boundary(v) for v in (-5, 0, 0.3, 0.35, "0.4", 1, INF, -INF)] == [
            0, 0, 3, 3, 4, 10, 10, 0,
        ]  # fmt: skip
        tens = integer(0, 120, 12)
        assert [tens.find_boundary(v) for v in (-1, 0, 9, 10, 10.5, "120", 10**30)] == [
            0, 0, 0, 1, 1, 12, 12,
        ]  # fmt: skip
        assert YEAR.find_boundary("2012-01-01") == 0 and YEAR.find_boundary("2014-01-01") == 365
        assert DAY.find_boundary(date(2013, 1, 2)) == 24
        assert DAY_UTC.find_boundary("2013-01-01T05:30:00Z") == 5
        assert DAY_UTC.find_boundary("2013-01-01T05:30:00+02:00") == 3

    def test_a_literal_integer_past_the_floats_is_not_rounded_up(self) -> None:
        domain = number(2.0**62, 2.0**63, 1024)
        edge = int(domain.lower_edges(7, 8)[0].as_py())
        assert (domain.find_cell(edge), domain.find_cell(edge - 1)) == (7, 6)
        assert domain.find_boundary(10**400) == 1024 and domain.find_boundary(-(10**400)) == 0

    @for_each(
        ("domain", "value", "message"),
        [
            (number(), 1.0, r"'x': 1.0 is not in \[0.0, 1.0\)"),
            (number(), -1, r"-1 is not in"),
            (number(), NAN, "nan must be a number"),
            (number(), "abc", "'abc' must be a number"),
            (number(), None, "None must be a number"),
            (number(), True, "True must be a number"),
            (integer(0, 5), 5, r"'x': 5 is not in \[0, 5\)"),
            (integer(0, 5), INF, "inf must be a finite number"),
            (integer(0, 5), "x1", "'x1' must be a number"),
            (YEAR, date(2014, 1, 1), r"2014-01-01 is not in \[2013-01-01, 2014-01-01\)"),
            (YEAR, "soon", "'soon' must be a date"),
            (YEAR, "2013-01-01T05:00+05:00", "must be a date"),
            (DAY, "2013-01-01T00:00Z", "must be a date and time without a time zone"),
            (DAY_UTC, datetime(2013, 1, 1), "must be a date and time with a time zone"),
            (categories("a", "b"), "c", "'x': 'c' is not a listed category"),
            (categories(1, 2), "3", "'3' is not a listed category"),
            (categories(1, 2), True, "True is not a listed category"),
        ],
    )
    def test_refusals(self, domain: OrderedDomain, value: object, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            domain.find_cell(value)

    def test_listed_categories(self) -> None:
        assert categories("a", "b").find_boundary("b") == 1
        assert categories(7, -3).find_cell("-3") == categories(7, -3).find_cell(np.int64(-3)) == 1
        with pytest.raises(ValueError, match="not a listed category"):
            categories("a", "b").find_boundary("z")


EDGES: dict[str, OrderedDomain] = {
    "tenths": number(0, 1, 10),
    "numbers": number(-7.5, 1000, 100),
    "integers": integer(-8, 40, 6),
    "weeks": days(date(2024, 1, 1), date(2024, 12, 30), 7),
    "hours": DAY,
    "instants": DAY_UTC,
    "categories": categories("S", "M"),
}


class TestExactEdges:
    """Literal values that are edges between cells, so that a query that names them is exact."""

    @for_each("name", list(EDGES)[:6])
    def test_edges_are_edges_as_values_and_as_texts(self, name: str) -> None:
        domain = EDGES[name]
        edges = domain.lower_edges(0, domain.cells).to_pylist()
        edges += domain.upper_edges(domain.cells - 1, domain.cells).to_pylist()
        for place, edge in enumerate(edges):
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
            ("hours", "2013-01-01 05:00:01"),
            ("instants", "2013-01-01T05:30Z"),
        ],
    )
    def test_other_values_are_rounded_down(self, name: str, value: object) -> None:
        assert not EDGES[name].is_edge(value)

    @for_each(
        ("name", "value"),
        [
            ("tenths", 0.3),
            ("tenths", "1e-1"),
            ("integers", "8.0"),
            ("integers", 8),
            ("weeks", "2024-01-08T00:00"),
            ("weeks", date(2024, 12, 30)),
            ("instants", "2013-01-01T06:00+01:00"),
            ("categories", "S"),
            ("categories", "M"),
        ],
    )
    def test_edges_may_be_written_otherwise(self, name: str, value: object) -> None:
        assert EDGES[name].is_edge(value)


class TestColumnTypes:
    @for_each(
        ("domain", "type", "needed"),
        [
            (number(), pa.string(), "a number domain needs a column of integers, floating"),
            (number(), pa.time32("s"), "but a number domain needs"),
            (number(), pa.timestamp("us"), "a number domain needs"),
            (number(), pa.dictionary(pa.int8(), pa.string()), "a number domain needs"),
            (number(), pa.list_(pa.float64()), "a number domain needs"),
            (
                integer(0, 5),
                pa.duration("s"),
                "an? integer domain needs a column of integers, float",
            ),
            (integer(0, 5), pa.decimal128(5, -1), "integer domain needs"),
            (integer(0, 5), pa.date32(), "integer domain needs"),
            (YEAR, pa.int32(), "a date domain needs a column of dates, or of timestamps"),
            (YEAR, pa.timestamp("us", "Europe/Paris"), "without a zone or in UTC"),
            (YEAR, pa.time32("s"), "a date domain needs"),
            (DAY, pa.timestamp("us", "UTC"), "timestamps without a time zone, as its bounds"),
            (DAY, pa.int64(), "a timestamp domain needs"),
            (DAY_UTC, pa.timestamp("us"), "timestamps with a time zone, as its bounds have one"),
            (DAY_UTC, pa.date32(), "timestamps with a time zone"),
            (categories("a"), pa.int64(), "a category domain needs a column of texts"),
            (categories(1), pa.string(), "a column of integers"),
            (categories(1), pa.date32(), "a column of integers"),
            (categories(1, 0), pa.time32("s"), "a column of integers"),
        ],
    )
    def test_refused(self, domain: OrderedDomain, type: pa.DataType, needed: str) -> None:
        with pytest.raises(ValueError, match=f"column 'x' has type .*{needed}"):
            domain.check_type(type)
        with pytest.raises(ValueError, match=needed):
            domain.cell_ids(pa.nulls(1, type))


NO = {"column": "x"}
BOUNDS = {"lower": 0, "upper": 10}
REFUSED: list[tuple[dict[str, object], str]] = [
    ({**BOUNDS, "cells": 0}, "column 'x': cells 0 must be a whole number from 1 to"),
    ({**BOUNDS, "cells": -1}, "cells -1 must"),
    ({**BOUNDS, "cells": 2.0}, "cells 2.0 must"),
    ({**BOUNDS, "cells": True}, "cells True must"),
    ({**BOUNDS, "cells": 2**40 + 1}, "a larger tree fit on no machine"),
    ({**BOUNDS, "cells": 5, "outside": "keep"}, "outside 'keep' must be one of clamp, drop"),
    ({**BOUNDS, "cells": 5, "missing": "clamp"}, "missing 'clamp' must be one of drop, first"),
    ({**BOUNDS, "cells": 5, "column": 3}, "column 3 must be a text"),
    ({"lower": 10, "upper": 10, "cells": 5}, "'x': lower 10.0 must be less than upper 10.0"),
    ({"lower": NAN, "upper": 10, "cells": 5}, "'x': lower nan must be finite"),
    ({"lower": 0, "upper": INF, "cells": 5}, "upper inf must be finite"),
    ({"lower": -1e300, "upper": 0, "cells": 5}, "lower -1e[+]300 must be finite and within"),
    ({"lower": "0", "upper": 10, "cells": 5}, "lower '0' must be a number"),
    ({"lower": 0, "upper": 2**53 + 1, "cells": 5}, "upper 9007199254740993 is no float64"),
    ({"lower": 1, "upper": 1 + 1e-15, "cells": 9}, "cells 9 are too many between lower 1.0"),
    ({"lower": 1e15, "upper": 1e15 + 1, "cells": 2**30}, "cannot represent distinct edges"),
    ({"type": "integer", **BOUNDS, "cells": 3}, "cells 3 must divide the 10 integers"),
    ({"type": "integer", **BOUNDS, "cells": 0}, "cells 0 must be"),
    ({"type": "integer", "lower": 0.5, "upper": 3}, "lower 0.5 must be a whole number"),
    (
        {"type": "integer", "lower": 0, "upper": 2**61 + 1},
        r"must be .* from -2\^61 to 2\^61",
    ),
    ({"type": "integer", "lower": 0, "upper": 2**41}, "cells 2199023255552 must be"),
    ({"type": "integer", "lower": 5, "upper": 5}, "lower 5 must be less than upper 5"),
    ({"type": "date", "lower": 3, "upper": 4}, "lower 3 must be a date"),
    ({"type": "date", "lower": "then", "upper": "now"}, "lower 'then' must be an ISO 8601"),
    (
        {"type": "date", "lower": "2013-01-02", "upper": "2013-01-01"},
        "must be less than upper 2013",
    ),
    (
        {"type": "date", "lower": "2013-01-01", "upper": "2014-01-01", "days_per_cell": 7},
        "days_per_cell 7 must divide the 365 days from lower 2013-01-01 to upper 2014-01-01",
    ),
    (
        {"type": "date", "lower": "2013-01-01", "upper": "2014-01-01", "days_per_cell": 0},
        "days_per_cell 0 must be a whole number from 1 on",
    ),
    (
        {"type": "date", "lower": "2013-01-01", "upper": "2014-01-01", "cells": 12},
        "cells 12 must divide the 365 days",
    ),
    (
        {"type": "date", "lower": "2013-01-01", "upper": 2014, "cells": 12},
        "upper 2014 must be a date",
    ),
    (
        {"type": "timestamp", "lower": "2013-01-01", "upper": "2014-01-01T00:00Z", "cells": 5},
        "must both have a time zone, or neither",
    ),
    (
        {"type": "timestamp", "lower": "2013-01-01", "upper": "2013-01-02", "cells": 7},
        "cells 7 must divide the 86400000000 microseconds",
    ),
    ({"type": "timestamp", "lower": 1, "upper": 2, "cells": 7}, "lower 1 must be a date and time"),
    ({"type": "category", "categories": []}, "categories must be a list of at least one value"),
    ({"type": "category", "categories": ["a", "a"]}, "categories hold 'a' more than once"),
    ({"type": "category", "categories": ["a", 1]}, "must be all texts or all whole numbers"),
    ({"type": "category", "categories": ["a"], "unknown": "other"}, "unknown 'other' must be one"),
    ({"type": "word"}, "type 'word' must be one of number, integer, date, timestamp, time"),
    ({"kind": "hypercube"}, "kind 'hypercube' must be 'ordered'"),
    ({**BOUNDS, "cells": 5, "bins": 3}, "'bins' is not a field of a domain of type number: use"),
    ({"lower": 0, "upper": 10}, "a domain of type number needs the field 'cells'"),
    ({**BOUNDS, "cells": 5, "map_version": 99}, "map_version 99 must be 1"),
]


class TestMaking:
    @for_each(("fields", "message"), REFUSED)
    def test_refusals(self, fields: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make_domain({**NO, **fields})

    @for_each("domain", EVERY_KIND)
    def test_a_domain_is_its_spec(self, domain: OrderedDomain) -> None:
        again = make_domain(json.loads(json.dumps(domain.spec(), allow_nan=False)))
        assert again == domain and again.spec() == domain.spec()

    def test_a_key_list_is_its_spec(self) -> None:
        keys = KeyList(column="x", keys=("b", "a"), unknown="other")
        assert make_key_list(json.loads(json.dumps(keys.spec()))) == keys
        with pytest.raises(ValueError, match="a key list needs the field 'keys'"):
            make_key_list({"column": "x"})

    def test_specs_do_not_change(self) -> None:
        """Golden values: they enter the seeds of the noise."""
        head = {"kind": "ordered", "map_version": 1, "column": "x"}
        tail = {"outside": "clamp", "missing": "drop"}
        year = {"lower": "2013-01-01", "upper": "2014-01-01", "days_per_cell": 1}
        day = {"lower": "2013-01-01T00:00:00", "upper": "2013-01-02T00:00:00", "cells": 24}
        utc = {"lower": day["lower"] + "+00:00", "upper": day["upper"] + "+00:00", "cells": 24}
        fields = {
            number(-60, 600, 660): {"type": "number", "lower": -60.0, "upper": 600.0, "cells": 660},
            integer(0, 120, 12): {"type": "integer", "lower": 0, "upper": 120, "cells": 12},
            YEAR: {"type": "date", **year},
            DAY: {"type": "timestamp", **day},
            DAY_UTC: {"type": "timestamp", **utc},
        }
        for domain, expected in fields.items():
            assert domain.spec() == {**head, **expected, **tail}
        policies = {"unknown": "drop", "missing": "drop"}
        listed = {"type": "category", "categories": ["b", "a"]}
        assert categories("b", "a").spec() == {**head, **listed, **policies}
        keys = {"map_version": 1, "column": "x", "keys": [2, 1], "unknown": "drop"}
        assert KeyList(column="x", keys=(2, 1)).spec() == keys

    def test_equal_bounds_make_equal_specs(self) -> None:
        assert json.dumps(number(-0.0, 1, 3).spec()) == json.dumps(number(0, 1.0, 3).spec())

    def test_plain_values(self) -> None:
        fields = {**NO, "lower": date(2013, 1, 1), "upper": date(2013, 1, 2)}
        assert make_domain({**fields, "type": "timestamp", "cells": 24}) == DAY
        assert make_domain({**fields, "type": "date", "cells": 1}).cells == 1
        assert make_domain({**NO, **BOUNDS, "cells": 5}) == number(0, 10, 5)

    @for_each("domain", EVERY_KIND)
    def test_pickles_are_small_and_equal(self, domain: OrderedDomain) -> None:
        column = domain.lower_edges(0, domain.cells)
        before = domain.cell_ids(column)
        pickled = pickle.dumps(domain)
        restored = pickle.loads(pickled)
        assert len(pickled) < 1000
        assert restored == domain and np.array_equal(restored.cell_ids(column), before)

    def test_pickled_key_lists_hold_the_keys_only(self) -> None:
        keys = KeyList(column="x", keys=tuple(f"key {i}" for i in range(10_000)))
        fresh = len(pickle.dumps(keys))
        rows = pa.array(["key 77", "nothing"])
        assert keys.codes(rows).tolist() == [77, -1]
        assert len(pickle.dumps(keys)) == fresh
        assert pickle.loads(pickle.dumps(keys)).codes(rows).tolist() == [77, -1]


def test_rows_without_a_cell_of_their_own_are_reported_with_their_policy() -> None:
    """Rows without a value have another policy than rows outside."""
    domain = integer(0, 10, outside="drop", missing="last")
    found = domain.row_outcomes({"x": pa.array([3, None, -1, 10, 2.5])})
    assert [(each.cause, each.policy, each.rows.nonzero()[0].tolist()) for each in found] == [
        ("missing", "last", [1]),
        ("fraction", "last", [4]),
        ("below lower", "drop", [2]),
        ("at or above upper", "drop", [3]),
    ]
