"""Counts of sparse nodes: what travels between workers is read back as it was."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.questions.sparse_counts import NodeCounts


@pytest.mark.parametrize("type", [pa.uint64(), pa.large_string()], ids=str)
def test_counts_and_sums_of_any_size_are_read_back(type: pa.DataType) -> None:
    listed = [2**64 - 2, 2**64 - 1] if type == pa.uint64() else ["a", "b"]
    for counts in ([], [0, 3], [-1, 255], [256, 2**16], [2**40, 1], [-(2**62), 2**62]):
        keys = pa.array(listed[: len(counts)], type)
        sent = NodeCounts(keys=keys, counts=np.array(counts, np.int64))
        again = NodeCounts.from_bytes(sent.to_bytes())
        assert again.keys.to_pylist() == keys.to_pylist() and again.keys.type == type
        assert again.counts.tolist() == counts and again.counts.dtype == np.int64
