"""Numbers of different values by the command: plan, release, queries, page, and bad input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dptrees
from dptrees.pipelines.sections.document import ConfigurationError
from tests.pipelines.conftest import NONCE, Workspace
from tests.pipelines.plans import plan_of
from tests.pipelines.refusals import not_refused

KEYS = {"column": "place", "keys": ["north", "south"]}
# Noise of this budget is 0 but for one draw of 10^12.
EXACT = {"epsilon": 400, "neighbors": "add_remove", "unit": "user", "max_rows": 3}


def tree(name: str = "cities", **keys: Any) -> dict[str, Any]:
    return {"name": name, "domain": {"kind": "distinct", "column": "city"}, **keys}


class Cities(Workspace):
    """Users with rows of cities in two places; no user has more than three of them."""

    def write_rows(self, **_: Any) -> None:
        self.rows.mkdir(exist_ok=True)
        random = np.random.default_rng(4)
        users = np.repeat(np.arange(400), 3)
        cities = [None if n == 0 else f"c{n}" for n in random.zipf(1.5, 1200) % 300]
        table = {
            "user": pa.array(users),
            "city": pa.array(cities),
            "place": pa.array(random.choice(["north", "south", "kumquat"], 1200)),
        }
        for index in range(3):
            pq.write_table(pa.table(table).slice(400 * index, 400), self.file(index))

    def configured(self, *trees: Mapping[str, Any], **privacy: Any) -> str:
        return self.configure(
            lambda settings: settings.update(
                trees=[dict(each) for each in trees], privacy=privacy or EXACT
            )
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Cities:
    """A release without noise. Tests only read it."""
    workspace = Cities(tmp_path_factory.mktemp("cities"))
    path = workspace.configured(tree(), tree("by-place", group_by=KEYS), tree("one", max_values=1))
    outcome = workspace.succeed("release", path, *NONCE)
    workspace.summary = outcome.out  # type: ignore[attr-defined]
    return workspace


def numbers(workspace: Workspace) -> dict[str | None, int]:
    """The true numbers: of all rows, and of each place."""
    rows = workspace.values().to_pandas().dropna(subset=["city"])
    by = rows.groupby("place")["city"].nunique().to_dict()
    return {None: rows["city"].nunique()} | by


def test_numbers_are_exact_within_the_bounds(made: Cities) -> None:
    truth = numbers(made)
    found = json.loads(
        made.run("query", made.output, "node", "--tree", "cities", "--path", "", "--json").out
    )
    assert [each["estimate"] for each in found["answers"]] == [truth[None]]
    for key in KEYS["keys"]:
        arguments = ("--tree", "by-place", "--path", "", "--key", key, "--json")
        found = json.loads(made.run("query", made.output, "node", *arguments).out)
        assert [each["estimate"] for each in found["answers"]] == [truth[key]]
    assert f"different values of city {truth[None]}" in made.summary  # type: ignore[attr-defined]
    assert "at most 1 value of each user count" in made.summary  # type: ignore[attr-defined]


def test_the_plan_states_the_bound_and_the_noise(made: Cities) -> None:
    privacy = EXACT | {"epsilon": 1, "neighbors": "substitute"}
    path = made.configured(tree(), tree("by-place", group_by=KEYS), **privacy)
    first, second = json.loads(made.run("plan", path, "--json").out)["trees"]
    assert (first["max_values"], first["noise"]["scale"]) == (3, "6")
    assert (second["max_values"], second["noise"]["scale"]) == (3, "12")
    target = made.run("plan", path, "--target-error", "cities=5", "--json")
    (found, _) = json.loads(target.out)["trees"]
    assert found["target"]["unit"] == "different values"
    made.succeed("verify", made.output)


def test_csv_columns_are_read_as_the_type_says(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("code\n7\n07\n8\n\n")
    privacy = {"epsilon": 400, "neighbors": "add_remove"}
    for type, number in (("text", 3), ("integer", 2), ("number", 2)):
        domain = {"kind": "distinct", "column": "code", "type": type}
        config = {"privacy": privacy, "trees": [{"name": "codes", "domain": domain}]}
        config["input"] = {"format": "csv", "path": str(tmp_path / "rows.csv")}
        release = dptrees.release(None, config)
        assert release["codes"].nodes(level=0)["estimate"] == [number]


def test_bad_input() -> None:
    bounded = {"kind": "distinct", "column": "city", "lower": 0}
    rows = [
        ({"name": "t", "domain": bounded}, "domain.lower: unknown key; known are kind, column, ty"),
        (tree(quantiles=[0.5]), "quantiles: belongs to an ordered domain; the different values of"),
    ]
    rows = [(bad, f"x.yaml: trees[0].{words}") for bad, words in rows]
    assert not not_refused(lambda bad: plan_of(bad, **EXACT), rows, ConfigurationError)


def test_a_bound_above_that_of_the_unit_counts_as_that(tmp_path: Path) -> None:
    workspace = Cities(tmp_path)
    path = workspace.configured(tree(max_values=100))
    (entry,) = json.loads(workspace.run("plan", path, "--json").out)["trees"]
    assert entry["max_values"] == 3
