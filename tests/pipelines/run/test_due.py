"""Which runs of a series are due, and what cannot be gone through."""

from __future__ import annotations

import shutil
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest

from dptrees.pipelines.cli.command import main
from dptrees.pipelines.process import UserError
from dptrees.pipelines.run.releasing import Due, parse_day

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "daily.yaml"


def due(through: str, path: Path = EXAMPLE, **given: str) -> list[str]:
    """The days that are due."""
    schedule = Due(path=str(path), given=given, through=date.fromisoformat(through))
    return [each["date"] for each in schedule]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the series lies; the process is in the folder above it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "out" / "flights-daily"


def stand(folder: Path, *periods: int) -> None:
    for period in periods:
        (folder / f"period-{period:04d}").mkdir(parents=True)
        (folder / f"period-{period:04d}" / "manifest.json").write_text("{}")


def test_all_days_of_a_new_series(folder: Path) -> None:
    assert due("2013-01-03") == ["2013-01-01", "2013-01-02", "2013-01-03"]


def test_begins_with_the_last_one_that_exists(folder: Path) -> None:
    """Which may have been killed between its manifest and its page."""
    stand(folder, 1, 2)
    assert due("2013-01-04") == ["2013-01-02", "2013-01-03", "2013-01-04"]
    assert due("2013-01-02") == ["2013-01-02"]
    stand(folder, 3)
    assert due("2013-01-02") == ["2013-01-02"]


def test_older_periods_that_were_cleared_away(folder: Path) -> None:
    for existing in ((4, 5), (2, 3, 4, 5)):
        shutil.rmtree(folder, ignore_errors=True)
        stand(folder, *existing)
        assert due("2013-01-07") == ["2013-01-05", "2013-01-06", "2013-01-07"]


def test_a_day_beyond_the_series_is_left_to_be_refused(folder: Path) -> None:
    stand(folder, *range(1, 15))
    assert due("2013-02-20") == ["2013-01-14", "2013-01-15"]


def test_yesterday_is_that_of_utc() -> None:
    assert parse_day("yesterday") in {
        datetime.now(timezone.utc).date() - timedelta(days=days) for days in (1, 2)
    }


def test_what_is_no_series_by_days(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="before 2013-01-01, where the series begins"):
        due("2012-12-31")
    with pytest.raises(UserError, match="so --set date cannot be"):
        due("2013-01-02", date="2013-01-01")
    other = tmp_path / "other.yaml"
    other.write_text(EXAMPLE.read_text().replace("period: ${date}", "period: 3"))
    with pytest.raises(UserError, match="whose period is a parameter"):
        due("2013-01-02", other)


def test_refused_beside(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, sentence in (
        (["--discard"], "--repair, --discard and --nonce belong to one"),
        (["--output_executable_path=x"], "a job that is written to a file is one run"),
        (["--set", "date=2013-01-01"], "so --set date cannot be"),
    ):
        assert main(["release", str(EXAMPLE), "--through", "2013-01-02", *options]) == 2
        assert sentence in capsys.readouterr().err
