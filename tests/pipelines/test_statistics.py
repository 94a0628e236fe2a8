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
PRIVACY = {"epsilon": 10, "neighbors": "add_remove"}
ROWS = {"age": AGES, "sex": np.where(np.arange(20_000) % 3 == 0, "f", "m"), "x": AGES / 10}
AGE = {"column": "age", "type": "integer", "lower": 0, "upper": 100}
TREES = [
    {"name": "age", "domain": AGE},
    {"name": "by", "domain": AGE, "group_by": {"column": "sex", "keys": ["f", "m"]}},
    {"name": "x", "domain": {"column": "x", "lower": 0, "upper": 10, "cells": 50}},
    {"name": "sex", "domain": {"column": "sex", "categories": ["f", "m"]}},
]


@pytest.fixture(scope="module")
def release() -> Any:
    return dptrees.release(ROWS, {"privacy": PRIVACY, "trees": TREES})


@pytest.fixture
def folder(release: Any, tmp_path: Path) -> str:
    return str(release.save(tmp_path / "out"))


def asked(*arguments: str) -> str:
    """What the command printed, without its exit code, which is 0."""
    reported = said("query", *arguments)
    assert reported.startswith("0 "), reported
    return reported


def answers(*arguments: str) -> list[dict[str, Any]]:
    """The answers in JSON."""
    printed = asked(*arguments, "--json")
    found = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
    return list(found["answers"])


def test_json_has_all_numbers(folder: str) -> None:
    means = answers(folder, "mean", "--tree", "by", "--key", "all")
    assert [each["key"] for each in means] == ["f", "m"]
    for each in means:
        true = float(AGES[ROWS["sex"] == each["key"]].mean())
        assert each["ci_low"] - 0.5 < true < each["ci_high"] + 0.5 and each["within"] == 0
        assert each["statistic"] == "mean"


def test_the_same_in_python(release: Any, folder: str) -> None:
    (answer,) = answers(folder, "variance", "--tree", "age", "--range", "20", "")
    found = release["age"].variance(20)
    assert found.value == answer["value"]
    assert found.interval == (answer["ci_low"], answer["ci_high"])
    true = AGES[AGES >= 20]
    assert abs(found.value - true.var()) < 20 * answer["std_error"] + 1
    assert release["by"].mean()["key"] == ["f", "m"]
    assert abs(release["by"].total(key="f").value - AGES[ROWS["sex"] == "f"].sum()) < 5_000
    assert abs(release["x"].std().value - (AGES / 10).std()) < 0.1


def test_an_overview_of_every_key(release: Any, folder: str) -> None:
    found = release["by"].describe().to_dicts()
    names = ["rows", "mean", "std", "25 %", "50 %", "75 %"]
    assert [each["statistic"] for each in found] == [*names, *names]
    assert answers(folder, "describe", "--tree", "by", "--key", "all") == found
    mean = release["by"].mean(key="f")
    assert found[1] == {"key": "f", "statistic": "mean", "value": mean.value} | {
        "ci_low": mean.interval[0],
        "ci_high": mean.interval[1],
    }
    median = float(np.median(AGES[ROWS["sex"] == "f"]))
    assert abs(found[4]["value"] - median) <= 1


def test_an_overview_of_days_has_no_mean() -> None:
    # The median is in the middle of a day: 25 rows from its edges, and the noise is of one row.
    days = np.datetime64("2024-01-01") + np.arange(3_050) % 61
    domain = {"column": "day", "lower": date(2024, 1, 1), "upper": date(2024, 3, 2)}
    config = {"privacy": PRIVACY, "trees": [{"name": "day", "domain": domain}]}
    rows, mean, std, low, middle, _ = dptrees.release({"day": days}, config)["day"].describe()
    assert rows["value"].startswith("3,0") and mean["value"] is None is std["value"]
    assert low["value"] < middle["value"] == middle["ci_low"] == "2024-01-31"


REFUSED = {
    ("mean", "--tree", "sex"): "mean: column 'sex': values of type category have no mean",
    ("std", "--tree", "by"): "key: tree by needs a key of sex: --key KEY, or --key all",
    ("mean", "--tree", "x", "--range", "0.05", "1"): "mean: 0.05 is no edge of a cell of",
    ("mean", "--tree", "age", "--range", "30", "20"): "mean: 30 is not below 20",
    ("describe", "--tree", "sex"): "describe: tree sex has no CDF and no mean",
    ("total", "--tree", "by", "--key", "all", "--wide"): "--wide: is for counts and quantiles, not",
}


def test_what_is_refused(folder: str) -> None:
    for arguments, sentence in REFUSED.items():
        reported = said("query", folder, *arguments)
        assert reported.startswith("2 ") and sentence in reported
