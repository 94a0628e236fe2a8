"""Numbers of one width are read as they are written, and nothing else is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.rows.numbers import read_numbers, write_numbers


@given(st.lists(st.integers(0, 9999), max_size=9), st.sampled_from(["0000", "00-00", "0T000"]))
def test_numbers_are_read_as_written(numbers: list[int], picture: str) -> None:
    texts = write_numbers(np.array(numbers, np.int64), picture)
    digits = [text.replace("-", "").replace("T", "") for text in texts.to_pylist()]
    assert digits == [f"{number:04d}" for number in numbers]
    assert read_numbers(texts, picture).tolist() == numbers
    wrongs = ["", "00", "00:00", "0a000", "00-0x", "000/", "000:", "-001", "000000"]
    for wrong in (*wrongs, "\u0660\u0660"):
        mixed = pa.concat_arrays([texts, pa.array([wrong], pa.large_string())])
        assert read_numbers(mixed, picture).tolist() == [*numbers, -1]
