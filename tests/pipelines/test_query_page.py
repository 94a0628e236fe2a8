"""docs/query.md: what the page shows is what the command prints."""

from __future__ import annotations

import os
import re
import shlex
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipelines.conftest import PROJECT, ROWS, Workspace, update

PAGE = PROJECT / "docs" / "query.md"
SHOPS = ("east/2", "east/10", "north/1", "north/3", "south/7")
PAGES = ("help/faq", "help/mail", "shop/cart", "shop/list", "shop/list", "shop/list")
SHOWN = re.compile(r"```console\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The release that the page queries, of rows that no generator draws."""
    made, row = Workspace(tmp_path_factory.mktemp("visits")), np.arange(ROWS)
    shops = [SHOPS[place].split("/") for place in (row * row // 7) % 5]
    made.write_rows(
        age=pa.array(10 + (row * 37 % 41) + (row * row % 43)),
        day=pa.array(np.datetime64("2024-01-01") + row * row % 366),
        area=pa.array([area for area, _ in shops]),
        shop=pa.array([shop for _, shop in shops]),
        page=pa.array([PAGES[place] for place in row * row % 6]),
        kind=pa.array(np.where(row % 3 == 0, "new", "known")),
    )
    listed = [shop.split("/") for shop in SHOPS]
    names = {"area": [area for area, _ in listed], "shop": [shop for _, shop in listed]}
    pq.write_table(pa.table(names), made.folder / "shops.parquet")

    privacy = {"epsilon": 4, "delta": 1e-6, "neighbors": "add_remove"}
    made.make(update(trees=trees(made.folder), release="visits", privacy=privacy))
    return made


def trees(folder: Path) -> list[dict[str, Any]]:
    year: dict[str, Any] = {"column": "day", "lower": date(2024, 1, 1)}
    age = {"column": "age", "lower": 0, "upper": 120, "type": "integer"}
    kinds = {"column": "kind", "keys": ["known", "new"]}
    shop = {"kind": "hierarchy", "columns": ["area", "shop"]}
    days = {"kind": "hierarchy", "calendar": ["month", "day"], "upper": date(2025, 1, 1)}
    return [
        {"name": "age", "domain": dict(age), "quantiles": [0.5]},
        {"name": "weeks", "domain": year | {"upper": date(2024, 12, 30), "days_per_cell": 7}},
        {"name": "days", "domain": year | days},
        {"name": "shops", "domain": shop | {"table": str(folder / "shops.parquet")}},
        {"name": "pages", "domain": {"kind": "sparse", "column": "page", "depth": 2}},
        {"name": "kinds", "domain": dict(age), "group_by": kinds},
    ]


def printed(made: Workspace, command: str) -> str:
    """What a command of the page prints: its notes and refusals first."""
    program, *arguments = shlex.split(command)
    assert (program, arguments[:2]) == ("dptrees", ["query", "out/visits"])
    outcome = made.run("query", made.output, *arguments[2:])
    reported = (outcome.err + outcome.out).replace(str(made.output), "out/visits")
    # The last digits of a float may be another machine's.
    reported = re.sub(r"\d+\.\d{7,}", lambda found: f"{float(found[0]):.9g}...", reported)
    return reported.replace("\r\n", "\n")


def redrawn(made: Workspace) -> str:
    """The page with what its commands print now."""

    def block(found: re.Match[str]) -> str:
        parts = found[1].removeprefix("$ ").split("\n$ ")
        commands = [part.partition("\n")[0] for part in parts]
        return "```console\n" + "".join(f"$ {c}\n{printed(made, c)}" for c in commands) + "```"

    return SHOWN.sub(block, PAGE.read_text())


def test_the_page_is_as_drawn(visits: Workspace) -> None:
    """DPTREES_WRITE_PAGES=1 writes it anew."""
    page = redrawn(visits)
    if os.environ.get("DPTREES_WRITE_PAGES"):
        PAGE.write_text(page)
    assert page == PAGE.read_text()
