"""Synthetic rows: each part has its count, every batch is a sample of all, rows are uniform in
their parts, values lie in their cells and have their types."""

from __future__ import annotations

import datetime
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dptrees.dpcore.boxes import parts as sampling
from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.parts import Parts
from dptrees.dpcore.boxes.released import ReleasedHypercube
from dptrees.dpcore.noise.randomness import RandomStream, public_stream
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.ordered.steps import StepDomain
from tests.dpcore.boxes.boxes import box_domain, draw_rows, plan_question, released

FALSE_ALARM = 1e-6
BOX = box_domain(6, 11)


@cache
def tree() -> ReleasedHypercube:
    """A release of some 3,000 rows, with leaf regions of several sizes."""
    rows = draw_rows(BOX, 3000)
    return released(plan_question(BOX, amount=Fraction(1), bits_apart=2), rows)


def part_numbers(found: ReleasedHypercube, rows: pa.Table) -> np.ndarray:
    """The part that each row lies in, looked for among all."""
    starts, stops, *_ = found.parts
    inside = np.ones((rows.num_rows, len(starts[0])), np.bool_)
    for axis, start, stop in zip(found.question.domain.axes, starts, stops, strict=True):
        cell = axis.cell_ids(rows[axis.column].combine_chunks())[:, np.newaxis]
        inside &= (cell >= start) & (cell < stop)
    assert (inside.sum(axis=1) == 1).all()
    return inside.argmax(axis=1)


def drawn(found: ReleasedHypercube, rows: int, *, seed: int = 0) -> pa.Table:
    stream = public_stream("sampling", seed)
    return pa.Table.from_batches(found.sampler().batches(rows, stream), found.sampler().schema)


def counts_in(found: ReleasedHypercube, rows: pa.Table) -> np.ndarray:
    return np.bincount(part_numbers(found, rows), minlength=len(found.parts.counts))


def test_as_many_rows_as_were_released_give_each_part_its_count() -> None:
    for times in (1, 2, 5):
        found = tree()
        own = counts_in(found, drawn(found, times * found.total, seed=times))
        assert np.array_equal(own, times * found.parts.counts)
        assert len(set(own.tolist())) > 3 and (own == 0).any()


class GivenFirst:
    """A stream whose first number is given."""

    def __init__(self, first: int) -> None:
        self.stream, self.first, self.read = public_stream("given first"), first, 0

    def uint64(self, n: int) -> np.ndarray:
        self.read += 1
        return self.stream.uint64(n) if self.read > 1 else np.full(n, self.first, np.uint64)


def test_the_ends_of_a_turn_move_no_row_to_another_part() -> None:
    """The least start is on the edge of a part; the largest is rounded up to the next one's."""
    for first in (0, 2**64 - 1):
        found = tree()
        table = pa.Table.from_batches(
            found.sampler().batches(found.total, GivenFirst(first)), found.sampler().schema
        )
        assert np.array_equal(counts_in(found, table), found.parts.counts)


@given(st.integers(0, 5000), st.integers(0, 10**6))
@settings(deadline=None, max_examples=40)
def test_any_number_of_rows_is_within_one_of_its_share(rows: int, seed: int) -> None:
    found = tree()
    table = drawn(found, rows, seed=seed)
    assert table.num_rows == rows and table.schema == found.sampler().schema
    share = rows * found.parts.counts / found.total
    assert (np.abs(counts_in(found, table) - share) < 1 + 1e-9).all()


@pytest.mark.parametrize("batch_rows", [1, 7, 400])
def test_each_batch_is_a_sample_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    """Within one of its share in every part: a stream may be stopped at any batch. Planted: rows
    in the order of parts, cut into batches, are none."""
    monkeypatch.setattr(sampling, "BATCH_ROWS", batch_rows)
    found = tree()
    batches = list(found.sampler().batches(1500, public_stream("batches")))
    assert sum(batch.num_rows for batch in batches) == 1500
    assert max(batch.num_rows for batch in batches) <= batch_rows
    counts = found.parts.counts
    for batch in batches[:40]:
        share = batch.num_rows * counts / found.total
        own = counts_in(found, pa.Table.from_batches([batch]))
        # The number of batches divides all turns into rests: the rest moves a share by below one.
        assert (np.abs(own - share) < 2).all()
    in_order = np.repeat(np.arange(len(counts)), counts)[:batch_rows]
    share = len(in_order) * counts / found.total
    planted = np.bincount(in_order, minlength=len(counts))
    if batch_rows == 400:
        assert (np.abs(planted - share) >= 2).any()


def test_rows_are_shuffled() -> None:
    found = tree()
    own = part_numbers(found, drawn(found, found.total))
    rising = (np.diff(own) >= 0).mean()
    assert 0.4 < rising < 0.75


def chance_of_uniform(values: np.ndarray, cells: int) -> float:
    seen = np.bincount(np.minimum((values * cells).astype(np.int64), cells - 1), minlength=cells)
    return float(stats.chisquare(seen).pvalue)


def one_part(*axes: object) -> ReleasedHypercube:
    """A box that nothing divides but its first halvings, all rows in all of it."""
    domain = HypercubeDomain(axes=axes, depths=(1,) * len(axes))
    rows = pa.record_batch(
        {
            axis.column: axis.value_at(np.resize([0, axis.cells - 1], 64), np.zeros(64)).cast(
                axis.value_type
            )
            for axis in axes
        }
    )
    return released(plan_question(domain, split_errors=0.0), rows)


def number(name: str = "x") -> NumberDomain:
    return NumberDomain(column=name, lower=-3.0, upper=5.0, cells=8)


class Biased(Parts):
    """Planted: rows are more often in the lower half of their part."""

    def _values(self, parts: np.ndarray, stream: RandomStream) -> list[pa.Array]:
        columns = []
        for axis, start, stop in zip(self.domain.axes, self.starts, self.stops, strict=True):
            share = (stream.uint64(len(parts)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
            inside = share**1.1 * (stop - start)[parts]
            cell = np.floor(inside).astype(np.int64)
            columns.append(axis.value_at(start[parts] + cell, inside - cell))
        return columns


class BiasedRelease(ReleasedHypercube):
    """The answers of a release, with rows of biased parts."""

    @property
    def parts(self) -> Parts:
        return Biased(*super().parts)


def test_rows_are_uniform_in_their_parts() -> None:
    """In each coordinate, in both together, and not so where they are planted to be biased."""
    found = one_part(number("x"), number("y"))
    halves = found.parts.counts
    assert len(halves) == 4 and halves.sum() == 64

    def chances(own: ReleasedHypercube) -> list[float]:
        table = drawn(own, 200_000)
        x, y = ((table[name].to_numpy() + 3) / 8 for name in ("x", "y"))
        lower = (x < 0.5) & (y < 0.5)
        inside = 2 * x[lower], 2 * y[lower]
        together = np.floor(10 * inside[0]) + inside[1]
        return [chance_of_uniform(inside[0], 64), chance_of_uniform(inside[1], 64),
                chance_of_uniform(together / 10, 100)]  # fmt: skip

    assert min(chances(found)) > FALSE_ALARM
    assert max(chances(BiasedRelease(found.question, found._read))) < FALSE_ALARM


def test_whole_numbers_dates_and_categories_are_uniform_too() -> None:
    day = datetime.date(2020, 1, 1)
    axes = (
        StepDomain(kind="integer", column="i", lower=0, upper=24, cells=8),
        StepDomain(kind="date", column="d", lower=day, upper=day + datetime.timedelta(days=16)),
        CategoryDomain(column="c", categories=("u", "v", "w", "x")),
    )
    found = one_part(*axes)
    table = drawn(found, 120_000)
    for values, many in (
        (table["i"].to_numpy(), 24),
        (table["d"].cast(pa.int32()).to_numpy() - (day - datetime.date(1970, 1, 1)).days, 16),
        (np.searchsorted(["u", "v", "w", "x"], table["c"].to_pylist()), 4),
    ):
        assert values.min() == 0 and values.max() == many - 1
        # Rows are half in the lower half of each axis, so a chi-square is over what is inside.
        for half in (0, 1):
            own = values[(values >= many // 2) == bool(half)] - half * (many // 2)
            assert chance_of_uniform((own + 0.5) / (many // 2), many // 2) > FALSE_ALARM


def test_nothing_to_draw_from_is_refused() -> None:
    empty = released(plan_question(BOX), draw_rows(BOX, 3000).slice(0, 0))
    with pytest.raises(ValueError, match="tree box: all its counts are zero"):
        empty.sampler()
