"""Whether a row is late follows from the row and the period alone: the sensitivity rests on it."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.series.runs import Lateness

START = datetime.date(2024, 2, 26)
days = st.lists(st.none() | st.integers(-5, 12), max_size=12)


def column(offsets: list[int | None]) -> pa.Array:
    found = [None if day is None else START + datetime.timedelta(days=day) for day in offsets]
    return pa.array(found, pa.date32())


@given(days, days, st.integers(1, 9), st.integers(0, 4))
def test_rows_do_not_depend_on_each_other(
    one: list[int | None], two: list[int | None], period: int, periods: int
) -> None:
    late = Lateness(column="day", start=START.isoformat(), periods=periods)
    both = late.on_time(column(one + two), period)
    apart = [late.on_time(column(part), period) for part in (one, two)]
    assert (both == np.concatenate(apart)).all()
    by_hand = [day is not None and period - 1 - periods <= day < period for day in one + two]
    assert both.tolist() == by_hand


def test_chunks_and_timestamps_are_the_same_rows() -> None:
    late = Lateness(column="day", start=START.isoformat(), periods=1)
    own = column([0, 1, None, 2, 3])
    chunks = pa.chunked_array([own.slice(0, 2), own.slice(2)])
    columns, kept = late.filtered({"day": chunks, "x": pa.array(range(5))}, 3)
    assert kept.tolist() == [False, True, False, True, False]
    assert columns["x"].to_pylist() == [1, 3]
    for unit in ("s", "ms", "us", "ns"):
        assert (late.on_time(own.cast(pa.timestamp(unit)), 3) == kept).all()


def test_columns_of_other_types_are_refused() -> None:
    for kind in (pa.string(), pa.int64(), pa.timestamp("us", "UTC")):
        late = Lateness(column="day", start=START.isoformat(), periods=1)
        with pytest.raises(
            ValueError, match="it must hold dates, or timestamps without a time zone"
        ):
            late.check_type(kind)
