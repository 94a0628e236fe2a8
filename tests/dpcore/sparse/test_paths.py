"""Paths of sparse trees: levels, parents, and what no node can be called."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.sparse.domain import CodeDomain, SparseDomain, last_labels
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain

ADDRESSES = CodeDomain(column="address", widths=(8, 8, 16))
HASHES = CodeDomain(column="hash", widths=(3, 9, 1), notation="hex")
WIDE = CodeDomain(column="hash", widths=(20, 43, 1), notation="hex")
PLACES = LabelDomain(label_columns=("from", "to"))
URLS = PathDomain(column="url", depth=3, separator="|")


def check_every_level(domain: SparseDomain, keys: pa.Array) -> None:
    """Levels and parents of the paths of leaves and all nodes above them."""
    for level in range(domain.height, 0, -1):
        paths, above = domain.paths(level, keys), domain.parent_keys(level, keys)
        parents = domain.paths(level - 1, above)
        assert domain.parent_paths(level, paths).equals(parents)
        assert domain.parent_paths(level, paths.cast(pa.string())).equals(parents)
        assert {domain.level_of_path(path) for path in paths.to_pylist()} <= {level}
        keys = above


@pytest.mark.parametrize("domain", [ADDRESSES, HASHES, WIDE])
def test_prefixes(domain: CodeDomain) -> None:
    codes = np.random.default_rng(1).integers(0, 2**domain.bits - 1, 300, np.uint64, endpoint=True)
    check_every_level(domain, pa.array([*codes.tolist(), 0, 2**domain.bits - 1], pa.uint64()))
    root = domain.paths(0, domain.root_keys)[0].as_py()
    assert domain.level_of_path(root) == domain.level_of_path("") == 0


@given(st.lists(st.lists(st.text(max_size=4), min_size=3, max_size=3), min_size=1, max_size=6))
def test_paths_of_any_labels(rows: list[list[str]]) -> None:
    domain = LabelDomain(label_columns=("a", "b", "c"))
    counts = domain.leaf_counts(
        {name: pa.array(own) for name, own in zip("abc", zip(*rows, strict=True), strict=True)}
    )
    assert counts.total == sum(all(row) for row in rows)
    check_every_level(domain, counts.keys)


@given(st.lists(st.text(alphabet="a|é\n\\", max_size=8), max_size=6))
def test_paths_with_a_separator(rows: list[str]) -> None:
    leaves = URLS.leaf_counts({"url": pa.array(rows, pa.string())}).keys
    for labels in (1, 2, 3):
        own = [path for path in leaves.to_pylist() if path.count("|") == labels - 1]
        short = PathDomain(column="url", depth=labels, separator="|")
        check_every_level(short, pa.array(own, pa.large_string()))
        if labels > 1:
            last = last_labels(pa.array(own, pa.large_string()), "|").to_pylist()
            assert last == [path.rpartition("|")[2] for path in own]


REFUSED: list[tuple[SparseDomain, str, str]] = [
    (ADDRESSES, "0.0.0.0/1", "its length /1 is none of /0, /8, /16, /32"),
    (ADDRESSES, "10.0.0.0/08", "its length /08 is none of"),
    (ADDRESSES, "10.0.0.0/", "its length / is none of"),
    (ADDRESSES, "10.1.0.0/8", "bits are set behind its prefix, which is 10.0.0.0/8"),
    (ADDRESSES, "10.1.0.0/0", "bits are set behind its prefix, which is 0.0.0.0/0"),
    (ADDRESSES, "10.1.0.0", "it is no prefix of a code, as 1.0.0.0/8 is"),
    (ADDRESSES, "10.1.0/16", "it is no prefix of a code"),
    (ADDRESSES, "kumquat", "it is no prefix of a code"),
    (ADDRESSES, "\udcff", "it holds letters that no text has"),
    (HASHES, "0001/3", "bits are set behind its prefix, which is 0000/3"),
    (HASHES, "00G0/3", "it is no prefix of a code, as 0400/3 is"),
    (HASHES, "2000/3", "it is no prefix of a code"),
    (HASHES, "000/3", "it is no prefix of a code"),
    (PLACES, "a/b/c", "it has 3 labels, and the tree 2 below its root"),
    (PLACES, "a\\b", "a backslash must stand before a slash or a backslash"),
    (PLACES, "a\\", "a backslash must stand before a slash or a backslash"),
    (PLACES, "a/", "it has an empty label, and rows with one are not counted"),
    (PLACES, "/", "it has an empty label"),
    (URLS, "a|b|c|d", "it has 4 labels, and the tree 3 below its root"),
    (URLS, "|a", "it begins with the separator '|', which is passed over in rows"),
]


def test_texts_that_are_no_paths() -> None:
    for domain, path, words in REFUSED:
        with pytest.raises(ValueError, match=r"^path ") as refused:
            domain.level_of_path(path)
        assert words in str(refused.value) and "\n" not in str(refused.value), path
