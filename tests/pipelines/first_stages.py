"""Releases of two stages: bounds of a unit, bounds of values or keys are drawn before the trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.pipelines.ledger.accounts import Account
from dptrees.pipelines.query.release_folder import ReleaseFolder
from tests.pipelines.conftest import Change, Workspace
from tests.pipelines.ledger.asked import account_of

# --- bounds of a unit ---

AUTO = {"fraction": 0.1, "at_most": 100}


def people() -> pa.Table:
    """People of 1 to 60 rows, most of few."""
    random = np.random.default_rng(2)
    numbers = np.minimum(random.zipf(2, 800), 60)
    person = np.repeat(np.arange(800), numbers)
    shops = random.choice(["x", "y", "z", "kumquat"], len(person))
    values = {"x": pa.array(random.normal(50, 20, len(person))), "shop": pa.array(shops)}
    return pa.table({"person": pa.array(person), **values})


def privacy_with(settings: dict[str, Any], privacy: dict[str, Any]) -> None:
    """Set keys of the section privacy, and leave out those that are None."""
    whole = settings["privacy"] | privacy
    settings["privacy"] = {name: value for name, value in whole.items() if value is not None}


def bounded(max_rows: Any = AUTO, **privacy: Any) -> Change:
    """One tree, of a unit of as many rows as are chosen."""

    def change(settings: dict[str, Any]) -> None:
        privacy_with(settings, {"unit": "person", "max_rows": max_rows} | privacy)
        settings["trees"] = [settings["trees"][0]]

    return change


def keyed(max_keys: Any = AUTO, **privacy: Any) -> Change:
    """One tree by shops, of a unit of as many keys as are chosen."""

    def change(settings: dict[str, Any]) -> None:
        bounds = {"unit": "person", "max_rows": 20, "max_rows_per_key": 5, "max_keys": max_keys}
        privacy_with(settings, bounds | privacy)
        by = {"column": "shop", "keys": ["x", "y", "z"]}
        settings["trees"] = [settings["trees"][0] | {"group_by": by}]

    return change


# --- bounds of values ---

NUMBER = {"column": "x", "lower": 0, "upper": "auto", "cells": 16}
INTEGER = {"column": "n", "type": "integer", "lower": "auto", "upper": {"at_most": 1000}}


DAY = {"column": "day", "type": "date", "lower": "auto", "upper": "auto"}
SEEN = {
    **{"column": "seen", "type": "timestamp", "cells": 1000},
    **{"lower": {"at_least": "2026-01-01T00:00Z"}, "upper": {"at_most": "2027-01-01T00:00Z"}},
}


def numbers() -> pa.Table:
    """2,000 people of two rows: a heavy-tailed number, an integer near 30, a birthday of 1930 to
    1999 or garbage, and a time of two days with a zone."""
    random = np.random.default_rng(3)
    person = np.repeat(np.arange(2000), 2)
    x = [None if each > 900 else each for each in random.lognormal(3, 1, 4000).tolist()]
    values = {"x": pa.array(x, pa.float64()), "n": pa.array(random.poisson(30, 4000))}
    days = np.datetime64("1930-01-01") + random.integers(0, 70 * 365, 4000)
    garbage = [None if each is None else day for each, day in zip(x, days.tolist(), strict=True)]
    garbage[::400] = [date.min, date.max] * 5
    seen = np.datetime64("2026-03-04", "us") + random.integers(0, 2 * 86_400_000_000, 4000)
    values["day"] = pa.array(garbage, pa.date32())
    values["seen"] = pa.array(seen, pa.timestamp("us")).cast(
        pa.timestamp("ms", "Europe/Berlin"), safe=False
    )
    return pa.table({"person": pa.array(person), **values})


def valued(*domains: dict[str, Any], by: Any = None, **privacy: Any) -> Change:
    """A tree for each domain."""

    def change(settings: dict[str, Any]) -> None:
        privacy_with(settings, privacy)
        more = {} if by is None else {"group_by": by}
        settings["trees"] = [
            {"name": f"tree{place}", "domain": domain} | more
            for place, domain in enumerate(domains or (NUMBER,))
        ]

    return change


# --- keys ---

# Shops of 1,200 rows in all: some surely selected, some never, some in between.
SIZES = {"big": 500, "other": 400, "middle": 120, "few": 20, "kumquat": 1, "none": 159}
BY = {"column": "shop", "keys": "private", "fraction": 0.5}


def shops() -> pa.Table:
    """Rows of shops."""
    names = [name for name, size in SIZES.items() for _ in range(size)]
    values = [None if name == "none" else name for name in names]
    random = np.random.default_rng(2)
    return pa.table(
        {
            "shop": pa.array(values, pa.string()),
            "year": pa.array(2013 + np.arange(len(names)) % 2),
            "x": pa.array(random.normal(50, 20, len(names))),
        }
    )


def sold(by: dict[str, Any] | None = None, **privacy: Any) -> Change:
    """One tree by shops, with a delta."""

    def change(settings: dict[str, Any]) -> None:
        privacy_with(settings, {"epsilon": 2, "delta": 1e-4} | privacy)
        settings["trees"][1]["group_by"] = dict(BY if by is None else by)

    return change


# --- all of them ---


@dataclass(frozen=True, kw_only=True)
class FirstStage:
    """A kind of first stage, and a release that has one.

    Attributes:
        rows: makes the rows of the release.
        change: its configuration, as a change of the small one.
        folder: where the stage lies in the folder of the release.
        check: the check of `dptrees verify` that is about it.
        noun: what commands call it.
        missing: what a refusal calls the stage that is not there.
        other: a change of its fraction, and what the refusal says of it.
        account: an account that admits one such release, and one that is too small.
    """

    rows: Callable[[], pa.Table]
    change: Change
    folder: str
    check: str
    noun: str
    missing: str
    other: tuple[Change, str]
    account: tuple[Account, Account]


UNIT_BOUNDS = FirstStage(
    rows=people,
    change=bounded(),
    folder="bounds",
    check="bounds",
    noun="choice of bounds",
    missing="the choice of the bounds of its unit in bounds",
    other=(bounded(AUTO | {"fraction": 0.2}), "privacy.max_rows.fraction was 0.1, now 0.2"),
    account=(account_of("1", unit=("person",)), account_of("0.5", unit=("person",))),
)
VALUE_BOUNDS = FirstStage(
    rows=numbers,
    change=valued(),
    folder="bounds",
    check="bounds",
    noun="choice of bounds",
    missing="the choice of the bounds of its unit in bounds",
    other=(
        valued(NUMBER | {"upper": {"fraction": 0.1}}),
        "trees[0].domain.upper.fraction was left out, now 0.1",
    ),
    account=(account_of("1"), account_of("0.5")),
)
KEYS = FirstStage(
    rows=shops,
    change=sold(),
    folder="keys",
    check="selection",
    noun="selection of keys",
    missing="the selection of its keys in keys",
    other=(sold(BY | {"fraction": 0.25}), "trees[1].group_by.fraction was 0.5, now 0.25"),
    account=(account_of("2", "0.0001"), account_of("1", "0.0001")),
)


def chosen(workspace: Workspace) -> dict[str, float]:
    """The bounds that the release in a workspace chose."""
    bounds = workspace.made().plan.bounds
    assert bounds is not None and bounds.values is not None
    return dict(bounds.values)


def stage_of(workspace: Workspace, folder: str = "bounds") -> ReleaseFolder:
    """The first stage of the release in a workspace."""
    return ReleaseFolder(str(workspace.output / folder))
