"""A series of days, the third without a file."""

from __future__ import annotations

from typing import Any

from tests.pipelines.conftest import Workspace

DAYS = ("2026-11-01", "2026-11-02", "2026-11-03")


def daily_series(workspace: Workspace) -> str:
    """Name the files of a workspace by days; return the path of the configuration."""
    for number, day in enumerate(DAYS[:2]):
        workspace.file(number).rename(workspace.rows / f"{day}.parquet")

    def change(settings: dict[str, Any]) -> None:
        settings["input"]["path"] = str(workspace.rows / "${date}.parquet")
        settings["parameters"] = {"date": {"type": "date"}}
        settings["series"] = {"periods": 4, "start": DAYS[0], "period": "${date}"}
        settings["trees"] = settings["trees"][:1]

    return workspace.configure(change)
