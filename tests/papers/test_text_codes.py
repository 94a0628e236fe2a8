"""Codes of strings: one hash a distinct value, whatever way the column is held."""

from __future__ import annotations

import pickle

import mmh3
import numpy as np
import pyarrow as pa
import pytest

from benchmarks.papers.text_codes import TextHash
from dptrees.dpcore.noise.randomness import public_stream

TEXTS = ["a", "b", "", "a", "naïve", "b", "x" * 1000]


@pytest.fixture
def hashing() -> TextHash:
    return TextHash(public_stream("texts"))


def test_the_codes_are_murmur_s_under_the_streams_seed(hashing: TextHash) -> None:
    seed = int(public_stream("texts").uint64(1)[0]) % 2**32
    expected = [mmh3.hash64(text.encode(), seed, signed=False)[0] for text in TEXTS]
    assert hashing.codes(pa.array(TEXTS)).tolist() == expected
    assert [hashing.code(text.encode()) for text in TEXTS] == expected


COLUMNS = {
    "large": pa.array(TEXTS, pa.large_string()),
    "bytes": pa.array([text.encode() for text in TEXTS], pa.binary()),
    "large bytes": pa.array([text.encode() for text in TEXTS], pa.large_binary()),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "slice": pa.array(["z", *TEXTS, "y"]).slice(1, len(TEXTS)),
    "slice of a dictionary": pa.array(["z", *TEXTS]).dictionary_encode().slice(1),
    "chunks": pa.chunked_array([TEXTS[:3], [], TEXTS[3:]]),
    "unused null": pa.DictionaryArray.from_arrays(
        pa.array([1, 2, 3, 1, 4, 2, 5]), pa.array([None, "a", "b", "", "naïve", "x" * 1000])
    ),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_however_the_column_is_held(kind: str, hashing: TextHash) -> None:
    found = hashing.codes(COLUMNS[kind])
    assert found.dtype == np.uint64
    assert found.tolist() == hashing.codes(pa.array(TEXTS)).tolist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None]),
        pa.array(["a", None]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
    ],
)
def test_a_null_has_no_code(column: pa.Array, hashing: TextHash) -> None:
    with pytest.raises(ValueError, match="a row is null"):
        hashing.codes(column)


def test_the_seed_does_not_show_or_travel(hashing: TextHash) -> None:
    assert repr(hashing) == "TextHash(<secret>)"
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        pickle.dumps(hashing)
