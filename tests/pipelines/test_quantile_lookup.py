"""A released quantile is looked up: the same answer as with the plan, which is not made."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dptrees
from benchmarks.calls import functions_run
from dptrees.pipelines.query.release_folder import FolderError, ReleaseFolder
from tests.pipelines.conftest import Outcome, Workspace, edit_manifest, put, update
from tests.pipelines.test_hostile_folders import reseal

# Of functions and of files, for a released quantile.
MOST_FUNCTIONS, MOST_FILES = 90, 25
AGES = {"column": "x", "type": "integer", "lower": 0, "upper": 100}
DAYS = {"column": "day", "lower": date(2024, 1, 1), "upper": date(2024, 12, 31)}
PLACES = {"column": "place", "keys": ["north", "south", "all"]}
SIZES = {"column": "size", "keys": [7, 12], "labels": ["small", "large"]}
TREES: list[dict[str, Any]] = [
    {"name": "ages", "domain": AGES, "quantiles": [0.0, 0.25, 0.5, 1.0]},
    {"name": "inside", "domain": AGES | {"out_of_range": "drop"}, "quantiles": [0.5]},
    {"name": "days", "domain": DAYS, "group_by": SIZES, "quantiles": [0.9, 0.5]},
    {"name": "places", "domain": AGES, "group_by": PLACES, "quantiles": [0.5, 1.0]},
    {"name": "alone", "domain": AGES, "quantiles": [0.5], "mechanism": "exponential"},
    {"name": "none", "domain": AGES},
]
QUERIES = [
    *("quantile 0.5 --tree ages", "quantile 0 1 0.25 --tree ages --json", "median --tree ages"),
    *("quantile 0.3 --tree ages", "quantile 0.5 0.3 --tree ages --csv", "median --tree inside"),
    *("median --tree ages --confidence 0.95", "median --tree ages --confidence 0.9"),
    *("quantile .5 --tree days --key small", "quantile 0.9 --tree days --key 12 --json"),
    *("quantile 0.5 0.9 --tree days --key all", "median --tree days --key all --wide"),
    *("median --tree places --key all", "quantile 1 --tree places --key north --csv"),
    *("median --tree alone", "median --tree none", "median --tree ages --running"),
    # Refusals.
    *("median --tree days", "median --tree ages --key north", "median --tree ages --key all"),
    *("median --tree places --key west", "quantile 2 --tree ages", "quantile x --tree ages"),
    *("median --tree ages --column x", "median --tree ages --confidence 2", "median"),
    *("median --tree other", "median --tree ages --window 1:2"),
]


@pytest.fixture(scope="module")
def quantiles(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with a release of quantiles. Tests only read it."""
    workspace = Workspace(tmp_path_factory.mktemp("quantiles"))
    ages = pa.array([-5, 3, 40, 41, 99, 130, 140, 150] * 250)
    days = pa.array(["2024-03-01", "2024-05-20"] * 1000).cast(pa.date32())
    places = pa.array(["north", "south", "all", "north"] * 500)
    workspace.write_rows(x=ages, place=places, day=days, size=pa.array([7, 12] * 1000))
    workspace.make(update(trees=TREES))
    return workspace


def asked(workspace: Workspace, query: str) -> Outcome:
    kind, *rest = query.split()
    return workspace.run("query", workspace.output, kind, *rest)


@pytest.mark.parametrize("query", QUERIES)
def test_the_plan_gives_the_same_answer(
    quantiles: Workspace, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = asked(quantiles, query)
    monkeypatch.setattr(ReleaseFolder, "lookup", lambda self, tree: None)
    assert found == asked(quantiles, query)


@pytest.mark.parametrize("tree", [each["name"] for each in TREES])
@pytest.mark.parametrize("key", [None, "north", "small", 12, "all"])
@pytest.mark.parametrize("requested", [None, 0.5, [0.5, 1], 0.3, 2, "x"])
def test_python_gives_the_same_answer(
    quantiles: Workspace, tree: str, key: object, requested: object
) -> None:
    def answers() -> tuple[object, ...]:
        try:
            found = dptrees.open(quantiles.output)[tree].quantiles(requested, key=key)
        except dptrees.Error as error:
            return (str(error),)
        return (*vars(found).values(), found.table.schema)

    looked_up = answers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReleaseFolder, "lookup", lambda self, tree: None)
        assert looked_up == answers()


def test_it_runs_few_functions(quantiles: Workspace) -> None:
    query = "quantile 0.25 --tree ages"
    asked(quantiles, query)
    ran = functions_run(lambda: asked(quantiles, query))
    in_python = functions_run(lambda: dptrees.open(quantiles.output)["ages"].quantiles(0.25))
    for found in (ran, in_python):
        assert sum(map(len, found.values())) <= MOST_FUNCTIONS, found
        assert len(found) <= MOST_FILES, found
    assert "dpcore/release/plan.py" not in {*ran, *in_python}


def test_a_table_of_another_form_is_answered_as_with_the_plan(quantiles: Workspace) -> None:
    """Whatever a forged table holds: the lookup answers only from the rows that it expects."""
    path = quantiles.output / "quantiles.parquet"
    table = pq.read_table(path)
    whole = path.read_bytes(), (quantiles.output / "manifest.json").read_bytes()
    forged = [
        table.slice(1),
        table.slice(0, 0),
        table.drop_columns(["value_text"]),
        table.set_column(2, "q", pa.array([0.25] * len(table))),
        table.set_column(0, "tree", pa.array([1] * len(table))),
        pa.concat_tables([table, table]),
    ]
    try:
        for each in forged:
            pq.write_table(each, path)
            reseal(quantiles.output)
            for query in ("median --tree ages", "median --tree days --key all"):
                found = asked(quantiles, query)
                assert found.code in (0, 2)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(ReleaseFolder, "lookup", lambda self, tree: None)
                    assert found == asked(quantiles, query)
    finally:
        path.write_bytes(whole[0])
        (quantiles.output / "manifest.json").write_bytes(whole[1])


def test_what_was_edited_is_refused_before_the_lookup(again: Workspace) -> None:
    again.output.joinpath("manifest.json").write_text(
        json.dumps(json.loads((again.output / "manifest.json").read_text()) | {"nonce": "0" * 32})
    )
    with pytest.raises(FolderError, match="checksum does not match"):
        ReleaseFolder(str(again.output))
    edit_manifest(again.output, put("guarantee.neighbors", "substitute"))
    with pytest.raises(FolderError, match="guarantee is not that of its specification"):
        ReleaseFolder(str(again.output))


def _twice(entries: dict[str, Any]) -> None:
    entries["spec"]["trees"].append(dict(entries["spec"]["trees"][0]))
    entries["trees"].append(dict(entries["trees"][0]))


FORGED: dict[str, Any] = {
    "another format": put("spec.format", "9"),
    "a format that is no integer": put("spec.format", 99.0),
    "a tree above the budget": put("spec.trees.0.budget", "100"),
    "a name twice": _twice,
    "no parts": lambda entries: entries.pop("parts"),
    "a tree without its entry": lambda entries: entries["trees"].pop(),
}


def test_a_forged_manifest_with_a_new_checksum_is_refused(again: Workspace) -> None:
    """Also before a lookup, which needs no plan; and `verify` reports every check all the same."""
    manifest = again.output / "manifest.json"
    whole = manifest.read_bytes()
    for name, change in FORGED.items():
        edit_manifest(again.output, change)
        with pytest.raises(FolderError):
            ReleaseFolder(str(again.output))
        outcome = again.run("verify", again.output)
        assert outcome.code == 2 and outcome.out.count("\n") > 5, (name, outcome)
        with pytest.raises(dptrees.Error, match="cannot be read by this program"):
            dptrees.open(again.output)
        manifest.write_bytes(whole)
