"""Exact counts: every row once in its cell, whatever the bundles, batches and accumulators."""

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that
from hypothesis import given
from hypothesis import strategies as st

from dpcore.rows.packing import unpack
from transforms.conservation import tree_chunks, tree_partials, tree_rows
from transforms.histogram import CountLeaves, SumCounts, _PartialCounts, pack_dense, pack_sparse

RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
LEAVES = 12

COUNTS = st.lists(st.integers(0, 2**40), min_size=LEAVES, max_size=LEAVES)


def sparse(counts: npt.NDArray[np.int64]) -> bytes:
    offsets = np.flatnonzero(counts)
    return pack_sparse(offsets, counts[offsets])


@st.composite
def partials(draw: st.DrawFn) -> tuple[bytes, npt.NDArray[np.int64]]:
    """A partial histogram in one of its forms, and its counts."""
    form = draw(st.sampled_from(["dense", "sparse", "empty"]))
    if form == "empty":
        return b"", np.zeros(LEAVES, dtype=np.int64)
    counts = np.array(draw(COUNTS), dtype=np.int64)
    return (pack_dense if form == "dense" else sparse)(counts), counts


def combined(elements: list[bytes], cuts: list[int], order: list[int]) -> list[int]:
    """The four calls: bundles of elements, merged in some order, in two steps."""
    combine = SumCounts(LEAVES)
    bundles = []
    for start, stop in zip([0, *cuts], [*cuts, len(elements)], strict=True):
        accumulator = combine.create_accumulator()
        for element in elements[start:stop]:
            accumulator = combine.add_input(accumulator, element)
        bundles.append(accumulator)
    shuffled = [bundles[place] for place in np.argsort(order[: len(bundles)])]
    half = combine.merge_accumulators(iter(shuffled[: len(shuffled) // 2]))
    merged = combine.merge_accumulators([half, *shuffled[len(shuffled) // 2 :]])
    return combine.extract_output(merged).tolist()


@given(given=st.lists(partials(), max_size=8), data=st.data())
def test_counts_sum_in_any_order_and_any_bundles(given, data) -> None:
    elements = data.draw(st.permutations([element for element, _ in given]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(elements)), max_size=3)))
    order = data.draw(st.permutations(range(4)))
    truth = np.sum([counts for _, counts in given], axis=0, initial=0, dtype=np.int64)
    expected = np.broadcast_to(truth, LEAVES).tolist()
    assert combined(elements, cuts, list(order)) == expected


def test_merging_leaves_the_accumulators_as_they_are() -> None:
    combine = SumCounts(3)
    one = combine.add_input(combine.create_accumulator(), pack_dense(np.array([1, 2, 3])))
    combine.merge_accumulators([one, one])
    assert combine.extract_output(one).tolist() == [1, 2, 3]


def test_nothing_merged_is_zero() -> None:
    combine = SumCounts(3)
    assert combine.extract_output(combine.merge_accumulators([])).tolist() == [0, 0, 0]
    assert combine.add_input(combine.create_accumulator(), b"").tolist() == [[0, 0, 0]] * 2


def elements_of(plan, batches: list[pa.RecordBatch], sizes: list[int]) -> dict[object, list[int]]:
    """The sum of the partial histograms of bundles of batches, without an engine."""
    step = _PartialCounts(plan)
    found: dict[object, list[bytes]] = {}
    start = 0
    for size in sizes:
        step.start_bundle()
        given = [each for batch in batches[start : start + size] for each in step.process(batch)]
        ended = [each.value for each in step.finish_bundle() if not hasattr(each, "tag")]
        for key, partial in (*given, *ended):
            found.setdefault(key, []).append(partial)
        start += size
    chunks = {
        (q.name, chunk.key, chunk.index): chunk.leaves
        for q in plan.questions
        for chunk in q.forest.chunking
    }
    sums = {}
    for key, leaves in chunks.items():
        combine = SumCounts(leaves)
        accumulator = combine.create_accumulator()
        for partial in found.get(key, []):
            accumulator = combine.add_input(accumulator, partial)
        sums[key] = combine.extract_output(accumulator).tolist()
    assert found.keys() <= chunks.keys()
    return sums


@pytest.mark.parametrize("chunk_leaves", [8, 2**17])
@pytest.mark.parametrize("cells, buffered", [(0, 1), (0, 700), (0, 2**23), (2**25, 2**23)])
@pytest.mark.parametrize("sizes", [[8], [1, 0, 3, 4]])
def test_partial_histograms_sum_to_the_exact_counts(
    chunk_leaves, cells, buffered, sizes, make_plan, rows, exact_counts, monkeypatch
) -> None:
    monkeypatch.setattr("dpcore.ordered.question.CHUNK_LEAVES", chunk_leaves)
    monkeypatch.setattr("transforms.count.DENSE_CELLS", cells)
    monkeypatch.setattr("dpcore.questions.leaf_counts.BUFFERED_ROWS", buffered)
    plan = make_plan("value", "number", "carrier", fanouts=(4, 4, 2))
    batches = rows.combine_chunks().to_batches(max_chunksize=400)
    assert len(batches) == sum(sizes)
    truth = exact_counts(plan, rows)
    for (name, key, index), counts in elements_of(plan, batches, sizes).items():
        chunking = plan.question(name).forest.chunking
        chunk = chunking[chunking.number(key, index)]
        assert counts == truth[name][chunk.start : chunk.start + chunk.leaves].tolist()


def test_when_sparse_increments_leave_follows_from_the_rows_read(make_plan, monkeypatch) -> None:
    """Not from how many of them are kept; and every element is counted in the balance."""
    monkeypatch.setattr("transforms.count.DENSE_CELLS", 0)
    monkeypatch.setattr("dpcore.questions.leaf_counts.BUFFERED_ROWS", 300)
    kept = pa.RecordBatch.from_arrays([pa.array(np.full(1000, 0.5))], names=["value"])
    mixed = np.full(1000, np.nan)
    mixed[::100] = 0.5
    dropped = pa.RecordBatch.from_arrays([pa.array(mixed)], names=["value"])
    for batch in (kept, dropped):
        step = _PartialCounts(make_plan("value"))
        step.start_bundle()
        parts = [batch.slice(start, 200) for start in range(0, 1000, 200)]
        assert [len(list(step.process(part))) for part in parts] == [0, 1, 0, 1, 0]
        (_, *increments) = step.finish_bundle()
        found = dict(each.value.value for each in increments)
        assert found[tree_partials("value")] == 3


def test_counts_agree_with_plain_numpy(make_plan, rows, exact_counts) -> None:
    # Independent of the domain's own code.
    values = np.array([each for each in rows["number"].to_pylist() if each is not None])
    expected = np.bincount(np.clip(values, -5, 14) + 5, minlength=20)
    assert exact_counts(make_plan("number"), rows)["number"].tolist() == expected.tolist()


def test_every_chunk_of_the_plan_once_and_a_balance(make_plan, rows, monkeypatch) -> None:
    monkeypatch.setattr("dpcore.ordered.question.CHUNK_LEAVES", 8)
    plan = make_plan("value", "carrier", fanouts=(4, 4, 2))
    batches = rows.combine_chunks().to_batches(max_chunksize=700)
    with beam.Pipeline(RUNNER) as pipeline:
        counts, balance = pipeline | beam.Create(batches) | CountLeaves(plan)
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


def same(expected: list[object]):
    def check(found) -> None:
        if sorted(found) != expected:
            raise AssertionError(f"{sorted(found)} is not {expected}")

    return check
