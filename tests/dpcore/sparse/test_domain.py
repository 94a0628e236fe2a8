"""Keys of large sparse trees: codes, addresses, labels and paths against plain Python."""

from __future__ import annotations

import ipaddress
import json
import pickle
from collections import Counter
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.questions.sparse_counts import key_digest, key_parts, text_prefixes
from dptrees.dpcore.sparse.domain import CodeDomain, SparseDomain, prefix_texts, read_addresses
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain, domain_from_spec
from dptrees.dpcore.sparse.question import level_counts
from tests.dpcore.odd_rows import TEXTS
from tests.dpcore.odd_rows import as_texts as raw_texts
from tests.dpcore.refusals import check_refusals
from tests.dpcore.sparse.counts import counts_by_path
from tests.memory import stays_below

# Letters that could be mistaken for a separator, an escape, or the end of a text.
LABELS = st.text(alphabet="ab/\\\x00\x01BAé-", max_size=4)
BYTES = CodeDomain(column="a", widths=(8, 8, 8, 8))


def as_texts(values: list[str | None]) -> pa.Array:
    return pa.array(values, pa.large_string())


def counted(domain: SparseDomain, columns: dict[str, pa.Array]) -> list[dict[str, int]]:
    """The counts of each level by path, root first."""
    return counts_by_path(domain, domain.leaf_counts(columns))


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_addresses_are_read_and_prefixes_written_as_the_standard_library_does(
    codes: list[int],
) -> None:
    texts = [str(ipaddress.IPv4Address(code)) for code in codes]
    assert read_addresses(as_texts(["x", *texts])[1:]).tolist() == codes
    for level, bits in enumerate(BYTES.prefix_bits):
        expected = Counter(str(ipaddress.ip_network(f"{t}/{bits}", strict=False)) for t in texts)
        for column in (pa.array(codes, pa.int64()), pa.array(texts, pa.string())):
            assert counted(BYTES, {"a": column})[level] == dict(expected)


def test_other_texts_are_no_addresses() -> None:
    texts = [
        *("", "1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.3.", ".1.2.3", "1..2.3", "01.2.3.4"),
        *("1.2.3.4 ", "1.2.3.-4", "a.b.c.d", "1.2.3.1000", "...", "1.2.3.é"),
    ]
    for text in texts:
        found = read_addresses(as_texts(["9.9.9.9", text, "0.0.0.0"])).tolist()
        assert found == [151587081, -1, 0], text


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=20), st.sampled_from([(64,), (1,) * 64]))
def test_codes_of_64_bits(codes: list[int], widths: tuple[int, ...]) -> None:
    domain = CodeDomain(column="c", widths=widths, notation="hex")
    found = counted(domain, {"c": pa.array(codes, pa.uint64())})
    for bits, level in zip(domain.prefix_bits, found, strict=True):
        expected = Counter(f"{c >> (64 - bits) << (64 - bits):016x}/{bits}" for c in codes)
        assert level == dict(expected)


def test_codes_that_are_none_are_dropped_row_by_row() -> None:
    domain = CodeDomain(column="c", widths=(4, 4), notation="hex")
    for column in (
        pa.array([255, None, -1, 256, 255, 2**40], pa.int64()),
        pa.array([255, None, 300, 255], pa.uint16()),
        pa.chunked_array([pa.array([255, None]), pa.array([255])]),
        pa.array([255, None, 255]).dictionary_encode(),
    ):
        assert counted(domain, {"c": column})[2] == {"ff/8": 2}
    assert len(domain.leaf_counts({"c": pa.nulls(3)})) == 0


def test_one_long_text_takes_little_more_memory_than_its_own() -> None:
    letters = 2**24
    texts = as_texts(["." * letters, "0.0.0.7"])
    assert stays_below(letters, lambda: (read_addresses(texts), key_parts(texts, 16)))
    assert read_addresses(texts).tolist() == [-1, 7]


@pytest.mark.parametrize("type", TEXTS, ids=str)
def test_texts_of_every_type_with_nulls_and_bytes_that_are_no_text(type: pa.DataType) -> None:
    rows = raw_texts([b"a/b", None, b"a/\xff", b"\xed\xa0\x80", b"a", "é".encode()], type)
    paths, words = PathDomain(column="x", depth=2), LabelDomain(label_columns=("x",))
    for column in (rows, pa.chunked_array([rows[:1], rows[1:]])):
        assert counted(paths, {"x": column})[1:] == [{"a": 2, "é": 1}, {"a/b": 1}]
        assert counted(words, {"x": column})[1] == {"a\\/b": 1, "a": 1, "é": 1}
    # A null alone, beside strings that are all UTF-8.
    assert counted(paths, {"x": rows[:2]})[2] == {"a/b": 1}
    assert counted(words, {"x": rows[:2]})[1] == {"a\\/b": 1}
    addresses = raw_texts([b"0.0.0.1", None, b"0.0.0.\xff"], type)
    assert counted(BYTES, {"a": addresses})[4] == {"0.0.0.1/32": 1}


def test_chunks_of_dictionaries_with_nulls_in_them() -> None:
    words = pa.array(["a", None, "b"])
    chunk = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), words)
    nothing = pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.nulls(1))
    domain = LabelDomain(label_columns=("x",))
    assert counted(domain, {"x": pa.chunked_array([chunk, chunk])})[1] == {"a": 2, "b": 2}
    for column in (nothing, pa.chunked_array([nothing, nothing]), pa.chunked_array([], pa.int8())):
        assert len(domain.leaf_counts({"x": column})) == 0


def test_numbers_that_are_integers_are_the_same_labels_and_codes_in_every_type() -> None:
    words = LabelDomain(label_columns=("x",))
    bits = CodeDomain(column="x", widths=(64,), notation="hex")
    whole = [3, 200, 3, 0]
    rows = pa.array([3.0, 200.0, None, np.nan, 2.5, np.inf, 2.0**53, -0.5, 3.0, 0.0])
    assert counted(words, {"x": rows}) == counted(words, {"x": pa.array(whole)})
    assert counted(bits, {"x": rows}) == counted(bits, {"x": pa.array(whole)})
    decimals = [Decimal(2**64 - 1), Decimal("1.5"), Decimal(-1), None, Decimal(2**64)]
    codes = pa.array(decimals, pa.decimal128(22, 1))
    assert counted(bits, {"x": codes})[1] == {f"{2**64 - 1:016x}/64": 1}
    assert counted(words, {"x": codes})[1] == {"-1": 1}


@settings(deadline=None)
@given(st.lists(st.tuples(LABELS, st.none() | LABELS, LABELS), max_size=12))
def test_labels_are_counted_as_tuples(rows: list[tuple[str, str | None, str]]) -> None:
    domain = LabelDomain(label_columns=("x", "y", "z"))
    columns = {n: pa.array([row[i] for row in rows], pa.string()) for i, n in enumerate("xyz")}
    kept = [row for row in rows if all(row)]
    levels = dict(level_counts(domain, domain.leaf_counts(columns)))
    for level in range(4):
        expected = Counter(
            "/".join(str(x).replace("\\", "\\\\").replace("/", "\\/") for x in row[:level])
            for row in kept
        )
        assert sorted(levels[level].counts.tolist()) == sorted(
            Counter(row[:level] for row in kept).values()
        )
        assert counted(domain, columns)[level] == dict(expected)


def test_labels_of_several_types() -> None:
    domain = LabelDomain(label_columns=("x", "y"))
    words = pa.array(["b", "a", "b", None]).dictionary_encode()
    columns = {"x": pa.array([7, 7, 7, 7], pa.int32()), "y": words}
    assert counted(domain, columns) == [{"": 3}, {"7": 3}, {"7/a": 1, "7/b": 2}]
    assert len(domain.leaf_counts({"x": pa.nulls(2), "y": pa.array(["a", "b"])})) == 0


@settings(deadline=None)
@given(st.lists(st.none() | st.text(alphabet="a/-é", max_size=8), max_size=12))
def test_paths_count_down_to_where_they_end(paths: list[str | None]) -> None:
    domain = PathDomain(column="p", depth=3)
    found = counted(domain, {"p": pa.array(paths, pa.string())})
    texts = [path.lstrip("/") for path in paths if path is not None]
    labels = [text.split("/") for text in texts if text]
    for level in range(4):
        expected = Counter("/".join(each[:level]) for each in labels if len(each) >= level)
        assert found[level] == dict(expected)


def unchecked(values: list[bytes | None], type: pa.DataType) -> pa.Array:
    """Strings of any bytes, as a reader of Parquet files hands them on."""
    letters = pa.array(values, pa.large_binary() if pa.types.is_large_string(type) else pa.binary())
    return pa.Array.from_buffers(type, len(values), letters.buffers())


ODD = [b"a/b", b"\xff/b", None, b"a/\xc3", b"a/b", b"10.1.0.7", b"10.1.0.\xff", b"a/\xc3\xa9"]


@pytest.mark.parametrize("type", [pa.string(), pa.large_string()])
def test_texts_that_are_not_utf8_are_dropped_row_by_row(type: pa.DataType) -> None:
    plain = unchecked(ODD, type)
    sliced = unchecked([b"\xff", *ODD, b"\xff"], type)[1:-1]
    chunked = pa.chunked_array([plain[:3], plain[3:]])
    paths, pairs = PathDomain(column="p", depth=2), LabelDomain(label_columns=("x", "y"))
    numbers = pa.array([1, 2, 3, 4, 5, 6, None, 8])
    leaves = {"a\\/b/1": 1, "a\\/b/5": 1, "10.1.0.7/6": 1, "a\\/é/8": 1}
    for texts in (plain, plain.dictionary_encode(), sliced, chunked):
        assert counted(paths, {"p": texts})[2] == {"a/b": 2, "a/é": 1}
        assert counted(BYTES, {"a": texts})[4] == {"10.1.0.7/32": 1}
        assert counted(pairs, {"x": texts, "y": numbers})[2] == leaves


def test_empty_first_labels_do_not_take_the_path_of_the_root() -> None:
    paths = PathDomain(column="p", depth=2)
    column = pa.array(["", "/", "//", "/a/b", "//a/b/c", "a//b"])
    assert counted(paths, {"p": column}) == [{"": 3}, {"a": 3}, {"a/b": 2, "a/": 1}]
    pairs = LabelDomain(label_columns=("x", "y"))
    columns = {"x": pa.array(["", "a", "", "a"]), "y": pa.array(["b", "", "", "b"])}
    assert counted(pairs, columns) == [{"": 1}, {"a": 1}, {"a/b": 1}]


@settings(deadline=None)
@given(st.lists(st.text(alphabet="a/é", max_size=8), max_size=12), st.integers(0, 3))
def test_prefixes_of_texts(texts: list[str], labels: int) -> None:
    padded = as_texts(["out/of", *texts, "sight"])[1:-1]
    expected = [
        "/".join(t.split("/")[:labels]) if t.count("/") + 1 >= labels else None for t in texts
    ]
    assert text_prefixes(padded, labels, ord("/")).to_pylist() == expected


@settings(deadline=None)
@given(st.lists(LABELS | st.text(alphabet="ab", max_size=30), max_size=8))
def test_parts_depend_on_the_key_alone(texts: list[str]) -> None:
    parts = key_parts(as_texts(["x", *texts])[1:], 1000).tolist()
    assert parts == [int(key_parts(as_texts([text]), 1000)[0]) for text in texts]


def test_parts_are_the_same_however_many_letters_are_hashed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = as_texts(["", "a" * 5000, "ba", "", "ab", "c" * 9, "", ""])
    whole = key_parts(texts, 2**40).tolist()
    assert len(set(whole)) == 5
    for letters in (1, 7, 100):
        monkeypatch.setattr("dptrees.dpcore.questions.sparse_counts._LETTERS_AT_ONCE", letters)
        assert key_parts(texts, 2**40).tolist() == whole


def test_parts_are_of_like_sizes() -> None:
    numbers = np.arange(64_000, dtype=np.uint64)
    texts = as_texts([f"user-{n:06d}" for n in range(64_000)])
    for keys in (pa.array(numbers), pa.array(numbers << np.uint64(40)), texts):
        sizes = np.bincount(key_parts(keys, 64), minlength=64)
        # 1000 on average; six standard deviations of a binomial count.
        assert sizes.min() > 810 and sizes.max() < 1190


def test_digests_distinguish_keys() -> None:
    different = [
        as_texts([]),
        as_texts([""]),
        as_texts(["a", "b"]),
        as_texts(["ab", ""]),
        as_texts(["", "ab"]),
        pa.array([1, 2], pa.uint64()),
        pa.array([2, 1], pa.uint64()),
        pa.array([1], pa.uint64()),
    ]
    assert len({key_digest(keys) for keys in different}) == len(different)
    assert key_digest(as_texts(["x", "a", "b"])[1:]) == key_digest(as_texts(["a", "b"]))


def test_parents_are_the_shorter_keys() -> None:
    keys = BYTES.leaf_counts({"a": pa.array(["10.1.2.3"])}).keys
    for level in range(4, 0, -1):
        above = BYTES.parent_keys(level, keys)
        bits = BYTES.prefix_bits[level - 1]
        whole = ipaddress.ip_network(f"10.1.2.3/{bits}", strict=False)
        assert BYTES.paths(level - 1, above).to_pylist() == [str(whole)]
        keys = above
    assert keys.equals(BYTES.root_keys)
    wide = CodeDomain(column="c", widths=(64,), notation="hex")
    assert wide.parent_keys(1, pa.array([2**64 - 1], pa.uint64())).equals(wide.root_keys)


def test_domains_come_back_from_what_is_stored_and_sent() -> None:
    for domain in (
        BYTES,
        CodeDomain(column="c", widths=(64,), notation="hex"),
        LabelDomain(label_columns=("x", "y")),
        PathDomain(column="p", depth=3, separator="."),
    ):
        assert domain_from_spec(json.loads(json.dumps(domain.spec()))) == domain
        assert len(domain.names) == domain.height and domain.root_keys.type == domain.key_type
        assert pickle.loads(pickle.dumps(domain)) == domain
    with pytest.raises(ValueError, match="form is 'x'"):
        domain_from_spec({"form": "x"})


def test_an_odd_number_of_bits() -> None:
    assert prefix_texts(np.array([0b10110], np.uint64), 4, hex_digits=2).to_pylist() == ["16/4"]


def test_bad_arguments_are_named() -> None:
    codes: list[tuple[dict[str, Any], str]] = [
        ({"widths": ()}, "widths"),
        ({"widths": (0, 32)}, "widths"),
        ({"widths": (33, 32), "notation": "hex"}, "widths"),
        ({"widths": (16,)}, "an ipv4 address has 32"),
        ({"widths": (32,), "notation": "x"}, "notation is 'x'"),
    ]
    check_refusals(partial(CodeDomain, column="c"), codes)
    labels: list[tuple[dict[str, Any], str]] = [
        ({"label_columns": ()}, "label_columns"),
        ({"label_columns": ("a", "a")}, "label_columns"),
        ({"label_columns": ("a", "root")}, "a column is called root"),
    ]
    check_refusals(LabelDomain, labels)
    paths: list[tuple[dict[str, Any], str]] = [
        ({"depth": 0}, "depth is 0"),
        ({"depth": 1, "separator": "::"}, "separator is '::'"),
        ({"depth": 1, "separator": "é"}, "separator is 'é'"),
    ]
    check_refusals(partial(PathDomain, column="c"), paths)
    hexadecimal = CodeDomain(column="a", widths=(8,), notation="hex")
    for domain, column, words in (
        (BYTES, pa.array([True]), "it must be integers or texts of"),
        (hexadecimal, pa.array(["x"]), "it must be integers$"),
        (PathDomain(column="a", depth=1), pa.array([1]), "it must be texts"),
    ):
        with pytest.raises(ValueError, match=words):
            domain.leaf_counts({"a": column})
