"""Makes a release for the collection of old ones, by this dptrees or by one of the past.

    python -m tests.releases.make NAME [--project FOLDER]

NAME is one of `CONFIGURATIONS`; FOLDER holds the dptrees that is to make it, such as an unpacked
`git archive` of the commit that is given beside its name. What is written into `made/NAME` is
committed, and never made anew: docs/decisions/0023 says what for.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from dptrees.dpcore.noise.randomness import ReleaseKey
from tests.releases.rows import write_rows

PROJECT = Path(__file__).resolve().parents[2]
MADE = Path(__file__).resolve().parent / "made"
# Known to all: it protects rows that nobody needs to protect.
KEY = ReleaseKey(bytes(32)).to_text()
# Under another name than it has where it is used, which Git passes over.
LEDGER = "ledger.sqlite3"
# The page is made of the rest, and of no format.
_LEFT_OUT = shutil.ignore_patterns("report.html", "*.run.json")

NUMBERS = {
    "name": "numbers",
    "domain": {"kind": "ordered", "column": "n", "type": "integer", "lower": 0, "upper": 100},
    "objective": "quantiles",
    "quantiles": [0.5, 0.9],
}
COLOURS = {
    "name": "colours",
    "domain": {"kind": "ordered", "column": "m", "type": "integer", "lower": 0, "upper": 64},
    "group_by": {"column": "colour", "keys": ["red", "blue", "green"]},
    "objective": "cdf",
}
MONTHS = {
    "name": "months",
    "domain": {
        "kind": "hierarchy",
        "column": "day",
        "calendar": ["year", "month"],
        "lower": date(2020, 1, 1),
        "upper": date(2022, 1, 1),
    },
}
STREETS = {"name": "streets", "domain": {"kind": "sparse", "columns": ["town", "street"]}}
BOX = {
    "name": "box",
    "domain": {
        "kind": "hypercube",
        "columns": [
            {"column": "n", "type": "integer", "lower": 0, "upper": 128},
            {"column": "m", "type": "integer", "lower": 0, "upper": 64},
        ],
    },
    "rows": 400,
}
TOWNS = {**NUMBERS, "name": "towns", "group_by": {"column": "town", "keys": "private"}}
CURVE = {
    "name": "curve",
    "domain": {"kind": "ordered", "column": "m", "type": "integer", "lower": 0, "upper": 64},
    "mechanism": "factorised",
}
PART = {"fraction": 0.05}
AUTO_UPPER = {"column": "n", "type": "integer", "lower": 0, "upper": {**PART, "at_most": 1000}}
BOTH_AUTO = {
    "domain": {"column": "m", "lower": {**PART, "at_least": -50}, "upper": PART, "cells": 16}
}
PERSON = {"epsilon": 8, "delta": 1e-5, "neighbors": "add_remove", "unit": "person", "max_rows": 3}
ROW = {"epsilon": 4, "neighbors": "add_remove"}
ROW_DELTA = {**ROW, "delta": 1e-5}

NUMBERS_ASKED = [
    "cdf --tree numbers 25 50",
    "quantile --tree numbers 0.25 0.5",
    "range --tree numbers 10 20",
]
COLOURS_ASKED = ["cdf --tree colours --key red 16 32"]
MONTHS_ASKED = ["node --tree months --path 2020-03", "top --tree months --level month -n 3"]
STREETS_ASKED = ["top --tree streets --level town -n 3"]
BOX_ASKED = ["box --tree box --side n 0 50 --side m 0 32"]


def _settings(privacy: Any, trees: list[Any], **more: Any) -> dict[str, Any]:
    source = {"format": "parquet", "path": "rows/rows.parquet"}
    return {"release": "old", "input": source, "output": "out", "key_file": "release.key"} | {
        "privacy": privacy,
        "trees": trees,
        **more,
    }


SERIES = _settings(
    {"epsilon": 4, "neighbors": "add_remove"},
    [NUMBERS],
    input={"format": "parquet", "path": "rows/${date}.parquet"},
    parameters={"date": {"type": "date"}},
    series={"periods": 4, "start": date(2026, 11, 1), "period": "${date}"},
)

# name: (commit, configuration, parameters of each run, questions)
CONFIGURATIONS: dict[str, tuple[str, dict[str, Any], list[str], list[str]]] = {
    "format-1": (
        "850e1d9",
        _settings(ROW, [NUMBERS, COLOURS]),
        [""],
        [*NUMBERS_ASKED, *COLOURS_ASKED],
    ),
    "format-2": (
        "e26a81a",
        _settings(ROW_DELTA, [NUMBERS, COLOURS, MONTHS, STREETS]),
        [""],
        [*NUMBERS_ASKED, *COLOURS_ASKED, *MONTHS_ASKED, *STREETS_ASKED],
    ),
    "format-3": (
        "72d73d1",
        _settings(ROW_DELTA, [NUMBERS, COLOURS, MONTHS, STREETS]),
        [""],
        [*NUMBERS_ASKED, *COLOURS_ASKED, *MONTHS_ASKED, *STREETS_ASKED],
    ),
    "format-3-boxes": (
        "08436e4",
        _settings(ROW_DELTA, [NUMBERS, MONTHS, STREETS, BOX]),
        [""],
        [*NUMBERS_ASKED, *MONTHS_ASKED, *STREETS_ASKED, *BOX_ASKED],
    ),
    "format-3-units": (
        "bc3b533",
        _settings(PERSON, [COLOURS, MONTHS, TOWNS], ledger="sqlite:///budget.db"),
        [""],
        [*COLOURS_ASKED, *MONTHS_ASKED, "cdf --tree towns --key t1 50"],
    ),
    "format-3-series": (
        "bc3b533",
        SERIES,
        ["2026-11-01", "2026-11-02"],
        [*NUMBERS_ASKED, "cdf 50 --window 2:2", "cdf 50 --to-date 1"],
    ),
    "format-3-of-issue-16": (
        "84ce184",
        _settings(PERSON, [NUMBERS, MONTHS, TOWNS, BOX], ledger="sqlite:///budget.db"),
        [""],
        [*NUMBERS_ASKED, *MONTHS_ASKED, *BOX_ASKED, "cdf --tree towns --key t1 50"],
    ),
    # The first with the same floats on every processor: verified to the last bit.
    "format-3-arithmetic-1": (
        "2c138a1",
        _settings(
            {"rho": 0.5, "neighbors": "add_remove"},
            [NUMBERS, {**COLOURS, "mechanism": "adaptive"}, MONTHS, BOX, CURVE],
        ),
        [""],
        [*NUMBERS_ASKED, *COLOURS_ASKED, *MONTHS_ASKED, *BOX_ASKED, "cdf --tree curve 16 32"],
    ),
    # With bounds of values that were chosen, by the exponential mechanism.
    "format-3-bounds": (
        "b3c9c9c6",
        _settings(
            {"epsilon": 8, "neighbors": "add_remove"},
            [{**NUMBERS, "domain": AUTO_UPPER}, {**BOTH_AUTO, "name": "both"}],
        ),
        [""],
        [*NUMBERS_ASKED, "mean --tree both"],
    ),
}


def write_place(folder: Path, settings: dict[str, Any]) -> None:
    """Writes what a release is made of: rows, key and configuration."""
    write_rows(folder / "rows")
    key = folder / "release.key"
    key.write_text(f"{KEY}\n", encoding="ascii")
    key.chmod(0o600)
    text = yaml.safe_dump(settings, sort_keys=False)
    (folder / "release.yaml").write_text(text, encoding="utf-8")


def make(name: str, project: Path) -> None:
    """Makes one release of the collection, and queries it.

    Raises:
        SystemExit: a command fails.
    """
    _, settings, runs, questions = CONFIGURATIONS[name]
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        write_place(place, settings)
        if "ledger" in settings:
            account = ["--dataset", "people", "--epsilon", "20", "--delta", "1e-4"]
            _run(
                project, place, ["ledger", "init", settings["ledger"], *account, "--unit", "person"]
            )
        for each in runs:
            given = ["--set", f"date={each}"] if each else []
            _run(project, place, ["release", "release.yaml", *given])
        answers = [
            {
                "asked": each,
                "answer": json.loads(
                    _run(project, place, ["query", "out", *each.split(), "--json"])
                ),
            }
            for each in questions
        ]
        folder = MADE / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(place / "out", folder / "release", ignore=_LEFT_OUT)
        shutil.copy(place / "release.yaml", folder)
        if "ledger" in settings:
            shutil.copy(place / "budget.db", folder / LEDGER)
    (folder / "answers.json").write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")


def _run(project: Path, place: Path, arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dptrees", *arguments],
        env=os.environ | {"PYTHONPATH": str(project)},
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make a release for the collection of old ones.")
    parser.add_argument("name", choices=CONFIGURATIONS, metavar="NAME")
    parser.add_argument("--project", type=Path, default=PROJECT, metavar="FOLDER")
    chosen = parser.parse_args()
    make(chosen.name, chosen.project.resolve())
