"""Workspaces of the runs of a series, each with rows of its own."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.pipelines.conftest import Outcome, Workspace


class Runs(Workspace):
    """A workspace whose configuration has a section `series`."""

    def write_period(self, period: int) -> Any:
        """The rows of a period in place of those that are there."""
        raise NotImplementedError

    def configured(self, period: int, **series: object) -> str:
        """The configuration of a period."""

        def change(settings: dict[str, Any]) -> None:
            settings["series"] |= {"period": period} | series

        return self.configure(change)

    def period(self, period: int, *options: str, **series: object) -> Outcome:
        """Run `dptrees release` for a period."""
        return self.run("release", self.configured(period, **series), *options)

    def period_folder(self, period: int) -> Path:
        return self.output / f"period-{period:04d}"

    def released_periods(self, last: int) -> None:
        """Write and release the first periods."""
        for period in range(1, last + 1):
            self.write_period(period)
            self.succeed("release", self.configured(period))

    def copied(self, folder: Path, last: int) -> Any:
        """A workspace of its own with the first periods and the rows of the next."""
        folder.mkdir()
        own = type(self)(folder)
        for period in range(1, last + 1):
            shutil.copytree(self.period_folder(period), own.period_folder(period))
        own.write_period(last + 1)
        return own

    def queried(self, *words: object) -> list[dict[str, Any]]:
        """The answers to a query."""
        answers: list[dict[str, Any]] = json.loads(self.succeed("query", *words, "--json").out)[
            "answers"
        ]
        return answers

    def snapshot(self, period: int) -> dict[str, bytes]:
        """All files of a run."""
        folder = self.period_folder(period)
        found = sorted(path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def refused(outcome: Outcome, *words: str) -> None:
    """Check that a command was refused in a sentence with some words."""
    assert outcome.code != 0 and "Traceback" not in outcome.err
    for word in words:
        assert word in outcome.err, outcome.err


class Boxes(Runs):
    """A workspace whose rows of each period lie in other places of a box."""

    periods, nodes = 5, ("box", (4, 12))
    rows_of_a_period = 400

    def write_period(self, period: int, *, moved: int = 0) -> pa.Table:
        """The rows of a period, in two files; `moved` puts a row elsewhere."""
        random, size = np.random.default_rng(period), self.rows_of_a_period
        x, y = random.normal(10 * period, 9, (2, size)).clip(0, 99)
        x[0] = (x[0] + 50 * moved) % 100
        table = pa.table({"x": x, "y": y, "person": np.arange(size) // 2})
        shutil.rmtree(self.rows, ignore_errors=True)
        self.rows.mkdir()
        mixed = table.take(random.permutation(size))
        for index in range(2):
            pq.write_table(mixed.slice(200 * index, 200), self.file(index))
        return table

    def write_other(self, period: int) -> None:
        self.write_period(period, moved=1)

    @property
    def settings(self) -> dict[str, Any]:
        column = {"lower": 0, "upper": 100, "cells": 64}
        columns = [{"column": name} | column for name in ("x", "y")]
        return super().settings | {
            "privacy": {"epsilon": 30, "neighbors": "add_remove"},
            "series": {"periods": self.periods, "period": 1, "fanout": 2},
            "trees": [
                {"name": "box", "domain": {"kind": "hypercube", "columns": columns}}
                | {"mechanism": "privhp", "counts": "sparse"}
            ],
        }


class People(Runs):
    """A workspace whose rows of each period are of people, who come more or less often."""

    periods, nodes = 4, ("all", (0,))
    most_rows, most_periods = 3, 2

    def write_period(self, period: int) -> pa.Table:
        """The rows of a period, in three files."""
        random = np.random.default_rng(period)
        people = np.sort(random.zipf(1.5, 150) % 40)
        table = pa.table({"x": random.uniform(0, 100, 150), "person": people})
        shutil.rmtree(self.rows, ignore_errors=True)
        self.rows.mkdir()
        mixed = table.take(random.permutation(150))
        for index in range(3):
            pq.write_table(mixed.slice(50 * index, 50), self.file(index))
        return table

    def write_other(self, period: int) -> None:
        """Rename a person: the counts are the same, but not who was counted."""
        table = self.write_period(period)
        people = table["person"].to_pylist()
        once = next(person for person, number in Counter(people).items() if number == 1)
        renamed = [1000 if each == once else each for each in people]
        self.write_table(table.set_column(1, "person", pa.array(renamed)))

    @property
    def settings(self) -> dict[str, Any]:
        """Next to no noise, so that counts are seen."""
        tree = super().settings["trees"][0]
        return super().settings | {
            "privacy": {
                "rho": 10**9,
                "neighbors": "add_remove",
                "unit": "person",
                "max_rows": self.most_rows,
            },
            "series": {
                "periods": self.periods,
                "period": 1,
                "fanout": 2,
                "unit": "per_series",
                "max_periods": self.most_periods,
            },
            "trees": [tree],
        }

    def counts(self, period: int) -> list[int]:
        """The released counts of the leaves of a period, next to exact."""
        tables = [pq.read_table(path) for path in self.period_folder(period).glob("nodes/*")]
        nodes = pa.concat_tables(tables).to_pylist()
        deepest = max(row["level"] for row in nodes)
        return [
            row["count"]
            for row in sorted(nodes, key=lambda each: each["node"])
            if row["level"] == deepest and row["first"] == row["last"] == period
        ]


class NewPeople(People):
    """The same rows; counted are the different people so far."""

    nodes = ("different", (0,))

    @property
    def settings(self) -> dict[str, Any]:
        tree = {"domain": {"kind": "distinct", "column": "person"}, "to_date": True}
        settings = super().settings | {"trees": [{"name": "different"} | tree]}
        del settings["series"]["max_periods"]
        return settings


# What an engine may do to what a step yields.
Step = Callable[[Any], Any]


def lost(step: Step, element: Any) -> list[Any]:
    list(step(element))
    return []


def without_its_balance(step: Step, element: Any) -> list[Any]:
    return list(step(element))[:1]


def balance_alone(step: Step, element: Any) -> list[Any]:
    return list(step(element))[1:]


def repeated(step: Step, element: Any) -> list[Any]:
    found = list(step(element))
    return found[:1] + found
