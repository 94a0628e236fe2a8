"""The request of a configuration, and plans of every kind as a folder keeps them."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dptrees.dpcore.release.guarantee import plan_manifest
from dptrees.pipelines.config.configuration import Configuration, load_configuration
from dptrees.pipelines.config.request import first_change, requested
from dptrees.pipelines.run.planned_once import planned_once
from dptrees.transforms.folder.names import PLAN
from dptrees.transforms.steps.kept_plan import KeptPlan
from tests.golden.configurations import write_configuration, write_data

# One of each kind of plan, of those that are planned at once.
KINDS = (
    *("cdf-rho", "quantiles-by", "exponential-intervals", "factorised", "for-counts", "adaptive"),
    *("hierarchy-by-rho", "sums", "adaptive-hierarchy", "sparse-labels", "box-count-sketch"),
    *("invariants", "thresholds", "mixed"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    write_data(folder)
    return folder


def loaded(place: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Configuration:
    monkeypatch.chdir(place)
    path = write_configuration(place, name)
    # The bound of the rows keeps the calibration of thresholds short.
    path.write_text(path.read_text().replace(", alpha: ", ", rows_at_most: 2000, alpha: "))
    return load_configuration(str(path))


@pytest.mark.parametrize("name", KINDS)
def test_a_plan_of_every_kind_is_read_back(
    place: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = loaded(place, name, monkeypatch)
    plan, key = configuration.plan(), configuration.key.load()
    kept = KeptPlan.sealed(plan, configuration.request, key)
    assert KeptPlan.from_bytes(kept.to_bytes()) == kept
    folder = Path(configuration.output)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PLAN).write_bytes(kept.to_bytes())

    def refuse(self: Configuration) -> None:
        raise AssertionError("it was planned again")

    monkeypatch.setattr(Configuration, "plan", refuse)
    found = planned_once(loaded(place, name, monkeypatch))
    assert found.digest == plan.digest
    assert plan_manifest(found) == plan_manifest(plan)


def test_paths_and_keys_are_no_part_of_a_request(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(loaded(place, "mixed", monkeypatch).request)
    for absent in ("rows.parquet", "cities.parquet", "release.key", "out/"):
        assert absent not in text


def test_numbers_are_exact() -> None:
    for number, text in (
        (Fraction(1, 10), "0.1"),
        (Fraction(-5, 4), "-1.25"),
        (Fraction(1, 10**15), "0.000000000000001"),
        (Fraction(3), 3),
        (Fraction(1, 3), "1/3"),
        (Fraction(123456789, 1000), "123456.789"),
    ):
        assert requested(number) == text
        assert Fraction(text) == number  # type: ignore[arg-type]


def test_long_lists_are_digests() -> None:
    first, second = (requested([*range(200), end]) for end in (1, 2))
    assert first["values"] == 201 and first["sha256"] != second["sha256"]


def test_what_is_no_value_is_refused() -> None:
    with pytest.raises(TypeError, match="object is no value of a request"):
        requested(object())


def box_with(outside: str) -> dict[str, Any]:
    return {"trees": [{"domain": {"columns": [{"outside": outside}]}}]}


def chosen_rows(share: str) -> dict[str, Any]:
    return {"privacy": {"max_rows": {"auto": {"share": share}}}}


CHANGES: list[tuple[Any, Any, str]] = [
    ({"a": 1}, {"a": 1}, ""),
    ({"a": 1}, {"a": True}, "a was 1, now true"),
    ({"a": [1, 2]}, {"a": [1]}, "a[1] was 2, now left out"),
    ({"a": {"b": "x"}}, {"a": {"b": "y"}}, "a.b was x, now y"),
    ({"a": 100.0}, {"a": 120.5}, "a was 100, now 120.5"),
    ({}, {"a": {"b": 1}}, "a was left out, now given"),
    ({"a": True}, {"a": "true"}, 'a was true, now "true"'),
    ({"a": [1]}, {"a": {"b": 1}}, 'a was [1], now {"b": 1}'),
    ({"a": "left out"}, {}, 'a was "left out", now left out'),
    (
        box_with("drop"),
        box_with("clamp"),
        "trees[0].domain.columns[0].out_of_range was drop, now clamp",
    ),
    (chosen_rows("0.1"), chosen_rows("0.2"), "privacy.max_rows.fraction was 0.1, now 0.2"),
    (
        {"trees": [{"level_weights": {"share": 1}}]},
        {"trees": [{"level_weights": {"share": 2}}]},
        "trees[0].level_weights.share was 1, now 2",
    ),
]


def test_the_first_change() -> None:
    for before, now, change in CHANGES:
        assert first_change(before, now) == change
