"""Lists of keys, categories and leaves are given as Python has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dptrees

pandas = pytest.importorskip("pandas")
PRIVACY = {"epsilon": 1, "neighbors": "add_remove"}
LISTS: dict[str, Callable[[], Any]] = {
    "range": lambda: range(3),
    "tuple": lambda: (0, 1, 2),
    "keys of a dictionary": lambda: {0: "a", 1: "b", 2: "c"}.keys(),
    "NumPy": lambda: np.arange(3),
    "pandas series": lambda: pandas.Series([0, 1, 2]),
    "pandas index": lambda: pandas.Index([0, 1, 2]),
    "pandas categories": lambda: pandas.Categorical([0, 1, 2]),
    "a frame of one column": lambda: pandas.DataFrame({"g": [0, 1, 2]}),
    "Arrow": lambda: pa.array([0, 1, 2]),
    "Arrow, in chunks": lambda: pa.chunked_array([[0, 1], [2]]),
    "Arrow table": lambda: pa.table({"g": [0, 1, 2]}),
    "Polars": lambda: pytest.importorskip("polars").Series([0, 1, 2]),
    "Polars frame": lambda: pytest.importorskip("polars").DataFrame({"g": [0, 1, 2]}),
}


def test_any_list_of_values_will_do() -> None:
    for name, make in LISTS.items():
        given = make()
        by = {"column": "g", "keys": given}
        trees = [
            {"name": "c", "domain": {"column": "g", "categories": given}},
            {"name": "k", "domain": {"column": "x", "values": [0, 9]}, "group_by": by},
        ]
        entries = dptrees.plan({"privacy": PRIVACY, "trees": trees}).to_dicts()
        assert [each["keys"] for each in entries] == [1, 3], name


def test_a_set_has_no_order() -> None:
    tree = {"name": "c", "domain": {"column": "g", "categories": {0, 1}}}
    with pytest.raises(dptrees.Error, match="categories: must be a list"):
        dptrees.plan({"privacy": PRIVACY, "trees": [tree]})
