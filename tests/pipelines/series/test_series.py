"""A series from the command: day by day, queried by windows, and what it refuses."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.query.series_folder import SeriesFolder
from tests.pipelines.conftest import NONCE, Outcome, Workspace
from tests.pipelines.series.runs import Runs
from tests.pipelines.test_verify import edited, replace_part

PERIODS, RELEASED = 5, 4


class Days(Runs):
    """A workspace whose rows come from one day after the other."""

    def write_period(self, period: int, rows: int = 300) -> pa.Table:
        """The rows of a day, in the one file of the input."""
        random = np.random.default_rng(period)
        x = np.append(random.normal(50, 20, rows), 61.7313)
        place = np.append(random.choice(["north", "south"], rows), "kumquat")
        table = pa.table({"x": pa.array(x), "place": pa.array(place)})
        self.write_table(table)
        return table

    @property
    def settings(self) -> dict[str, Any]:
        """A series of five days, with next to no noise."""
        series = {"periods": PERIODS, "period": 1, "fanout": 2}
        return super().settings | {"privacy": PRIVACY, "series": series}

    def snapshot_all(self) -> dict[str, bytes]:
        """All files of the output."""
        found = sorted(path for path in self.output.rglob("*") if path.is_file())
        return {str(path.relative_to(self.output)): path.read_bytes() for path in found}


PRIVACY = {"rho": 10**6, "neighbors": "add_remove"}


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Days:
    """Four of five days. Tests only read it."""
    made = Days(tmp_path_factory.mktemp("days"))
    made.released_periods(RELEASED)
    return made


@pytest.fixture
def copy(days: Days, tmp_path: Path) -> Any:
    """The four days, to go on with."""
    return days.copied(tmp_path / "copy", RELEASED)


def below(made: Days, value: float, *periods: int) -> int:
    """How many rows of some days lie below a value; those out of bounds in the nearest cell."""
    values = np.concatenate([made.write_period(period)["x"].to_numpy() for period in periods])
    return int((np.clip(values, 0, 99.99) < value).sum())


def requested(made: Days, *arguments: object) -> list[dict[str, Any]]:
    return made.queried(*arguments, "--tree", "all")


# --- what is released ---


WINDOWS: list[tuple[tuple[str, ...], tuple[int, ...]]] = [
    (("--to-date",), (1, 2, 3, 4)),
    ((), (1, 2, 3, 4)),
    (("--to-date", "3"), (1, 2, 3)),
    (("--window", "2:3"), (2, 3)),
    (("--window", "2:2", "--to-date", "2"), (2,)),
]


def test_windows_and_totals_to_date_are_queried(days: Days, tmp_path: Path) -> None:
    other = Days(tmp_path)
    for options, periods in WINDOWS:
        (answer,) = requested(days, days.output, "cdf", "50", *options)
        assert answer["count"] == below(other, 50, *periods), options
        (between,) = requested(days, days.output, "range", "25", "75", *options)
        assert between["count"] == below(other, 75, *periods) - below(other, 25, *periods)
        paths = ("--paths", "[25, 50)", "[50, 75)")
        (parts,) = requested(days, days.output, "sum", *paths, *options)
        for name in ("estimate", "std_error", "count"):
            assert parts[name] == between[name]


def test_running_totals_are_those_to_date_at_each_period(days: Days, tmp_path: Path) -> None:
    other = Days(tmp_path)
    rows = requested(days, days.output, "cdf", "50", "75", "--running")
    assert [row["period"] for row in rows] == [1, 1, 2, 2, 3, 3, 4, 4]
    for row, value in zip(rows, (50, 75) * RELEASED, strict=True):
        assert row["count"] == below(other, value, *range(1, row["period"] + 1))
    outcome = days.run("query", days.output, "top", "--running", "--to-date", "--tree", "all")
    refused(outcome, "goes neither with --window nor with --to-date")


def test_a_run_by_itself_is_its_period_alone(days: Days, tmp_path: Path) -> None:
    (answer,) = requested(days, days.period_folder(3), "cdf", "50")
    assert answer["count"] == below(Days(tmp_path), 50, 3)


def test_the_totals_to_date_lie_in_each_run_and_are_the_answers(days: Days) -> None:
    for period in range(1, RELEASED + 1):
        folder = days.period_folder(period) / "to-date"
        nodes = pq.read_table(folder / "nodes" / "all-000000-000000.parquet").to_pylist()
        (answer,) = requested(
            days, days.output, "node", "--level", "0", "--node", "0", "--to-date", str(period)
        )
        assert {name: nodes[0][name] for name in ("estimate", "std_error", "count")} == {
            name: answer[name] for name in ("estimate", "std_error", "count")
        }
        quantiles = pq.read_table(folder / "quantiles.parquet")
        assert quantiles.num_rows == 4 and "first" not in quantiles.column_names


# --- what lies in the folders ---


def test_the_state_is_as_large_whatever_the_rows_and_nothing_in_clear(
    days: Days, tmp_path: Path
) -> None:
    other = Days(tmp_path)
    other.write_period(1, rows=3)
    assert other.period(1).code == 0
    sizes = [
        [
            (path.name[:17], path.stat().st_size)
            for path in sorted(made.period_folder(1).glob("state/*"))
        ]
        for made in (days, other)
    ]
    assert sizes[0] == sizes[1] and len(sizes[0]) == 2
    key = days.key.read_text().split(":")[1].strip().encode()
    assert all(key not in data for data in days.snapshot_all().values())


def test_a_run_at_which_all_nodes_close_carries_nothing(days: Days) -> None:
    assert not (days.period_folder(4) / "state").exists()
    assert (days.period_folder(3) / "state").exists()


# --- repeated, late, out of order ---


def test_a_repeated_day_is_found_before_a_row_is_read(copy: Days) -> None:
    before = copy.snapshot_all()
    shutil.rmtree(copy.rows)
    copy.key.unlink()
    outcome = copy.period(2)
    assert outcome.code == 0, outcome.err
    assert "already there; no rows were read" in outcome.out
    assert copy.snapshot_all() == before


def refused(outcome: Outcome, *words: str) -> None:
    assert outcome.code == 2 and "Traceback" not in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    for word in words:
        assert word in outcome.err


def test_a_day_out_of_order_is_refused_and_nothing_is_written(workspace: Workspace) -> None:
    made = Days(workspace.folder)
    made.write_period(2)
    refused(
        made.period(2), "period 2 comes after period 1, of which", "contains no finished release"
    )
    assert not made.output.exists()


def test_a_day_that_was_left_out_cannot_be_released_later(copy: Days) -> None:
    shutil.rmtree(copy.period_folder(3))
    refused(copy.period(3), "period 4 is released already, so period 3 comes too late")
    assert not copy.period_folder(3).exists()


def test_runs_that_do_not_go_with_the_series_are_refused(copy: Days) -> None:
    before = copy.snapshot_all()
    for period in (0, 6, -1):
        words = f"series.period: {period} is not from 1 to 5, the series' periods"
        refused(copy.period(period), words)
    refused(copy.period(5, fanout=3), "is a run of another series: only the period may differ")
    refused(copy.period(5, periods=6), "is a run of another series")
    refused(copy.period(4, fanout=3), "contains a release of another configuration: series.fanout")
    assert copy.snapshot_all() == before


def test_another_key_is_refused(copy: Days) -> None:
    copy.key.write_text(ReleaseKey(bytes(32)).to_text() + "\n")
    shutil.rmtree(copy.period_folder(4))
    copy.write_period(4)
    refused(copy.period(4), "does not hold the key")
    assert not (copy.period_folder(4) / "manifest.json").exists()
    assert not (copy.period_folder(4) / "nodes").exists()


def test_a_damaged_state_is_refused_and_repaired(copy: Days) -> None:
    shutil.rmtree(copy.period_folder(4))
    state = sorted(copy.period_folder(3).glob("state/*"))[0]
    whole = state.read_bytes()
    state.write_bytes(whole[:-9] + b"damaged!!")
    copy.write_period(4)
    refused(copy.period(4), "is missing or damaged; --repair makes it again")
    shutil.rmtree(copy.period_folder(4))
    copy.write_period(3)
    outcome = copy.period(3, "--repair")
    assert outcome.code == 0, outcome.err
    assert state.read_bytes() == whole


def test_a_run_that_was_begun_goes_on_with_the_same_rows_alone(copy: Days) -> None:
    finished = copy.snapshot_all()
    (copy.period_folder(4) / "manifest.json").unlink()
    copy.write_period(4, rows=299)
    refused(copy.period(4), "made from other data")
    copy.write_period(4)
    assert copy.period(4).code == 0
    assert copy.snapshot_all() == finished


# --- the configuration ---


def test_a_period_may_be_a_date(tmp_path: Path) -> None:
    made = Days(tmp_path)
    made.write_period(1)
    outcome = made.period("2013-01-05", start="2013-01-05")
    assert outcome.code == 0, outcome.err
    assert made.period_folder(1).exists()
    refused(
        made.period("2013-01-10", start="2013-01-05"),
        "series.period: 2013-01-10 is period 6, and 6 is not from 1 to 5",
    )
    refused(made.period("2013-01-06"), "series.start: is required if the period is a date")


def test_bad_sections_are_refused(workspace: Workspace) -> None:
    made = Days(workspace.folder)
    rows: list[tuple[Any, dict[str, object], str]] = [
        ("monday", {}, "series.period: 'monday' must be a whole number, or a date"),
        (1, {"unit": "per_series", "max_periods": 0}, "series.max_periods: 0 is not from 1 to 5"),
        (1, {"colour": 3}, "series.colour: unknown key"),
        (1, {"start": "soon"}, "series.start: 'soon' must be a date such as"),
    ]
    for period, series, words in rows:
        refused(made.period(period, **series), words)
    tree = {"level_budgets": [0.5, 0.5], "fanouts": [16]}
    path = made.configure(lambda settings: settings["trees"][0].update(tree))
    refused(made.run("plan", path), "level_budgets")


def test_a_series_is_of_whole_levels_and_its_plan_says_so(
    workspace: Workspace,
) -> None:
    made = Days(workspace.folder)

    def planned(**guess: object) -> str:
        def change(settings: dict[str, Any]) -> None:
            settings["trees"][0] |= guess
            settings["privacy"] = {"epsilon": 1, "neighbors": "add_remove"}

        return made.run("plan", made.configure(change)).out

    reported = "  whole levels in any case: answers of other mechanisms do not add up over"
    guessed = planned(guess={"rows": 100})
    assert guessed.count(reported) == planned().count(reported) == 2
    assert planned(consistency="top_down").count(reported) == 1


def test_questions_beyond_the_series_are_refused(days: Days, released: Workspace) -> None:
    at = days.output
    refused(days.run("query", at, "top", "--window", "3:9"), "window: 3:9 is not within the 4")
    refused(days.run("query", at, "top", "--window", "three"), "must be FIRST:LAST, such as 3:10")
    refused(days.run("query", at, "top", "--to-date", "5"), "period 5 is not released")
    refused(days.run("query", released.output, "top", "--to-date"), "holds no series")
    assert SeriesFolder(str(at)).arrived == RELEASED


# --- other trees, guarantees and files ---


@pytest.mark.parametrize(
    "privacy",
    [
        {"epsilon": 2, "delta": 1e-6, "neighbors": "add_remove"},
        {"epsilon": 2, "neighbors": "substitute"},
    ],
    ids=["delta", "substitute"],
)
def test_hierarchies_and_every_guarantee(tmp_path: Path, privacy: dict[str, object]) -> None:
    made = Days(tmp_path)
    table = tmp_path / "places.parquet"
    pq.write_table(pa.table({"place": ["north", "south"]}), table)
    places = {"kind": "hierarchy", "column": "place", "separator": "/", "table": str(table)}

    def change(settings: dict[str, Any]) -> None:
        settings["privacy"] = privacy
        tree = {"name": "towns", "domain": places | {"unknown": "other"}}
        settings["trees"].append(tree)

    for period in (1, 2):
        made.write_period(period)
        path = made.configure(lambda s, at=period: (change(s), s["series"].update(period=at)))  # type: ignore[misc]
        made.succeed("release", path)
    (answer,) = made.queried(made.output, "node", "--path", "north", "--tree", "towns")
    truth = sum(made.write_period(p)["place"].to_pylist().count("north") for p in (1, 2))
    assert abs(answer["estimate"] - truth) < 12 * answer["std_error"]
    guarantee = ReleaseFolder(str(made.period_folder(2))).manifest["guarantee"]
    assert guarantee["epsilon"] == "2"  # type: ignore[index]
    (root,) = made.queried(made.output, "node", "--path", "", "--tree", "towns")
    parts = ("sum", "--paths", "north", "south", "other", "--tree", "towns")
    (summed,) = made.queried(made.output, *parts)
    assert summed["std_error"] == pytest.approx(root["std_error"], rel=1e-9, abs=1e-9)
    assert summed["count"] == root["count"]


def test_other_files_of_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    """How rows lie in files, and how they are bundled, is nothing that a series remembers."""
    found = []
    for pieces in (1, 3):
        (tmp_path / str(pieces)).mkdir()
        made = Days(tmp_path / str(pieces))
        for period in (1, 2):
            table = made.write_period(period)
            made.file(0).unlink()
            for piece in range(pieces):
                size = -(-len(table) // pieces)
                pq.write_table(table.slice(piece * size, size), made.file(piece))
            assert made.period(period, *NONCE).code == 0
        found.append(made.snapshot_all())
    assert found[0] == found[1]


def test_the_beginning_of_a_run_is_discarded_whole(copy: Days) -> None:
    shutil.rmtree(copy.period_folder(4))
    run = copy.period_folder(3)
    (run / "manifest.json").unlink()
    nonce = (run / "nonce.json").read_bytes()
    state = {path.name for path in run.glob("state/*")}
    copy.write_period(3)
    assert state and copy.period(3, "--discard").code == 0
    assert (run / "nonce.json").read_bytes() != nonce
    assert not state & {path.name for path in run.glob("state/*")}


def test_totals_to_date_of_large_trees_are_only_queried(
    copy: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dptrees.pipelines.query.series_totals.MOST_LEAVES", 16)
    shutil.rmtree(copy.period_folder(3) / "to-date")
    outcome = copy.period(3)
    assert outcome.code == 0 and "places: large; dptrees query adds it up" in outcome.out
    written = sorted(path.name for path in copy.period_folder(3).rglob("to-date/*/*"))
    assert written == ["all-000000-000000.parquet"] * 2


def test_a_run_of_another_series_is_not_queried(copy: Days, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Days(tmp_path / "other")
    for period in (1, 2):
        other.write_period(period)
        assert other.period(period, periods=4).code == 0
    shutil.rmtree(copy.period_folder(2))
    shutil.copytree(other.period_folder(2), copy.period_folder(2))
    refused(copy.run("query", copy.output, "top", "--tree", "all"), "is a run of another series")


def test_totals_to_date_are_made_again_where_they_are_missing(copy: Days) -> None:
    before = copy.snapshot_all()
    shutil.rmtree(copy.period_folder(3) / "to-date")
    assert copy.period(3).code == 0
    assert copy.snapshot_all() == before


def test_runs_are_verified_and_replayed(copy: Days) -> None:
    """Also those that go on from the run before; an edit of what they state is found."""
    for period in (1, 3, 4):
        copy.write_period(period)
        outcome = copy.succeed(
            "verify", copy.period_folder(period), "--data", copy.configured(period)
        )
        assert "replay: parts, tables and record are the same, bit for bit" in outcome.out
    copy.write_period(5)  # the wrong day
    outcome = copy.run("verify", copy.period_folder(4), "--data", copy.configured(period))
    assert outcome.code == 2 and "the record differs" in outcome.err


EDITS: list[tuple[tuple[Any, ...], object, str]] = [
    (("series", "periods"), 6, "guarantee: series.periods"),
    (("spec", "trees", 0, "spans"), [1, 2, 5], "specification"),
    (("trees", 0, "temporal_levels", 0, "rho"), "1", "noise"),
]


def replace_at(place: tuple[Any, ...], value: object, manifest: Any) -> None:
    """Replace a value deep in a manifest."""
    for name in place[:-1]:
        manifest = manifest[name]
    assert place[-1] in manifest
    manifest[place[-1]] = value


def test_an_edited_run_is_found(copy: Days) -> None:
    folder = copy.period_folder(2)
    whole = (folder / "manifest.json").read_bytes()
    for place, value, check in EDITS:
        edited(folder, partial(replace_at, place, value))
        outcome = copy.run("verify", folder)
        assert outcome.code == 2 and f": {check}" in outcome.err, outcome.err
        (folder / "manifest.json").write_bytes(whole)


def test_noise_of_another_scale_is_found(copy: Days) -> None:
    """Tables of a run whose standard errors do not match the stated noise."""
    folder = copy.period_folder(2)
    (path, *_) = (folder / "nodes").iterdir()
    table = pq.read_table(path)
    other = pa.array(table["std_error"].to_numpy() + 1)
    place = table.column_names.index("std_error")
    replace_part(folder, path, table.set_column(place, "std_error", other))
    outcome = copy.run("verify", folder)
    assert outcome.code == 2 and "std_error is not that of the noise" in outcome.err


def test_totals_to_date_are_made_again_to_verify_them(copy: Days) -> None:
    """No manifest names them: an edited table fails; without the runs before nothing is said."""
    folder = copy.period_folder(3)
    assert "ok       to date: to-date is the total" in copy.run("verify", folder).out
    (cdf,) = [path for path in folder.glob("to-date/cdf/*") if path.name.startswith("all-")][:1]
    extra = shutil.copy(cdf, cdf.with_name("more-000000-000000.parquet"))
    outcome = copy.run("verify", folder)
    assert outcome.code == 2 and "more-000000-000000.parquet is not one of" in outcome.err
    Path(extra).unlink()
    table = pq.read_table(cdf)
    more = pa.array([each + 9_999 for each in table["estimate"].to_pylist()])
    edited = table.set_column(table.column_names.index("estimate"), "estimate", more)
    pq.write_table(edited, cdf)
    outcome = copy.run("verify", folder)
    assert outcome.code == 2 and f"to-date/cdf/{cdf.name} is not the total" in outcome.err
    shutil.rmtree(copy.period_folder(1))
    assert "not checked to date: to-date needs the runs before it" in copy.run("verify", folder).out
