"""Counting rows into large sparse trees: batches, merging, parts, bytes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.questions.messages import Increments
from dptrees.dpcore.questions.sparse_counts import NodeCounts, key_parts
from dptrees.dpcore.sparse.domain import CodeDomain, SparseDomain
from dptrees.dpcore.sparse.labels import PathDomain
from dptrees.dpcore.sparse.question import SparseCounter, level_counts

CODES = CodeDomain(column="c", widths=(4, 4), notation="hex")
PATHS = PathDomain(column="c", depth=2)
ROWS = st.lists(st.lists(st.integers(0, 255), max_size=10), max_size=6)


def column(domain: SparseDomain, rows: list[int]) -> pa.Array:
    if domain is CODES:
        return pa.array(rows, pa.int64())
    return pa.array([f"{row >> 4}/{row & 15}" if row & 1 else f"{row >> 4}" for row in rows])


def as_dict(counts: NodeCounts) -> dict[object, int]:
    keys = counts.keys.to_pylist()
    assert keys == sorted(keys) and len(set(keys)) == len(keys) and 0 not in counts.counts
    return dict(zip(keys, counts.counts.tolist(), strict=True))


def add(counter: SparseCounter, domain: SparseDomain, column: pa.Array) -> int:
    leaves = domain.leaf_counts({"c": column})
    return counter.add(Increments(leaves.keys, leaves.counts), len(column))


@settings(deadline=None)
@given(ROWS, st.sampled_from([CODES, PATHS]), st.sampled_from([1, 3]), st.sampled_from([1, 5, 100]))
def test_batches_buffers_and_parts_do_not_matter(
    batches: list[list[int]], domain: SparseDomain, shards: int, most_leaves: int
) -> None:
    counter, partials = SparseCounter(domain, shards, most_leaves=most_leaves), []
    for batch in batches:
        assert add(counter, domain, column(domain, batch)) == len(batch)
        if counter.is_due:
            partials += counter.take()
    partials += counter.take()
    assert [partial.data for partial in counter.take()] == [b""] * (1 + domain.height * shards)
    rows = [row for batch in batches for row in batch]
    expected = dict(level_counts(domain, domain.leaf_counts({"c": column(domain, rows)})))
    for level in range(domain.height + 1):
        found: dict[object, int] = {}
        for shard in range(shards):
            own = [p for p in partials if p.place == (level, shard)]
            merged = NodeCounts.from_partials(domain.key_type, [p.data for p in own])
            assert merged.total == sum(p.total for p in own)
            keys = merged.keys.to_pylist()
            parts = key_parts(merged.keys, 1 if level == 0 else shards)
            assert set(parts.tolist()) <= {shard}
            assert not set(keys) & set(found)
            found |= as_dict(merged)
        assert found == as_dict(expected[level])


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.text("ab", max_size=2), st.integers(1, 9))), min_size=1))
def test_merging_adds_up_in_any_order(parts: list[list[tuple[str, int]]]) -> None:
    counts = [
        NodeCounts.grouped(
            pa.array([key for key, _ in part], pa.large_string()),
            np.array([count for _, count in part], np.int64),
        )
        for part in parts
    ]
    expected: Counter[str] = Counter()
    for part in parts:
        for key, count in part:
            expected[key] += count
    assert as_dict(NodeCounts.merged(counts)) == expected
    left = NodeCounts.merged([NodeCounts.merged(counts[:2]), *counts[2:]])
    assert left.to_bytes() == NodeCounts.merged(counts[::-1]).to_bytes()


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), unique=True), st.data())
def test_bytes_bring_counts_back(keys: list[int], data: st.DataObject) -> None:
    numbers = st.integers(-(2**62), 2**62)
    values = data.draw(st.lists(numbers, min_size=len(keys), max_size=len(keys)))
    counts = NodeCounts(keys=pa.array(sorted(keys), pa.uint64()), counts=np.array(values, np.int64))
    found = NodeCounts.from_bytes(counts.to_bytes())
    assert found.keys.equals(counts.keys) and found.counts.tolist() == values


def test_texts_in_bytes_and_slices() -> None:
    counts = NodeCounts.grouped(pa.array(["b", "", "é", "b"], pa.large_string()))
    for _, part in counts.split(2):
        found = NodeCounts.from_bytes(part.to_bytes())
        assert found.keys.equals(part.keys) and found.counts.tolist() == part.counts.tolist()
    assert as_dict(counts) == {"": 1, "b": 2, "é": 1}


def test_memory_does_not_grow_with_the_rows() -> None:
    counter = SparseCounter(CODES, 2, most_leaves=40)
    for _ in range(50):
        add(counter, CODES, pa.array(np.arange(16)))
        assert sum(map(len, counter._waiting)) <= 48
    assert not counter.is_due
    assert {partial.total for partial in counter.take() if partial.place.group == 0} == {800}


def test_no_part_at_all() -> None:
    with pytest.raises(ValueError, match="shards is 0"):
        SparseCounter(CODES, 0)
