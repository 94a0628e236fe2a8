"""A series under rho from the command: weighted sums of periods, whose runs go on from several."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.series.totals_to_date import WeightedPeriods
from dptrees.pipelines.query.release_folder import ReleaseFolder
from tests.pipelines.series.runs import Runs, refused

PERIODS, RELEASED = 9, 6


class Sums(Runs):
    """A workspace of a tree and of one by place, with next to no noise."""

    def write_period(self, period: int, *, moved: int = 0) -> pa.Table:
        random = np.random.default_rng(period)
        x = random.integers(0, 100, 40 + period)
        x[0] = (x[0] + moved) % 100
        table = pa.table({"x": x, "place": random.choice(["north", "south"], len(x))})
        self.write_table(table)
        return table

    @property
    def settings(self) -> dict[str, Any]:
        domain = {"column": "x", "type": "integer", "lower": 0, "upper": 100}
        return super().settings | {
            "privacy": {"rho": 10**6, "neighbors": "add_remove"},
            "series": {"periods": PERIODS, "period": 1},
            "trees": [
                {"name": "all", "domain": domain, "quantiles": [0.5]},
                {
                    "name": "places",
                    "domain": domain,
                    "group_by": {"column": "place", "keys": ["north", "south"]},
                },
            ],
        }

    def below(self, first: int, last: int) -> int:
        """Rows of some periods whose x is below 50."""
        values = [self.write_period(period)["x"].to_numpy() for period in range(first, last + 1)]
        return sum(int((each < 50).sum()) for each in values)


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Sums:
    """Six of nine periods. Tests only read it."""
    made = Sums(tmp_path_factory.mktemp("sums"))
    made.released_periods(RELEASED)
    return made


@pytest.fixture
def copy(sums: Sums, tmp_path: Path) -> Sums:
    """The six periods, to go on with."""
    own = Sums(tmp_path)
    shutil.copytree(sums.output, own.output)
    shutil.copy(sums.folder / "release.key", own.folder / "release.key")
    return own


def test_every_window_is_exact_without_noise(sums: Sums, tmp_path: Path) -> None:
    rows = Sums(tmp_path)
    for first, last in ((1, 6), (2, 5), (4, 4), (6, 6), (1, 1)):
        window = f"{first}:{last}"
        (answer,) = sums.queried(
            sums.output, "cdf", "50", "--tree", "all", "--window", window, "--to-date", "6"
        )
        assert answer["estimate"] == pytest.approx(rows.below(first, last), abs=0.1)
        assert answer["count"] == rows.below(first, last)
    (own,) = sums.queried(sums.period_folder(5), "cdf", "50", "--tree", "all")
    assert own["count"] == rows.below(5, 5)
    running = sums.queried(sums.output, "cdf", "50", "--tree", "all", "--running")
    assert [each["count"] for each in running] == [rows.below(1, last) for last in range(1, 7)]


def test_runs_verify_and_the_plan_says_how_they_are_measured(sums: Sums, tmp_path: Path) -> None:
    for period in (1, 4, 6):
        assert sums.run("verify", sums.period_folder(period)).code == 0
    question = ReleaseFolder(str(sums.period_folder(6))).plan.questions[0]
    assert isinstance(question, WeightedPeriods) and question.state_runs == [4, 5]
    out = Sums(tmp_path).run("plan", Sums(tmp_path).configured(6)).out
    assert "each run measures a weighted sum of all periods so far" in out
    entry = ReleaseFolder(str(sums.period_folder(6))).manifest["trees"][0]  # type: ignore[index]
    assert "temporal_levels" not in entry and entry["weighted_sums"] == {"rho": "500000"}
    assert [(each["first"], each["last"]) for each in entry["released"]] == [(6, 6), (1, 6)]


def test_a_run_is_the_same_when_it_is_made_again(copy: Sums) -> None:
    before = copy.snapshot(6)
    shutil.rmtree(copy.period_folder(6) / "state")
    copy.write_period(6)
    assert copy.period(6, "--repair").code == 0
    assert copy.snapshot(6) == before
    data = ("--key", copy.folder / "release.key", "--data", copy.configured(6))
    assert copy.run("verify", copy.period_folder(6), *data).code == 0
    copy.write_period(6, moved=1)
    refused(copy.run("verify", copy.period_folder(6), *data), "replay")


def test_a_lost_state_of_an_earlier_run_is_made_again(copy: Sums) -> None:
    (path, *_) = sorted((copy.period_folder(4) / "state").glob("*"))
    kept = path.read_bytes()
    path.write_bytes(kept[:-1])
    copy.write_period(7)
    refused(copy.period(7), f"{path} is missing or damaged", "--repair")
    assert not copy.period_folder(7).joinpath("manifest.json").exists()
    copy.write_period(4)
    assert copy.period(4, "--repair").code == 0 and path.read_bytes() == kept
    copy.write_period(7)
    assert copy.period(7).code == 0


def test_a_run_without_the_folder_of_an_earlier_one_is_refused(copy: Sums) -> None:
    shutil.move(copy.period_folder(4), copy.folder / "elsewhere")
    copy.write_period(7)
    refused(copy.period(7), "period-0004 is missing, from which later runs go on")


def test_an_earlier_run_of_another_series_is_refused(copy: Sums, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Sums(tmp_path / "other")
    shutil.copy(copy.folder / "release.key", other.folder / "release.key")
    for period in range(1, 5):
        other.write_period(period)
        assert other.period(period, periods=PERIODS - 1).code == 0
    shutil.rmtree(copy.period_folder(4))
    shutil.copytree(other.period_folder(4), copy.period_folder(4))
    copy.write_period(7)
    refused(copy.period(7), f"{copy.period_folder(4)} is a run of another series")
    assert not copy.period_folder(7).joinpath("manifest.json").exists()


def test_states_that_a_later_run_goes_on_from_are_kept(copy: Sums) -> None:
    outcome = copy.run("series", "compact", copy.output)
    assert "sealed files of 3 runs are deleted" in outcome.out
    assert "the last 2 runs keep theirs, and 1 before them that the next run" in outcome.out
    left = [period for period in range(1, 7) if list(copy.period_folder(period).glob("state/*"))]
    assert left == [4, 5, 6]
    for period in (7, 8):
        copy.write_period(period)
        assert copy.period(period).code == 0
    assert copy.run("series", "compact", copy.output, "--keep", "1").code == 0
    left = [period for period in range(1, 9) if list(copy.period_folder(period).glob("state/*"))]
    assert left == [8]
    copy.write_period(9)
    assert copy.period(9).code == 0
    assert not list(copy.period_folder(9).glob("state/*"))


def test_the_key_of_the_first_run_stays(copy: Sums) -> None:
    assert copy.run("keygen", "--rotate", copy.folder / "release.key").code == 0
    copy.write_period(7)
    assert copy.period(7).code == 0
    ids = {ReleaseFolder(str(copy.period_folder(each))).manifest["key_id"] for each in (6, 7)}
    assert len(ids) == 1
