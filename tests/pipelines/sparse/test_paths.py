"""Paths of sparse trees, taken apart as their domains put them together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.sparse.domain import CodeDomain
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain
from dptrees.pipelines.kind_pages.sparse_page import ancestor_paths, own_labels, root_path

ADDRESSES = CodeDomain(column="address", widths=(8, 8, 16))
HASHES = CodeDomain(column="hash", widths=(3, 9, 1), notation="hex")
WIDE = CodeDomain(column="hash", widths=(20, 43, 1), notation="hex")
PLACES = LabelDomain(label_columns=("from", "to"))
URLS = PathDomain(column="url", depth=3, separator="|")


@pytest.mark.parametrize("domain", [ADDRESSES, HASHES, WIDE])
def test_paths_of_codes_are_taken_apart(domain: CodeDomain) -> None:
    codes = np.random.default_rng(1).integers(0, 2**domain.bits - 1, 500, np.uint64, endpoint=True)
    keys = pa.array([*codes.tolist(), 0, 2**domain.bits - 1], pa.uint64())
    lines = [[root_path(domain)] * len(keys)]
    for level in range(1, domain.height + 1):
        paths = domain.paths(level, domain.level_keys(level, keys))
        assert own_labels(domain, level, paths).equals(paths)
        lines.append(paths.to_pylist())
    for line in list(zip(*lines, strict=True))[-5:]:
        assert ancestor_paths(domain, line[-1]) == list(line)
        assert ancestor_paths(domain, line[1]) == list(line[:2])


@given(st.lists(st.lists(st.text(max_size=4), min_size=3, max_size=3), min_size=1, max_size=6))
def test_paths_of_any_labels_are_taken_apart(rows: list[list[str]]) -> None:
    domain = LabelDomain(label_columns=("a", "b", "c"))
    counts = domain.leaf_counts(
        {name: pa.array(own) for name, own in zip("abc", zip(*rows, strict=True), strict=True)}
    )
    for level in (3, 2, 1):
        keys = domain.level_keys(level, counts.keys)
        paths = domain.paths(level, keys)
        above = domain.paths(level - 1, domain.parent_keys(level, keys)).to_pylist()
        labels = set(own_labels(domain, level, paths).to_pylist())
        assert labels == {row[level - 1] for row in rows if all(row)}
        for path, parent in zip(paths.to_pylist(), above, strict=True):
            if path:
                assert ancestor_paths(domain, path)[-2:] == [parent, path]


def test_paths_that_no_node_can_have_are_refused() -> None:
    for domain, path in ((ADDRESSES, "10.0.0.0/12"), (PLACES, "a/b/c"), (URLS, "a|b|c|d")):
        with pytest.raises(ValueError, match=r"^path "):
            ancestor_paths(domain, path)
