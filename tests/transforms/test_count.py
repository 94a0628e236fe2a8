"""Exact counts: every row once in its place, whatever the bundles, batches and partial counts."""

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that

from dptrees.dpcore.questions.messages import merged_chunk, pack_dense
from dptrees.dpcore.rows.columns import unpack
from dptrees.transforms.beam.adapter import OnBeam
from dptrees.transforms.conservation import tree_chunks, tree_partials, tree_rows
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.steps.count import CountBundle, CountRows, _MergePlace
from tests.memory import stays_below
from tests.transforms.conftest import LOCAL_RUNNER
from tests.transforms.eager import MAIN, counted, grouped, outputs


def sum_counts(plan, batches: list[pa.RecordBatch], sizes: list[int]) -> dict[object, list[int]]:
    """Sum the partial counts of bundles of batches, without an engine."""
    stops = np.cumsum(sizes).tolist()
    bundles = [batches[stop - size : stop] for stop, size in zip(stops, sizes, strict=True)]
    found = dict(grouped(outputs(counted(plan, bundles))[MAIN]))
    chunks = {
        (q.name, chunk.key, chunk.index): chunk.leaves
        for q in plan.questions
        for chunk in q.forest.chunking
    }
    assert found.keys() <= chunks.keys()
    return {
        place: merged_chunk(leaves, found.get(place, [])).counts.tolist()
        for place, leaves in chunks.items()
    }


# Row by row is slow, and a few hundred rows have every kind.
@pytest.mark.parametrize("chunk_leaves", [8, 2**17])
@pytest.mark.parametrize(
    "cells, buffered, many",
    [(0, 1, 300), (0, 700, 3000), (0, 2**23, 3000), (2**25, 2**23, 3000)],
)
def test_partial_counts_sum_to_the_exact_counts(
    chunk_leaves, cells, buffered, many, make_plan, rows, exact_counts, monkeypatch
) -> None:
    monkeypatch.setattr("dptrees.transforms.steps.counting.DENSE_CELLS", cells)
    monkeypatch.setattr("dptrees.dpcore.questions.messages.BUFFERED_ROWS", buffered)
    plan = make_plan("value", "number", "carrier", fanouts=(4, 4, 2), chunk_leaves=chunk_leaves)
    rows = rows.slice(0, many)
    batches = rows.combine_chunks().to_batches(max_chunksize=many * 2 // 15)
    truth = exact_counts(plan, rows)
    for sizes in ([8], [1, 0, 3, 4]):
        assert len(batches) == sum(sizes)
        for (name, key, index), counts in sum_counts(plan, batches, sizes).items():
            chunking = plan.question(name).forest.chunking
            chunk = chunking[chunking.number(key, index)]
            assert counts == truth[name][chunk.start : chunk.start + chunk.leaves].tolist()


def test_when_sparse_increments_leave_follows_from_the_rows_read(
    make_plan, reference, monkeypatch
) -> None:
    """Not from how many of them are kept; and every element is counted in the balance."""
    monkeypatch.setattr("dptrees.transforms.steps.counting.DENSE_CELLS", 0)
    monkeypatch.setattr("dptrees.dpcore.questions.messages.BUFFERED_ROWS", 300)
    kept = pa.RecordBatch.from_arrays([pa.array(np.full(1000, 0.5))], names=["value"])
    mixed = np.full(1000, np.nan)
    mixed[::100] = 0.5
    dropped = pa.RecordBatch.from_arrays([pa.array(mixed)], names=["value"])
    for batch in (kept, dropped):
        step = CountBundle(make_plan("value"), reference, bytes(16))
        step.setup()
        step.start_bundle()
        parts = [batch.slice(start, 200) for start in range(0, 1000, 200)]
        assert [len(list(step.process(part))) for part in parts] == [0, 1, 0, 1, 0]
        found = outputs(step.finish_bundle())
        assert len(found[MAIN]) == 1 and dict(found[BALANCE])[tree_partials("value")] == 3


def test_counts_agree_with_plain_numpy(make_plan, rows, exact_counts) -> None:
    # Independent of the domain's own code.
    values = np.array([each for each in rows["number"].to_pylist() if each is not None])
    expected = np.bincount(np.clip(values, -5, 14) + 5, minlength=20)
    assert exact_counts(make_plan("number"), rows)["number"].tolist() == expected.tolist()


def test_every_chunk_of_the_plan_once_and_a_balance(make_plan, rows, reference) -> None:
    plan = make_plan("value", "carrier", fanouts=(4, 4, 2), chunk_leaves=8)
    batches = rows.combine_chunks().to_batches(max_chunksize=700)
    with beam.Pipeline(LOCAL_RUNNER) as pipeline:
        counted = pipeline | beam.Create(batches) | OnBeam(CountRows(plan, reference, bytes(16)))
        counts, balance = counted["counts"], counted[BALANCE]
        expected = sorted(
            (q.name, chunk.key, chunk.index) for q in plan.questions for chunk in q.forest.chunking
        )
        keys = counts | beam.Map(lambda element: element[0])
        assert_that(keys, same(expected), "keys")
        totals = counts | beam.Map(lambda e: (e[0][0], int(unpack(e[1]).sum())))
        kept = {
            q.name: len(q.leaf_ids({name: rows[name] for name in q.columns}))
            for q in plan.questions
        }
        assert_that(totals | beam.CombinePerKey(sum), same(sorted(kept.items())), "totals")
        summed = {tree_rows(name): 0 for name in kept} | {tree_partials(name): 0 for name in kept}
        summed |= {tree_chunks(q.name): len(q.forest.chunking) for q in plan.questions}
        summed["rows"] = -rows.num_rows
        sums = balance | "Balance" >> beam.CombinePerKey(sum)
        assert_that(sums, same(sorted(summed.items())), "balance")


def test_partial_counts_of_a_place_are_read_one_by_one(make_plan, reference) -> None:
    """Their number grows with the bundles of a job, and an engine hands them on as it goes."""
    plan, number = make_plan("number"), 1000
    (place,) = plan.questions[0].places
    step = _MergePlace(plan, reference)
    step.setup()
    data = pack_dense(np.arange(20) ** 9)
    runs = []

    def merge() -> None:
        partials = (bytes(bytearray(data)) for _ in range(number))
        runs.append(outputs(step.process((("number", *place), partials))))

    assert stays_below(number * len(data) / 2, merge)
    found = runs[0]
    assert dict(found[BALANCE])[tree_partials("number")] == 1 - number
    assert unpack(found[MAIN][0][1]).tolist() == (number * np.arange(20) ** 9).tolist()


def same(expected: list[object]):
    def check(found) -> None:
        if sorted(found) != expected:
            raise AssertionError(f"{sorted(found)} is not {expected}")

    return check
