"""Sums past 64 bits on their way through the job: no count turns its sign, and nothing that stops
the job or is counted by an engine tells of a row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore.noise.source import LARGEST_MEASURED
from dpcore.rows.sums import LARGEST_BOUND, MeasureColumn
from dpcore.trees.exact_sums import LARGEST_SUM
from tests.dpcore.hierarchy_questions import CODES, hierarchy_question, release_plan_of
from transforms.conservation import residue
from transforms.encoding import unpack
from transforms.histogram import SumCounts, _PartialCounts, _SumChunk, pack_dense, pack_sparse

BOUND = LARGEST_BOUND
SUMS = MeasureColumn(column="amount", lower=-BOUND, upper=BOUND)
PLAN = release_plan_of(hierarchy_question("digits", measure=SUMS))


@pytest.fixture
def large_bundle(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[Any]]:
    """Plants what 2^31 rows of the largest value in each of two leaves, less one, of either sign,
    leave in the first bundle, and as much in a third leaf as int64 just holds of all together."""

    def planted(sign: int) -> list[Any]:
        bundles: list[Any] = []
        start_bundle = _PartialCounts.start_bundle

        def started(step: Any) -> None:
            start_bundle(step)
            if not bundles:
                bundles.append(step)
                (question,) = PLAN.chunked
                sums = step._leaf_sums(question)
                values = [sign * LARGEST_SUM, sign * (LARGEST_SUM - BOUND), sign * BOUND]
                values[2] -= sign > 0
                sums._low[[0, 5, 9]] = values
                sums._largest = LARGEST_SUM
                step._kept[question.name] = sum(values)

        monkeypatch.setattr(_PartialCounts, "start_bundle", started)
        return bundles

    return planted


def released(folder: Path) -> dict[tuple[int, int], float]:
    """The estimates by level and node."""
    tables = [pq.read_table(path) for path in folder.glob("nodes/*.parquet")]
    return {
        (row["level"], row["node"]): row["estimate"]
        for table in tables
        for row in table.to_pylist()
    }


@pytest.mark.parametrize("sign, chunk_leaves", [(1, 4), (-1, 2**17)])
def test_a_release_of_sums_past_64_bits(
    sign, chunk_leaves, large_bundle, run, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("dpcore.hierarchy.question.CHUNK_LEAVES", chunk_leaves)
    roots = []
    for rows in (1, 0):
        planted = large_bundle(sign)
        amounts = pa.array([float(sign * BOUND)] * rows + [0.0])
        source = tmp_path / f"{rows}.parquet"
        pq.write_table(pa.table({"code": [CODES[5]] * (rows + 1), "amount": amounts}), source)
        run(PLAN, str(source), tmp_path / str(rows))
        assert planted
        roots.append(released(tmp_path / str(rows))[0, 0])
    # Least squares from a root of 2^50 and leaves of 2^50 each. The scale is 2^33, so that 2^42 is
    # out of the reach of any draw.
    assert all(LARGEST_MEASURED / 2 < sign * root < 2 * LARGEST_MEASURED for root in roots)
    assert abs(roots[0] - roots[1]) < 2**42


def partials_of(step: Any, batches: list[pa.RecordBatch]) -> tuple[dict[Any, list[bytes]], Any]:
    """The partial histograms of a bundle, and its balance."""
    step.start_bundle()
    given = [each for batch in batches for each in step.process(batch)]
    found: dict[Any, list[bytes]] = {}
    balance: dict[str, int] = {}
    for each in step.finish_bundle():
        if hasattr(each, "tag"):
            name, increment = each.value.value
            balance[name] = balance.get(name, 0) + increment
        else:
            given.append(each.value)
    for place, partial in given:
        found.setdefault(place, []).append(partial)
    return found, balance


@pytest.mark.parametrize("sign", [1, -1])
def test_the_balance_holds_past_64_bits(sign, large_bundle) -> None:
    large_bundle(sign)
    rows = pa.record_batch({"code": [CODES[5]] * 2, "amount": [sign * float(BOUND)] * 2})
    found, balance = partials_of(_PartialCounts(PLAN), [rows])
    name = f"rows of tree {PLAN.chunked[0].name}"
    counts = []
    for place, partials in found.items():
        (_, packed), *increments = _SumChunk(PLAN).process((place, [b"", *partials]))
        counts += unpack(packed).tolist()
        for each in increments:
            balance[each.value[0]] = balance.get(each.value[0], 0) + each.value[1]
    assert abs(balance[name]) < 2**33 and residue(balance[name]) == 0
    assert balance[f"partial counts of tree {PLAN.chunked[0].name}"] == 0
    assert counts[0] == counts[5] == sign * LARGEST_SUM and not any(counts[1:5])


def test_partials_of_either_sign_saturate_only_as_a_whole() -> None:
    """In any order: saturated one by one, they would come to 0, or to 2^62, or to -2^62."""
    large = [pack_dense(np.array([sign * LARGEST_SUM, 0])) for sign in (1, 1, 1, -1, -1)]
    small = pack_sparse(np.array([0]), np.array([-LARGEST_SUM - 5 + LARGEST_SUM]))
    words = pack_dense(np.array([7, 0]), np.array([-(2**30), 1]))
    elements = [*large, small, words]
    combine = SumCounts(2)
    for order in (elements, elements[::-1], [*elements[3:], *elements[:3]]):
        halves = [combine.create_accumulator(), combine.create_accumulator()]
        for place, element in enumerate(order):
            halves[place % 2] = combine.add_input(halves[place % 2], element)
        found = combine.extract_output(combine.merge_accumulators(halves)).tolist()
        assert found == [2, 2**32]


def test_a_large_batch_is_counted_in_parts(monkeypatch) -> None:
    monkeypatch.setattr("transforms.histogram.BUFFERED_ROWS", 3)
    rows = pa.record_batch({"code": [CODES[0]] * 8, "amount": [float(BOUND)] * 8})
    for cells in (2**25, 0):
        monkeypatch.setattr("transforms.histogram.DENSE_CELLS", cells)
        found, balance = partials_of(_PartialCounts(PLAN), [rows, rows.slice(0, 0)])
        combine = SumCounts(len(CODES))
        sums = combine.create_accumulator()
        for partial in found["places", 0, 0]:
            sums = combine.add_input(sums, partial)
        assert combine.extract_output(sums).tolist()[:2] == [8 * BOUND, 0]
        assert balance["rows"] == -8
        assert len(found["places", 0, 0]) == (1 if cells else 3)
