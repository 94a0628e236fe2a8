"""Codes of strings: one hash a distinct value, whatever way the column is held."""

from __future__ import annotations

import pickle

import mmh3
import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.sketches.text_codes import TextHash

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


def test_however_the_column_is_held(hashing: TextHash) -> None:
    for kind, column in COLUMNS.items():
        found = hashing.codes(column)
        assert found.dtype == np.uint64
        assert found.tolist() == hashing.codes(pa.array(TEXTS)).tolist(), kind


def test_a_null_has_no_code(hashing: TextHash) -> None:
    plain = pa.array(["a", None])
    listed = pa.DictionaryArray.from_arrays(pa.array([0, 1]), plain)
    for column in (plain, plain.dictionary_encode(), listed):
        with pytest.raises(ValueError, match="a row is null"):
            hashing.codes(column)


def test_the_seed_does_not_show_or_travel(hashing: TextHash) -> None:
    assert repr(hashing) == "TextHash(<secret>)"
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        pickle.dumps(hashing)
