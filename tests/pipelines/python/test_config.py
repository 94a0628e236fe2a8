"""Configurations in Python: the same values, the same refusals as of a file."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

import dptrees
from dptrees.pipelines.python.config import plain, requested_configuration
from tests.pipelines.refusals import not_refused

AGE = {"column": "age", "type": "integer", "lower": 0, "upper": 100}
CONFIG: dict[str, Any] = {
    "release": "ages",
    "privacy": {"epsilon": 0.1, "neighbors": "add_remove"},
    "trees": [{"name": "age", "domain": AGE, "quantiles": [0.5]}],
}


def digest(config: Any) -> bytes:
    return requested_configuration(config, {}, None).plan().digest


def test_dictionary_and_file_are_one(tmp_path: Path) -> None:
    path = tmp_path / "ages.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    assert digest(CONFIG) == digest(path) == digest(str(path))
    budget = requested_configuration(CONFIG, {}, None).guarantee.budget
    assert str(budget.amount) == "1/10"  # as written, not as a float is


def test_values_of_other_libraries_are_plain() -> None:
    given = {
        "numbers": np.array([1, 2]),
        "float": np.float64(0.1),
        "whole": np.int64(3),
        "texts": pa.array(["a"]),
        "day": datetime.date(2024, 1, 1),
        "path": Path("rows"),
        "scalar": pa.scalar(5),
    }
    assert plain(given) == {
        **{"numbers": [1, 2], "float": Decimal("0.1"), "whole": 3, "texts": ["a"]},
        **{"day": datetime.date(2024, 1, 1), "path": "rows", "scalar": 5},
    }


def test_refused_at_the_key_as_of_a_file() -> None:
    rows = [
        ({"privacy": {"epsilon": -1.0, "neighbors": "add_remove"}}, "config: privacy.epsilon: -"),
        ({"trees": []}, "config: trees: must have at least one"),
        ({"trees": [{"name": "a b", "domain": AGE}]}, "config: trees[0].name: 'a b'"),
        ({"colour": 1}, "config: colour: unknown key"),
        ({"trees": [{"name": "a", "domain": {1, 2}}]}, "config: trees[0].domain"),
    ]
    assert not not_refused(lambda change: dptrees.plan(CONFIG | change), rows, dptrees.Error)


def test_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(dptrees.Error, match="config: int is neither a dictionary"):
        dptrees.plan(3)  # type: ignore[arg-type]
    with pytest.raises(dptrees.Error, match=r"none\.yaml: there is no such file"):
        dptrees.plan(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("[1]")
    with pytest.raises(dptrees.Error, match=r"list\.yaml: a list must be a section"):
        dptrees.plan(tmp_path / "list.yaml")


def test_plan_of_parameters() -> None:
    config = CONFIG | {
        "trees": [{"name": "age", "domain": AGE | {"upper": "${upper}"}}],
        "parameters": {"upper": {"type": "integer", "default": 50}},
    }
    assert "age: 50 cells" in dptrees.plan(config).text
    assert "age: 70 cells" in dptrees.plan(config, set={"upper": 70}).text


def test_budget_for_an_error() -> None:
    plan = dptrees.plan(CONFIG)
    found = plan.budget_for(5)
    (age,) = found["trees"]
    assert age["error"] <= age["wanted"] == 5 and found["epsilon"] > 0.1
    assert plan.budget_for({"age": 5}) == found
    again = CONFIG | {"privacy": CONFIG["privacy"] | {"epsilon": found["epsilon"]}}
    assert dptrees.plan(again).to_dicts()[0]["error"] == pytest.approx(age["error"])
    for error, sentence in (
        ({"aged": 5}, "error: there is no tree 'aged'; did you mean age"),
        (0, "error: 0 must be a number above 0"),
        (float("nan"), "error: nan must be a number above 0"),
        ("5%", "error: '5%' must be a number above 0, in the unit of the tree"),
        ({"age": None}, "error: None must be a number above 0"),
    ):
        with pytest.raises(dptrees.Error, match=sentence):
            plan.budget_for(error)


def test_one_error_is_not_for_trees_of_several_units() -> None:
    both = dptrees.of(None, epsilon=1).cdf("age", (0, 100)).mean("size", (0, 9)).plan()
    with pytest.raises(dptrees.Error, match=r"age's in rows and size's in size times rows\); name"):
        both.budget_for(5)
    assert both.budget_for({"age": 5, "size": 50})["epsilon"] > 0
    box = {"columns": {"a": {"lower": 0, "upper": 8}, "b": {"lower": 0, "upper": 8}}}
    columns = [{"column": name, **each} for name, each in box["columns"].items()]
    domain = {"kind": "hypercube", "columns": columns}
    alone = CONFIG | {"trees": [{"name": "box", "domain": domain}]}
    with pytest.raises(dptrees.Error, match="error: no tree has an error that is known"):
        dptrees.plan(alone).budget_for(5)


LISTS: dict[str, Callable[[], Any]] = {
    "range": lambda: range(3),
    "tuple": lambda: (0, 1, 2),
    "keys of a dictionary": lambda: {0: "a", 1: "b", 2: "c"}.keys(),
    "NumPy": lambda: np.arange(3),
    "pandas series": lambda: pytest.importorskip("pandas").Series([0, 1, 2]),
    "pandas index": lambda: pytest.importorskip("pandas").Index([0, 1, 2]),
    "pandas categories": lambda: pytest.importorskip("pandas").Categorical([0, 1, 2]),
    "a frame of one column": lambda: pytest.importorskip("pandas").DataFrame({"g": [0, 1, 2]}),
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
        entries = dptrees.plan(CONFIG | {"trees": trees}).to_dicts()
        assert [each["keys"] for each in entries] == [1, 3], name


def test_a_set_has_no_order() -> None:
    tree = {"name": "c", "domain": {"column": "g", "categories": {0, 1}}}
    with pytest.raises(dptrees.Error, match="categories: must be a list"):
        dptrees.plan(CONFIG | {"trees": [tree]})
