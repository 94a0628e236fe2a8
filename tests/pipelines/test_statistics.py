"""Means, variances and totals by the command and in Python."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dptrees
from tests.golden.hashes import said

RNG = np.random.default_rng(8)
AGES = RNG.gamma(6.0, 7.0, 20_000).clip(0, 99).astype(int)
ROWS = {"age": AGES, "sex": np.where(np.arange(20_000) % 3 == 0, "f", "m"), "x": AGES / 10}
AGE = {"column": "age", "type": "integer", "lower": 0, "upper": 100}
TREES = [
    {"name": "age", "domain": AGE},
    {"name": "by", "domain": AGE, "group_by": {"column": "sex", "keys": ["f", "m"]}},
    {"name": "x", "domain": {"column": "x", "lower": 0, "upper": 10, "cells": 50}},
    {"name": "sex", "domain": {"column": "sex", "categories": ["f", "m"]}},
    {
        "name": "box",
        "domain": {
            "kind": "hypercube",
            "columns": [
                {"column": name, "lower": 0, "upper": 128, "cells": 8} for name in ("age", "x")
            ],
        },
    },
]


@pytest.fixture(scope="module")
def release() -> Any:
    return dptrees.release(
        ROWS, {"privacy": {"epsilon": 10, "neighbors": "add_remove"}, "trees": TREES}
    )


@pytest.fixture
def folder(release: Any, tmp_path: Path) -> str:
    return str(release.save(tmp_path / "out"))


def asked(*arguments: str) -> str:
    """What the command printed, without its exit code, which is 0."""
    reported = said("query", *arguments)
    assert reported.startswith("0 "), reported
    return reported


def test_a_table_for_a_person(folder: str) -> None:
    printed = asked(folder, "mean", "--tree", "age")
    assert "values" in printed and "standard error" in printed and "95 % interval" in printed
    assert "[0, 100)" in printed and "of it by cells" not in printed
    wide = asked(folder, "std", "--tree", "x", "--confidence", "0.99")
    assert "99 % interval" in wide and "of it by cells" in wide
    assert "Values are known only up to their cells" in wide


def test_json_and_csv_have_all_numbers(folder: str) -> None:
    printed = asked(folder, "mean", "--tree", "by", "--key", "all", "--json")
    answers = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])["answers"]
    assert [each["key"] for each in answers] == ["f", "m"]
    for each in answers:
        true = float(AGES[ROWS["sex"] == each["key"]].mean())
        assert each["ci_low"] - 0.5 < true < each["ci_high"] + 0.5 and each["within"] == 0
        assert each["statistic"] == "mean"
    assert "key,statistic,label,value,std_error,ci_low,ci_high,within" in asked(
        folder, "total", "--tree", "by", "--key", "all", "--csv"
    )


def test_the_same_in_python(release: Any, folder: str) -> None:
    printed = asked(folder, "variance", "--tree", "age", "--range", "20", "", "--json")
    (answer,) = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])["answers"]
    found = release["age"].variance(20)
    assert found.value == answer["value"] and found.interval == (
        answer["ci_low"],
        answer["ci_high"],
    )
    true = AGES[AGES >= 20]
    assert abs(found.value - true.var()) < 20 * answer["std_error"] + 1
    assert release["by"].mean()["key"] == ["f", "m"]
    assert abs(release["by"].total(key="f").value - AGES[ROWS["sex"] == "f"].sum()) < 5_000
    assert abs(release["x"].std().value - (AGES / 10).std()) < 0.1
    assert "age: mean, 95 % intervals" in repr(release["age"].mean())


def test_an_overview_of_every_key(release: Any, folder: str) -> None:
    printed = asked(folder, "describe", "--tree", "by", "--key", "all")
    heading = printed.splitlines()[0].split()
    assert heading[1:6] == ["key", "rows", "mean", "std", "25"]
    assert "± is half of a 95 % confidence interval" in printed
    rows = asked(folder, "describe", "--tree", "by", "--key", "all", "--json")
    answers = json.loads(rows[rows.index("{") : rows.rindex("}") + 1])["answers"]
    found = release["by"].describe().to_dicts()
    names = ["rows", "mean", "std", "25 %", "50 %", "75 %"]
    assert [each["statistic"] for each in found] == [*names, *names]
    assert answers == found
    mean = release["by"].mean(key="f")
    assert found[1] == {"key": "f", "statistic": "mean", "value": mean.value} | {
        "ci_low": mean.interval[0],
        "ci_high": mean.interval[1],
    }
    median = float(np.median(AGES[ROWS["sex"] == "f"]))
    assert abs(found[4]["value"] - median) <= 1
    assert "statistic,value,ci_low,ci_high" in asked(folder, "describe", "--tree", "x", "--csv")


def test_an_overview_of_days_has_no_mean() -> None:
    days = np.datetime64("2024-01-01") + np.arange(3_000) % 60
    domain = {"column": "day", "lower": date(2024, 1, 1), "upper": date(2024, 3, 1)}
    config = {
        "privacy": {"epsilon": 10, "neighbors": "add_remove"},
        "trees": [{"name": "day", "domain": domain}],
    }
    rows, mean, std, low, middle, _ = dptrees.release({"day": days}, config)["day"].describe()
    assert rows["value"].startswith(("2,9", "3,0")) and mean["value"] is None is std["value"]
    assert low["value"] < middle["value"] == middle["ci_low"] == "2024-01-30"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("mean", "--tree", "sex"), "mean: column 'sex': values of type category have no mean"),
        (("mean", "--tree", "box"), "mean: tree box has no values that are numbers; a tree over"),
        (("std", "--tree", "by"), "key: tree by needs a key of sex: --key KEY, or --key all"),
        (("mean", "--tree", "x", "--range", "0.05", "1"), "mean: 0.05 is no edge of a cell of"),
        (("mean", "--tree", "age", "--range", "30", "20"), "mean: 30 is not below 20"),
        (("describe", "--tree", "sex"), "describe: tree sex has no CDF and no mean"),
        (
            ("total", "--tree", "by", "--key", "all", "--wide"),
            "--wide: is for counts and quantiles, not for total",
        ),
    ],
)
def test_what_is_refused(folder: str, arguments: tuple[str, ...], sentence: str) -> None:
    reported = said("query", folder, *arguments)
    assert reported.startswith("2 ") and sentence in reported
