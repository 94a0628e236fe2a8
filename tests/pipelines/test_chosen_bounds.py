"""Bounds that are chosen, by the command: two stages, one guarantee, every way to fail."""

from __future__ import annotations

import json
import shutil
import signal
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dptrees
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.release.released import release_rows
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.run.stage import Stage
from dptrees.transforms.errors import InputError
from dptrees.transforms.release import ReleaseTrees
from tests.pipelines.conftest import NONCE, Workspace
from tests.pipelines.ledger.asked import account_of, opened

AUTO = {"fraction": 0.1, "at_most": 100}
SIZES = 18


def rows() -> pa.Table:
    """People of 1 to 60 rows, most of few."""
    random = np.random.default_rng(2)
    numbers = np.minimum(random.zipf(2, 800), 60)
    people = np.repeat(np.arange(800), numbers)
    shops = random.choice(["x", "y", "z", "kumquat"], len(people))
    values = {"x": pa.array(random.normal(50, 20, len(people))), "shop": pa.array(shops)}
    return pa.table({"person": pa.array(people), **values})


def write_people(workspace: Workspace) -> Workspace:
    """Give a workspace rows of people; return it."""
    shutil.rmtree(workspace.rows)
    workspace.rows.mkdir()
    pq.write_table(rows(), workspace.file(0))
    return workspace


@pytest.fixture
def people(workspace: Workspace) -> Workspace:
    """A workspace whose rows have people."""
    return write_people(workspace)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release with a chosen bound. Tests only read it."""
    workspace = write_people(Workspace(tmp_path_factory.mktemp("people")))
    outcome = workspace.release(change())
    assert outcome.code == 0, outcome.err
    return workspace.output


@pytest.fixture
def chosen(people: Workspace, made: Path) -> Workspace:
    """A workspace of people whose output holds their release."""
    shutil.copytree(made, people.output)
    return people


def change(max_rows: Any = AUTO, **privacy: Any) -> Any:
    """One tree, of a unit of as many rows as are chosen."""

    def apply(settings: dict[str, Any]) -> None:
        settings["privacy"] |= {"unit": "person", "max_rows": max_rows} | privacy
        settings["privacy"] = {n: v for n, v in settings["privacy"].items() if v is not None}
        settings["trees"] = [settings["trees"][0]]

    return apply


def keyed(max_keys: Any = AUTO, **privacy: Any) -> Any:
    """One tree by shops, of a unit of as many keys as are chosen."""

    def apply(settings: dict[str, Any]) -> None:
        bounds = {"unit": "person", "max_rows": 20, "max_rows_per_key": 5, "max_keys": max_keys}
        settings["privacy"] |= bounds | privacy
        settings["privacy"] = {n: v for n, v in settings["privacy"].items() if v is not None}
        by = {"column": "shop", "keys": ["x", "y", "z"]}
        settings["trees"] = [settings["trees"][0] | {"group_by": by}]

    return apply


def read_files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("report.html", "run.json")
    }


def chosen_rows(workspace: Workspace) -> int:
    bounds = ReleaseFolder(str(workspace.output)).plan.bounds
    assert bounds is not None and bounds.values is not None
    return dict(bounds.values)["max_rows"]


def test_a_bound_is_chosen_and_trees_are_made_with_it(people: Workspace) -> None:
    outcome = people.release(change())
    assert outcome.code == 0, outcome.err
    folder = ReleaseFolder(str(people.output))
    bound = chosen_rows(people)
    assert folder.plan.unit.rows == bound and 1 <= bound <= 100
    stage = ReleaseFolder(str(people.output / "bounds"))
    guarantee: Any = folder.manifest["guarantee"]
    assert guarantee["epsilon"] == "1" and guarantee["bounds_epsilon"] == "1/10"
    assert "(max_rows) was chosen and released first, for epsilon = 0.1" in guarantee["words"]
    (entry,) = stage.manifest["trees"]  # type: ignore[misc]
    assert entry["mechanism"] == "exponential mechanism over bounds"
    assert entry["epsilon"] == "1/10" and len(entry["sizes"]) == SIZES
    own, first = folder.plan.spending, stage.plan.spending
    assert own.epsilon + first.epsilon == 1
    assert f"small: epsilon = 1 per person (at most {bound} row" in outcome.out
    assert f"epsilon is {1}" in (people.output / "report.html").read_text().lower()
    assert stage.plan.unit.rows == 1


@pytest.mark.parametrize(
    "privacy",
    [{"epsilon": None, "rho": 0.5}, {"delta": 1e-6}, {"neighbors": "substitute"}],
)
def test_every_guarantee_adds_up(people: Workspace, privacy: dict[str, Any]) -> None:
    outcome = people.release(change(**privacy))
    assert outcome.code == 0, outcome.err
    folder = ReleaseFolder(str(people.output))
    bounds = folder.plan.bounds
    assert bounds is not None
    guarantee: Any = folder.manifest["guarantee"]
    if "rho" in privacy:
        assert guarantee["rho"] == "1/2" and guarantee["bounds_rho"] == "1/20"
        assert folder.plan.spending.rho + bounds.plan.spending.rho == Fraction(1, 2)
    else:
        assert guarantee["epsilon"] == "1" and guarantee["bounds_epsilon"] == "1/10"
    config = load_configuration(people.configure(change(**privacy)))
    assert people.run("verify", people.output, "--data", config.source).code == 0


def test_the_stages_are_those_in_memory(chosen: Workspace) -> None:
    key = ReleaseKey.from_text(chosen.key.read_text())
    stage = ReleaseFolder(str(chosen.output / "bounds"))
    nonce = bytes.fromhex(NONCE[1])
    found = release_rows(stage.plan, rows().to_batches(), key, nonce=nonce)
    assert found.tree("max_rows").bound == chosen_rows(chosen)  # type: ignore[attr-defined]


def test_keys_are_bounded_in_the_same_way(people: Workspace) -> None:
    outcome = people.release(keyed())
    assert outcome.code == 0, outcome.err
    unit = ReleaseFolder(str(people.output)).plan.unit
    assert unit.rows == 20 and unit.keys in (1, 2, 3)  # three keys are listed
    both = people.folder / "both"

    def apply(settings: dict[str, Any]) -> None:
        keyed(max_rows="auto")(settings)
        settings["output"] = str(both)

    outcome = people.release(apply)
    assert outcome.code == 0, outcome.err
    bounds = ReleaseFolder(str(both)).plan.bounds
    assert bounds is not None and bounds.values is not None
    assert [name for name, _ in bounds.values] == ["max_rows", "max_keys"]
    assert bounds.plan.budget.amount == Fraction(3, 20)


def test_private_keys_are_selected_with_the_chosen_bounds(people: Workspace) -> None:
    def apply(settings: dict[str, Any]) -> None:
        keyed("auto", delta=1e-4, epsilon=4)(settings)
        by = {"column": "shop", "keys": "private", "fraction": 0.5}
        settings["trees"][0] |= {"group_by": by}

    for _ in range(2):  # the second run reads no row
        outcome = people.release(apply)
        assert outcome.code == 0, outcome.err
        shutil.rmtree(people.rows, ignore_errors=True)
    assert "already there" in outcome.out
    folder = ReleaseFolder(str(people.output))
    bounds, selection = folder.plan.bounds, folder.plan.selection
    assert bounds is not None and bounds.values is not None and selection is not None
    assert selection.unit.rows == dict(bounds.values)["max_keys"]
    assert folder.plan.promised is not None and folder.plan.promised[0] == 4
    assert bounds.plan.spending.epsilon == Fraction(1, 5)
    verified = people.run("verify", people.output)
    assert verified.code == 0, verified.err
    assert "bounds: bounds is complete" in verified.out
    assert "selection: keys is complete" in verified.out
    shutil.rmtree(people.output / "bounds")
    (people.output / "manifest.json").unlink()
    refused = people.release(apply)
    assert refused.code == 2 and "not the choice of the bounds of its unit" in refused.err


def test_a_second_run_reads_no_row_and_draws_nothing(chosen: Workspace) -> None:
    before = read_files(chosen.output)
    shutil.rmtree(chosen.rows)
    chosen.key.unlink()
    again = chosen.release(change())
    assert again.code == 0 and "already there" in again.out
    assert read_files(chosen.output) == before


@pytest.mark.parametrize("stop", ["count", "commit"])
def test_a_killed_first_stage_is_finished(
    people: Workspace, made: Path, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    """Killed before its draw, or between the two stages: the same bytes as at one go."""
    make = Stage.make
    calls: list[str] = []

    def killed(stage: Stage) -> None:
        calls.append(stage.plan.name)
        if stop == "commit":
            make(stage)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "make", killed)
        assert people.release(change()).code == 130
    assert calls == ["small/bounds"]
    assert people.release(change()).code == 0
    assert read_files(people.output) == read_files(made)


def test_a_process_killed_between_the_stages_chooses_once_and_pays_once(people: Workspace) -> None:
    """By SIGKILL, as soon as the choice is released; the second run goes on with it."""
    url = f"sqlite:///{people.folder}/budget.db"
    ledger = opened(url, account_of("1", unit=("person",)))

    def counted(settings: dict[str, Any]) -> None:
        change()(settings)
        settings["ledger"] = url

    process = people.start("release", people.configure(counted), *NONCE)
    first = people.output / "bounds" / "manifest.json"
    deadline = time.monotonic() + 120
    while not first.exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert first.exists()
    before = read_files(people.output / "bounds")
    assert people.release(counted).code == 0
    after = read_files(people.output / "bounds")
    assert {name: after[name] for name in before if name in after} == {
        name: data for name, data in before.items() if name in after
    }
    assert after["manifest.json"] == before["manifest.json"]
    assert ledger.account("flights").spent.epsilon == 1


def test_a_reservation_of_both_stages_goes_on_at_no_cost(people: Workspace) -> None:
    """In a ledger that admits one such release, though its folder is gone meanwhile."""
    url = f"sqlite:///{people.folder}/budget.db"
    ledger = opened(url, account_of("1", unit=("person",)))

    def counted(settings: dict[str, Any]) -> None:
        change()(settings)
        settings["ledger"] = url

    outcome = people.release(counted)
    assert outcome.code == 0, outcome.err
    before = read_files(people.output)
    shutil.rmtree(people.output)
    assert people.release(counted).code == 0
    assert read_files(people.output) == before
    assert ledger.account("flights").spent.epsilon == 1


def test_a_ledger_without_room_for_the_trees_pays_for_no_choice(people: Workspace) -> None:
    url = f"sqlite:///{people.folder}/budget.db"
    ledger = opened(url, account_of("0.5", unit=("person",)))

    def counted(settings: dict[str, Any]) -> None:
        change()(settings)
        settings["ledger"] = url

    refused = people.release(counted)
    assert refused.code == 2 and refused.err.count("\n") == 1
    assert ledger.account("flights").spent.epsilon == 0
    assert not (people.output / "bounds" / "manifest.json").exists()


def test_bounds_are_never_chosen_twice_for_existing_trees(chosen: Workspace) -> None:
    shutil.rmtree(chosen.output / "bounds")
    refused = chosen.release(change())
    assert refused.code == 2
    assert "but not the choice of the bounds of its unit in bounds" in refused.err
    assert not (chosen.output / "bounds").exists()


def test_another_share_is_another_release(chosen: Workspace) -> None:
    refused = chosen.release(change(AUTO | {"fraction": 0.2}))
    assert refused.code == 2
    assert "privacy.max_rows.fraction was 0.1, now 0.2" in refused.err
    given = chosen.release(change(chosen_rows(chosen)))
    assert given.code == 2 and "another" in given.err


def test_a_lost_part_of_the_choice_is_made_again(chosen: Workspace) -> None:
    before = read_files(chosen.output)
    (part,) = (chosen.output / "bounds" / "nodes").iterdir()
    part.unlink()
    refused = chosen.release(change())
    assert refused.code == 2 and "--repair makes them again" in refused.err
    assert chosen.release(change(), "--repair").code == 0
    assert read_files(chosen.output) == before


def test_both_stages_are_verified_and_replayed(chosen: Workspace) -> None:
    config = chosen.configure(change())
    outcome = chosen.run("verify", chosen.output, "--data", config)
    assert outcome.code == 0, outcome.err
    assert "bounds: bounds is complete, matches this specification" in outcome.out
    assert "replay: parts, tables and record are the same, bit for bit" in outcome.out

    manifest = chosen.output / "bounds" / "manifest.json"
    kept = manifest.read_text()
    manifest.write_text(kept.replace('"1/10"', '"1/20"'))
    outcome = chosen.run("verify", chosen.output)
    assert outcome.code == 2 and "bounds: bounds: " in outcome.err
    manifest.write_text(kept)

    shutil.rmtree(chosen.output / "bounds")  # as in a published copy
    outcome = chosen.run("verify", chosen.output)
    assert outcome.code == 0 and "bounds: bounds is missing" in outcome.out


def test_the_first_stage_has_no_page_and_no_counts(chosen: Workspace) -> None:
    for command, sentence in (
        (("report", chosen.output / "bounds"), "holds a choice of bounds, which has no page"),
        (("query", chosen.output / "bounds", "top"), "choice of bounds, which releases no counts"),
    ):
        outcome = chosen.run(*command)
        assert outcome.code == 2 and outcome.err.count("\n") == 1
        assert sentence in outcome.err


def test_nothing_of_the_exact_counts_stays(chosen: Workspace) -> None:
    (part,) = (chosen.output / "bounds" / "nodes").iterdir()
    table = pq.read_table(part)
    assert table.to_pydict() == {"max_rows": [chosen_rows(chosen)]}


def test_the_plan_describes_the_choice(people: Workspace) -> None:
    path = people.configure(change())
    planned = people.run("plan", path)
    assert planned.code == 0, planned.err
    assert "small: epsilon = 1 per person (max_rows chosen first)" in planned.out
    assert f"max_rows: chosen first, epsilon 0.1, among {SIZES} sizes from 1 to 100" in planned.out
    entries = json.loads(people.run("plan", path, "--json").out)
    (bound,) = entries["bounds"]
    # Half of the rows that are left out, beside the error for one row with the rest of the budget.
    given = json.loads(people.run("plan", people.configure(change(1, epsilon=0.9)), "--json").out)
    error = given["total"]["trees"][0]["error"]
    assert bound["bound"] == "max_rows" and bound["epsilon"] == 0.1
    assert bound["tolerated_units"] == pytest.approx(2 * error, rel=1e-3)
    assert not people.output.exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (change("auto", unit=None), "privacy.max_rows: has no effect if the unit is the row"),
        (change("many"), "privacy.max_rows: 'many' must be a whole number from 1 to 1048576, or"),
        (change({"fraction": 1}), "privacy.max_rows.fraction: 1 must be below 1"),
        (change({"at_most": 1}), "privacy.max_rows.at_most: 1 must be at least 2"),
        (change({"most": 9}), "privacy.max_rows.most"),
        (change({"fraction": 1e-9}), "privacy.max_rows.fraction: the budget is too small"),
        (keyed("auto", max_rows_per_key=None), "privacy.max_keys: auto needs max_rows_per_key"),
        (
            keyed({"fraction": 0.6}, max_rows={"fraction": 0.5}),
            "privacy.max_rows.fraction: all fractions",
        ),
    ],
)
def test_what_cannot_be_chosen_is_refused(people: Workspace, change: Any, sentence: str) -> None:
    refused = people.run("plan", people.configure(change))
    assert refused.code == 2 and refused.err.count("\n") == 1
    assert sentence in refused.err


def test_keys_of_other_columns_are_refused(people: Workspace) -> None:
    def two(settings: dict[str, Any]) -> None:
        keyed()(settings)
        by = {"columns": ["shop", "person"], "keys": {"shop": ["x"], "person": [1, 2]}}
        settings["trees"].append(settings["trees"][0] | {"name": "b", "group_by": by})

    refused = people.run("plan", people.configure(two))
    assert refused.code == 2
    assert "privacy.max_keys: auto needs all trees with group_by to have the keys" in refused.err

    def one_key(settings: dict[str, Any]) -> None:
        keyed()(settings)
        settings["trees"][0]["group_by"]["keys"] = ["x"]

    refused = people.run("plan", people.configure(one_key))
    assert refused.code == 2 and "auto has no choice: one key is listed" in refused.err


def test_series_and_trees_of_units_alone_are_refused(people: Workspace) -> None:
    def series(settings: dict[str, Any]) -> None:
        change()(settings)
        settings["series"] = {"periods": 4, "period": 1}

    refused = people.run("plan", people.configure(series))
    assert refused.code == 2 and "privacy.max_rows: auto does not go with series" in refused.err

    def units(settings: dict[str, Any]) -> None:
        change()(settings)
        domain = {"type": "unit_rows", "column": "person", "most": 20}
        settings["trees"] = [{"name": "rows", "domain": domain}]

    refused = people.run("plan", people.configure(units))
    assert refused.code == 2 and "max_rows: has no effect: no tree counts rows" in refused.err


def test_an_error_cannot_be_wanted_of_a_bound_that_is_not_known(people: Workspace) -> None:
    refused = people.run("plan", people.configure(change()), "--target-error", "5")
    assert refused.code == 2
    assert "--target-error: needs privacy.max_rows as a number" in refused.err


def test_python_chooses_bounds_too() -> None:
    domain = {"column": "x", "lower": 0, "upper": 100, "cells": 16}
    privacy = dptrees.Privacy(epsilon=1, unit="person", max_rows="auto")
    config = dptrees.Config(privacy=privacy, trees=[dptrees.Tree("x", domain=domain)])
    release = dptrees.release(rows(), config)
    assert "epsilon = 1 per person (at most " in release.guarantee
    plan = dptrees.plan(config)
    assert plan.guarantee == "epsilon = 1 per person (max_rows chosen first), neighbors add_remove"


def test_the_transform_refuses_a_plan_without_its_bounds(people: Workspace) -> None:
    configuration = load_configuration(people.configure(change()))
    step = ReleaseTrees(configuration.plan(), key=configuration.key, output=str(people.output))
    with pytest.raises(InputError, match="max_rows of the unit must first be chosen"):
        step.expand((beam.Pipeline() | beam.Create([1]), None))
