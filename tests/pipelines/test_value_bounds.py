"""Bounds of values that are chosen, by the command and in Python: two stages, one guarantee."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

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
from tests.pipelines.conftest import NONCE, Workspace
from tests.pipelines.ledger.asked import account_of, opened

NUMBER = {"column": "x", "lower": 0, "upper": "auto", "cells": 16}
INTEGER = {"column": "n", "type": "integer", "lower": "auto", "upper": {"at_most": 1000}}


def rows() -> pa.Table:
    """2,000 people of two rows: a heavy-tailed number, and an integer near 30."""
    random = np.random.default_rng(3)
    people = np.repeat(np.arange(2000), 2)
    x = [None if each > 900 else each for each in random.lognormal(3, 1, 4000).tolist()]
    values = {"x": pa.array(x, pa.float64()), "n": pa.array(random.poisson(30, 4000))}
    return pa.table({"person": pa.array(people), **values})


def change(*domains: dict[str, Any], by: Any = None, **privacy: Any) -> Any:
    """A tree for each domain."""

    def apply(settings: dict[str, Any]) -> None:
        settings["privacy"] |= privacy
        settings["privacy"] = {n: v for n, v in settings["privacy"].items() if v is not None}
        more = {} if by is None else {"group_by": by}
        settings["trees"] = [
            {"name": f"tree{place}", "domain": domain} | more
            for place, domain in enumerate(domains or (NUMBER,))
        ]

    return apply


def write_rows(workspace: Workspace) -> Workspace:
    """Give a workspace these rows; return it."""
    shutil.rmtree(workspace.rows)
    workspace.rows.mkdir()
    pq.write_table(rows(), workspace.file(0))
    return workspace


@pytest.fixture
def numbers(workspace: Workspace) -> Workspace:
    """A workspace whose rows have numbers and integers."""
    return write_rows(workspace)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release with a chosen bound. Tests only read it."""
    workspace = write_rows(Workspace(tmp_path_factory.mktemp("values")))
    outcome = workspace.release(change())
    assert outcome.code == 0, outcome.err
    return workspace.output


@pytest.fixture
def chosen(numbers: Workspace, made: Path) -> Workspace:
    """A workspace whose output holds a release with a chosen bound."""
    shutil.copytree(made, numbers.output)
    return numbers


def chosen_values(folder: Path) -> dict[str, float]:
    bounds = ReleaseFolder(str(folder)).plan.bounds
    assert bounds is not None and bounds.values is not None
    return dict(bounds.values)


def read_files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("report.html", "run.json")
    }


def test_an_upper_bound_is_chosen_and_the_tree_is_made_with_it(made: Path) -> None:
    folder, stage = ReleaseFolder(str(made)), ReleaseFolder(str(made / "bounds"))
    upper = chosen_values(made)["range-0.upper"]
    assert 20 <= upper <= 1000
    domain: Any = folder.plan.questions[0].domain  # type: ignore[attr-defined]
    assert (domain.lower, domain.upper, domain.cells) == (0.0, upper, 16)
    guarantee: Any = folder.manifest["guarantee"]
    assert guarantee["epsilon"] == "1" and guarantee["bounds_epsilon"] == "1/20"
    assert "What is counted (upper of x) was chosen and released first" in guarantee["words"]
    (entry,) = stage.manifest["trees"]  # type: ignore[misc]
    assert entry["mechanism"] == "exponential mechanism over bounds of values"
    assert entry["sensitivity"] == 2 and entry["trees"] == ["tree0"]
    assert len(entry["candidates"]) == 145 and "drawn with a probability" in entry["words"]
    assert folder.plan.spending.epsilon + stage.plan.spending.epsilon == 1


def test_the_stage_is_the_one_in_memory_and_releases_the_bound_alone(chosen: Workspace) -> None:
    key = ReleaseKey.from_text(chosen.key.read_text())
    stage = ReleaseFolder(str(chosen.output / "bounds"))
    found = release_rows(stage.plan, rows().to_batches(), key, nonce=bytes.fromhex(NONCE[1]))
    upper = chosen_values(chosen.output)["range-0.upper"]
    assert found.tree("range-0").bounds == {"upper": upper}  # type: ignore[attr-defined]
    (part,) = (chosen.output / "bounds" / "nodes").iterdir()
    assert pq.read_table(part).to_pydict() == {"upper": [upper]}


@pytest.mark.parametrize(
    "privacy",
    [
        {"epsilon": None, "rho": 0.5},
        {"delta": 1e-6, "unit": "person", "max_rows": "auto"},
        {"neighbors": "substitute"},
    ],
)
def test_every_guarantee_adds_up(numbers: Workspace, privacy: dict[str, Any]) -> None:
    outcome = numbers.release(change(NUMBER, INTEGER, **privacy))
    assert outcome.code == 0, outcome.err
    folder = ReleaseFolder(str(numbers.output))
    guarantee: Any = folder.manifest["guarantee"]
    values = chosen_values(numbers.output)
    assert values["range-1.lower"] < 30 < values["range-1.upper"]
    parts = 4 if "unit" in privacy else 3
    measure = "rho" if "rho" in privacy else "epsilon"
    assert Fraction(guarantee[f"bounds_{measure}"]) == Fraction(guarantee[measure]) * parts / 20
    path = numbers.configure(change(NUMBER, INTEGER, **privacy))
    verified = numbers.run("verify", numbers.output, "--data", path)
    assert verified.code == 0, verified.err
    again = numbers.release(change(NUMBER, INTEGER, **privacy))
    assert again.code == 0 and "already there" in again.out


def test_equal_sections_share_one_choice(numbers: Workspace) -> None:
    """Trees of one column and the same bounds, one with another number of cells."""
    configuration = load_configuration(
        numbers.configure(change(NUMBER, NUMBER | {"cells": 8}, NUMBER | {"lower": 1}))
    )
    bounds = configuration.bounds
    assert bounds is not None
    assert [(each.name, each.trees) for each in bounds.plan.questions] == [  # type: ignore[attr-defined]
        ("range-0", ("tree0", "tree1")),
        ("range-2", ("tree2",)),
    ]
    assert bounds.plan.budget.amount == Fraction(1, 10)


def test_trees_by_keys_have_chosen_bounds(numbers: Workspace) -> None:
    by = {"column": "person", "keys": [1, 2, 3]}
    outcome = numbers.release(change(by=by))
    assert outcome.code == 0, outcome.err
    assert ReleaseFolder(str(numbers.output)).plan.questions[0].key_count == 3


@pytest.mark.parametrize("stop", ["count", "commit"])
def test_a_killed_first_stage_is_finished(
    numbers: Workspace, made: Path, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    """Killed before its draw, or between the two stages: the same bytes as at one go."""
    make = Stage.make

    def killed(stage: Stage) -> None:
        if stop == "commit":
            make(stage)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "make", killed)
        assert numbers.release(change()).code == 130
    assert numbers.release(change()).code == 0
    assert read_files(numbers.output) == read_files(made)


def test_a_ledger_pays_for_both_stages_once(numbers: Workspace) -> None:
    url = f"sqlite:///{numbers.folder}/budget.db"
    ledger = opened(url, account_of("1"))

    def counted(settings: dict[str, Any]) -> None:
        change()(settings)
        settings["ledger"] = url

    for _ in range(2):
        outcome = numbers.release(counted)
        assert outcome.code == 0, outcome.err
    assert ledger.account("flights").spent.epsilon == 1


def test_another_request_is_another_release(chosen: Workspace) -> None:
    again = chosen.release(change())
    assert again.code == 0 and "already there" in again.out
    refused = chosen.release(change(NUMBER | {"upper": {"fraction": 0.2}}))
    assert refused.code == 2
    assert "trees[0].domain.upper.fraction was 0.05, now 0.2" in refused.err
    given = chosen.release(change(NUMBER | {"upper": 300}))
    assert given.code == 2 and "another" in given.err


def test_a_lost_part_of_the_choice_is_made_again(chosen: Workspace) -> None:
    before = read_files(chosen.output)
    (part,) = (chosen.output / "bounds" / "nodes").iterdir()
    part.unlink()
    refused = chosen.release(change())
    assert refused.code == 2 and "--repair makes them again" in refused.err
    assert chosen.release(change(), "--repair").code == 0
    assert read_files(chosen.output) == before


def test_an_edited_bound_of_a_tree_is_found(chosen: Workspace) -> None:
    manifest = chosen.output / "manifest.json"
    upper = chosen_values(chosen.output)["range-0.upper"]
    text = manifest.read_text()
    manifest.write_text(text.replace(f'"range-0.upper": {upper}', '"range-0.upper": 7.0'))
    assert manifest.read_text() != text
    assert chosen.run("verify", chosen.output).code == 2


def test_the_plan_describes_the_choice(numbers: Workspace) -> None:
    path = numbers.configure(change(NUMBER, INTEGER))
    planned = numbers.run("plan", path)
    assert planned.code == 0, planned.err
    head = "epsilon = 1 per row (upper of x and lower and upper of n chosen first)"
    assert head in planned.out
    assert "upper of x: chosen first, epsilon 0.05, among 145 values" in planned.out
    assert "rows are expected beyond the bound of each" in planned.out
    entries = json.loads(numbers.run("plan", path, "--json").out)
    assert [each["bounds"] for each in entries["bounds"]] == [["upper"], ["lower", "upper"]]
    assert not numbers.output.exists()


def test_python_chooses_the_bounds_that_the_command_does(chosen: Workspace) -> None:
    trees = [dptrees.Tree("tree0", domain=NUMBER)]
    config = dptrees.Config(privacy=dptrees.Privacy(epsilon=1), trees=trees)
    assert "epsilon = 1 per row, neighbors" in dptrees.release(rows(), config).guarantee
    assert "(upper of x chosen first)" in dptrees.plan(config).guarantee
    path = chosen.configure(change())
    release = dptrees.release(rows(), path, output=chosen.folder / "python", key=chosen.key)
    assert "epsilon = 1 per row" in release.guarantee


@pytest.mark.parametrize(
    ("domain", "sentence"),
    [
        (
            {"column": "x", "type": "date", "lower": "auto", "upper": "2013-01-01"},
            "trees[0].domain.lower: auto is only for a tree of type number or integer",
        ),
        (
            INTEGER | {"cells": 4},
            "trees[0].domain.cells: does not go with lower: auto for integers",
        ),
        (NUMBER | {"upper": {"fraction": 1}}, "trees[0].domain.upper.fraction: 1 must be below 1"),
        (NUMBER | {"upper": {"most": 1}}, "trees[0].domain.upper.most: unknown key"),
        (NUMBER | {"upper": {"at_most": -1}}, "no candidate lies between 0 and -1"),
        (NUMBER | {"upper": {"fraction": 1e-9}}, "upper.fraction: the budget is too small"),
        (NUMBER | {"upper": "autos"}, "trees[0].domain.upper: 'autos' must be a number"),
        (
            NUMBER | {"lower": {"fraction": 0.6}, "upper": {"fraction": 0.5}},
            "trees[0].domain.lower.fraction: all fractions",
        ),
    ],
)
def test_what_cannot_be_chosen_is_refused(
    numbers: Workspace, domain: dict[str, Any], sentence: str
) -> None:
    refused = numbers.run("plan", numbers.configure(change(domain)))
    assert refused.code == 2 and refused.err.count("\n") == 1
    assert sentence in refused.err


def test_a_series_is_refused(numbers: Workspace) -> None:
    def series(settings: dict[str, Any]) -> None:
        change()(settings)
        settings["series"] = {"periods": 4, "period": 1}

    refused = numbers.run("plan", numbers.configure(series))
    assert refused.code == 2
    assert "trees[0].domain.upper: auto does not go with series" in refused.err
