"""Releases of rows in memory: the same bits as the command's, complete, and errors if refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

import dptrees
from dptrees.transforms.held import KEPT_FILES
from dptrees.transforms.steps import record
from tests.golden.configurations import NONCE
from tests.golden.hashes import said
from tests.pipelines.python.conftest import fixed, read_config, read_files
from tests.pipelines.refusals import not_refused

PRIVACY = {"epsilon": 1.0, "neighbors": "add_remove"}
MINUTES = {"column": "minutes", "type": "integer", "lower": 0, "upper": 300}
CONFIG = {"privacy": PRIVACY, "trees": [{"name": "minutes", "domain": MINUTES}]}
UNITS = {
    "release": "units",
    "privacy": {"epsilon": 1, "neighbors": "substitute", "unit": "city", "max_rows": 9},
    "trees": [{"name": "minutes", "domain": MINUTES}],
}
PRIVATE = {
    "release": "private",
    "privacy": {
        **{"epsilon": 2, "delta": 1e-5, "neighbors": "add_remove", "unit": "minutes"},
        **{"max_rows": 20, "max_keys": 2},
    },
    "trees": [
        {
            "name": "delay",
            "domain": {"column": "delay", "lower": -20, "upper": 200, "cells": 110},
            "group_by": {"column": "carrier", "keys": "private"},
            "quantiles": [0.5],
        }
    ],
}


def command(name: str, config: dict[str, Any]) -> dict[str, bytes]:
    """The files of the release that the command makes of the same rows, by Beam's own runner."""
    beside = {
        "input": {"format": "parquet", "path": "rows.parquet"},
        **{"output": f"out/{name}", "key_file": "release.key"},
    }
    path = Path(f"{name}.yaml")
    path.write_text(yaml.safe_dump(config | beside))
    reported = said("release", str(path), "--nonce", NONCE)
    assert reported.startswith("0 "), reported
    return read_files(Path("out", name))


@pytest.mark.parametrize("name", ["quantiles-by", "hierarchy", "sparse-paths", "box-sparse"])
def test_same_bits_as_the_command(rows: pa.Table, name: str) -> None:
    config = read_config(name)
    made = command(name, config)
    fixed(rows, config, output="in-folder")
    assert read_files(Path("in-folder")) == made
    assert read_files(Path(fixed(rows, config).save("saved"))) == made


@pytest.mark.parametrize("config", [UNITS, PRIVATE], ids=["units", "private keys"])
def test_units_and_private_keys_have_the_same_bits(rows: pa.Table, config: Any) -> None:
    made = command(config["release"], config)
    saved = Path(fixed(rows, config).save("saved"))
    assert read_files(saved) == made
    assert said("verify", "saved", "--key", "release.key").startswith("0 ")


def test_released_by_the_engine_that_is_reported(rows: pa.Table) -> None:
    config = read_config("categories")
    looped = read_files(Path(fixed(rows, config).save("looped")))
    direct = fixed(rows, config, options=("--runner=DirectRunner",))
    assert read_files(Path(direct.save("direct"))) == looped
    files = fixed("rows.parquet", config, options=("--runner=DirectRunner",), output="files")
    assert files.path == "files" and read_files(Path("files")) == looped


def test_input_of_the_configuration(rows: pa.Table) -> None:
    config = CONFIG | {"input": {"format": "parquet", "path": "rows.parquet"}}
    assert abs(dptrees.release(None, config)["minutes"].top(1, level=0).estimate - 20_000) < 500


def test_parameters() -> None:
    domain = MINUTES | {"upper": "${upper}"}
    config = CONFIG | {"trees": [{"name": "minutes", "domain": domain}]}
    config |= {"parameters": {"upper": {"type": "integer"}}}
    release = dptrees.release({"minutes": [1, 2]}, config, set={"upper": 10})
    assert len(release["minutes"].cdf()) == 10
    assert release.manifest["parameters"] == {"upper": "10"}


def test_every_call_in_memory_draws_anew() -> None:
    rows = {"minutes": np.arange(300)}
    first, second = (dptrees.release(rows, CONFIG) for _ in range(2))
    assert first.manifest["nonce"] != second.manifest["nonce"]
    assert first.manifest["key_id"] != second.manifest["key_id"]
    assert first["minutes"].cdf()["estimate"] != second["minutes"].cdf()["estimate"]


def test_memory_is_given_back() -> None:
    before = dict(KEPT_FILES.objects)
    release = dptrees.release({"minutes": [1]}, CONFIG)
    tree = release["minutes"]
    assert KEPT_FILES.objects.keys() > before.keys()
    del release
    assert len(tree.cdf()) == 300  # a tree keeps its release
    del tree
    assert KEPT_FILES.objects == before


def test_nothing_stays_of_a_release_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(KEPT_FILES.objects)

    def fail(*_: object) -> None:
        raise record.CommitError("output: planted")

    monkeypatch.setattr(record._Commit, "_commit", fail)
    with pytest.raises(dptrees.Error, match=r"^output: planted$"):
        dptrees.release({"minutes": [1]}, CONFIG)
    assert KEPT_FILES.objects == before


def test_existing_release_is_reported(rows: pa.Table) -> None:
    first = dptrees.release(rows, CONFIG, key="release.key", output="out")
    before = read_files(Path("out"))
    with pytest.warns(UserWarning, match="already there; no rows were read") as reported:
        again = dptrees.release({"minutes": [1]}, CONFIG, key="release.key", output="out")
    assert reported[0].filename == __file__
    assert read_files(Path("out")) == before
    assert again["minutes"].cdf()["count"] == first["minutes"].cdf()["count"]


def test_stopped_release_is_finished_or_discarded(
    rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(record._Commit, "_commit", stop)
        with pytest.raises(KeyboardInterrupt):
            dptrees.release(rows, CONFIG, key="release.key", output="out")
    begun = read_files(Path("out"))
    with pytest.raises(dptrees.Error, match="made from other data"):
        dptrees.release(rows.slice(1), CONFIG, key="release.key", output="out")
    dptrees.release(rows, CONFIG, key="release.key", output="out")
    assert begun.items() <= read_files(Path("out")).items()


def test_ledger_is_booked_as_by_the_command(rows: pa.Table) -> None:
    assert said(
        *["ledger", "init", "sqlite:///b.db", "--dataset", "d", "--epsilon", "1"]
    ).startswith("0 ")
    config = CONFIG | {"ledger": "sqlite:///b.db"}
    with pytest.raises(dptrees.Error, match="output: is needed with ledger"):
        dptrees.release(rows, config, key="release.key")
    dptrees.release(rows, config, key="release.key", output="out")
    assert "epsilon 1 of 1" in said("ledger", "show", "sqlite:///b.db")
    with pytest.raises(dptrees.Error, match="another output"):
        dptrees.release(rows, config, key="release.key", output="other")
    with pytest.raises(dptrees.Error, match="total"):
        other = config | {"release": "second"}
        dptrees.release(rows, other, key="release.key", output="other")
    assert not Path("other", "manifest.json").exists()


def test_series(rows: pa.Table) -> None:
    config = CONFIG | {
        "series": {"periods": 2, "period": "${period}"},
        "parameters": {"period": {"type": "integer"}},
    }
    with pytest.raises(dptrees.Error, match="output: is needed with series"):
        dptrees.release(rows, config, key="release.key", set={"period": 1})
    for period in (1, 2):
        made = dptrees.release(
            rows, config, key="release.key", output="days", set={"period": period}
        )
        assert made.path == f"days/period-000{period}"
    both = dptrees.open("days")
    assert abs(both["minutes"].cdf([300]).estimate - 40_000) < 500
    assert len(both["minutes"].cdf()) == 300
    assert abs(dptrees.open("days", window="2:2")["minutes"].cdf([300]).estimate - 20_000) < 500
    with pytest.raises(dptrees.Error, match="several periods"):
        _ = both.manifest


def test_refused_calls(rows: pa.Table) -> None:
    flink = {"options": ["--runner=FlinkRunner"]}
    calls: list[tuple[dict[str, Any], str]] = [
        ({"output": "out"}, "key: is needed with output"),
        ({"key": "nowhere"}, "key: nowhere does not exist"),
        ({"key": "env:NO_SUCH_KEY"}, "variable NO_SUCH_KEY is not set"),
        (flink, "output: is needed with --runner=FlinkRunner"),
        (flink | {"output": "out", "key": "release.key"}, "rows: the workers of --runner=Flink"),
        ({"options": ["--runner=DaskRunner"]}, "refused, since in tests it lost parts"),
        ({"options": ["--nothing"]}, "--nothing: is not an option"),
        ({"set": {"day": 1}}, "day"),
    ]

    def attempt(call: dict[str, Any]) -> None:
        dptrees.release(rows, CONFIG, **call)

    assert not not_refused(attempt, calls, dptrees.Error)
    assert not Path("out").exists()


def test_only_an_empty_folder_is_saved_into() -> None:
    release = dptrees.release({"minutes": [1]}, CONFIG)
    Path("used").mkdir()
    Path("used", "mine.txt").write_text("")
    with pytest.raises(dptrees.Error, match="used: holds something already"):
        release.save("used")
    assert [path.name for path in Path("used").iterdir()] == ["mine.txt"]
    assert Path(release.save("free"), "report.html").exists()
    with pytest.raises(dptrees.Error, match="lies there already"):
        dptrees.open("free").save("other")


def test_nothing_is_printed(rows: pa.Table, capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dptrees.release(rows, CONFIG, key="release.key", output="out")
        dptrees.release(rows, CONFIG)
    assert capfd.readouterr() == ("", "")


def test_a_tree_whose_rows_are_dropped_is_reported() -> None:
    rows = {"minutes": pa.nulls(20_000, pa.int64())}
    with pytest.warns(UserWarning, match="tree minutes holds about 0 rows") as reported:
        dptrees.release(rows, CONFIG)
    assert reported[0].filename == __file__


@pytest.fixture(autouse=True)
def _in_work(work: Path) -> None:
    """All of it in a folder of its own."""


def test_a_contract_about_columns() -> None:
    """It may name columns that no tree reads; rows in memory have types, and no age."""
    columns = {"minutes": [1, 2, 3], "city": ["a", "b", "c"], "more": [0.5, 1.5, 2.5]}
    rows = pa.table({name: values * 200 for name, values in columns.items()})

    def config(**given: Any) -> dict[str, Any]:
        return CONFIG | {"input": {"format": "parquet", "path": "unused", **given}}

    for frame in (rows, rows.to_pydict()):
        kept = dptrees.release(frame, config(schema={"minutes": "int64", "city": "string"}))
        assert kept["minutes"].name == "minutes"
        for types, words in (
            ({"city": "int64"}, "rows has column 'city' of type string, and it must have type int"),
            ({"town": "string"}, "rows has no column 'town'"),
        ):
            with pytest.raises(dptrees.Error, match=words):
                dptrees.release(frame, config(schema=types))
    with pytest.raises(dptrees.Error, match=r"input\.max_age: rows in memory have no age"):
        dptrees.release(rows, config(max_age="1d"))
