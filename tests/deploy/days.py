"""A series of days that began a few days ago, and the commands that schedules start for it."""

from __future__ import annotations

import io
import logging
import re
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from pathlib import Path
from time import sleep

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.pipelines.cli.command import main
from tests.deploy.manifests import DEPLOY

PROJECT = DEPLOY.parent
DAYS = 3
# What `Days.check_nights` takes at most.
NIGHTS_SECONDS = 300


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The exit code of a command, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, kw_only=True)
class Days:
    """The folder of a series by days, whose last one is yesterday.

    Args:
        folder: in which the command runs.
        environment: of the command, beside this process's own.
    """

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def day(self, back: int) -> date:
        """A day before today, in the time of UTC."""
        return _now().date() - timedelta(days=back)

    def write(self, back: int) -> None:
        """The rows of a day."""
        random = np.random.default_rng(back)
        columns = {
            "tailnum": random.choice(["N1", "N2", "N3", "N4"], 200),
            "dep_delay": random.integers(-60, 600, 200),
        }
        path = self.folder / "data" / "daily" / f"{self.day(back)}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)

    def configure(self, example: Path) -> Path:
        """A configuration as it stands, but for the series' start. At midnight yesterday becomes
        another day, so what is configured shortly before waits until it is over."""
        left = (datetime.combine(self.day(-1), time.min, timezone.utc) - _now()).total_seconds()
        if left < NIGHTS_SECONDS:
            sleep(left + 1)
        text, times = re.subn(
            r"(?m)^  start: \S+", f"  start: {self.day(DAYS)}", example.read_text()
        )
        assert times == 1
        path = self.folder / example.name
        path.write_text(text)
        return path

    def run(self, arguments: list[str]) -> Ended:
        """Run the command with these arguments, in this process."""
        out, err, level = io.StringIO(), io.StringIO(), logging.getLogger().level
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.folder)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            try:
                code = main(arguments)
            except SystemExit as stop:
                code = int(stop.code or 0)
        logging.getLogger().setLevel(level)
        return Ended(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())

    def released(self) -> list[str]:
        """The runs of the series that stand."""
        return sorted(path.parent.name for path in self.folder.glob("out/*/*/manifest.json"))

    def check_nights(self, arguments: list[str]) -> None:
        """Runs the command night after night: a missing day is a mistake; days that were missed are
        made up for in order; once more, nothing is spent or drawn."""
        self.write(DAYS)
        missing = self.run(arguments)
        assert missing.returncode == 2, missing.stderr
        assert f"no file matches data/daily/{self.day(DAYS - 1)}.parquet" in missing.stderr
        assert self.released() == ["period-0001"]
        for back in range(1, DAYS):
            self.write(back)
        late = self.run(arguments)
        assert late.returncode == 0, late.stderr
        assert self.released() == [f"period-{period:04d}" for period in range(1, DAYS + 1)]
        again = self.run(arguments)
        assert again.returncode == 0, again.stderr
        assert "no rows were read" in again.stdout
