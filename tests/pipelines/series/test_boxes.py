"""Boxes of all periods so far: a partition that grows with every run of a series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.pipelines.query.series_folder import SeriesFolder
from tests.pipelines.series.runs import Boxes

PERIODS, ROWS = Boxes.periods, Boxes.rows_of_a_period


# --- what is released ---


def test_answers_are_of_all_periods_so_far(boxes: Boxes, tmp_path: Path) -> None:
    folder = SeriesFolder(str(boxes.output))
    totals = [folder.window(1, arrived=period).tree("box") for period in range(1, PERIODS + 1)]
    other = Boxes(tmp_path)
    for period, tree in enumerate(totals, 1):
        answer: Any = tree.box({"x": ("0", "50")})
        by_hand = sum(
            int((rows["x"].to_numpy() < 50).sum())
            for rows in (other.write_period(each) for each in range(1, period + 1))
        )
        assert abs(answer.estimate - by_hand) < 6 * answer.std_error


def test_a_run_by_itself_is_its_period_and_the_window_is_a_node_of_time(boxes: Boxes) -> None:
    three = ["box", "--side", "x", "0", "100"]
    (own,) = boxes.queried(boxes.period_folder(4), *three)
    assert abs(own["count"] - ROWS) < 30
    (pair,) = boxes.queried(boxes.output, *three, "--window", "3:4")
    assert abs(pair["count"] - 2 * ROWS) < 30


def test_other_windows_are_nodes_of_time_added_up(boxes: Boxes, tmp_path: Path) -> None:
    side = {"x": ("10", "45")}
    folder = SeriesFolder(str(boxes.output))
    two, pair, both = (
        folder.window(first, last).tree("box") for first, last in ((2, 2), (3, 4), (2, 4))
    )
    parts, whole = [tree.box(side) for tree in (two, pair)], both.box(side)
    estimates = [each.estimate for each in parts if each.estimate is not None]
    errors = [each.std_error for each in parts if each.std_error is not None]
    assert whole.estimate == pytest.approx(sum(estimates)) and len(estimates) == 2
    assert whole.std_error is None or whole.std_error == pytest.approx(np.hypot(*errors))
    assert whole.ci_low <= whole.estimate <= whole.ci_high
    narrow = both.at_confidence(0.5).box(side)
    assert narrow.ci_high - narrow.ci_low < whole.ci_high - whole.ci_low
    everything: Any = both.box({})
    assert everything.std_error == pytest.approx(
        np.hypot(*(own.std_error for own in (tree.box({}) for tree in (two, pair))))  # type: ignore[call-overload]
    )
    assert both.top(1, 0)[0].count == everything.count
    assert abs(everything.count - 3 * ROWS) < 30
    median = both.select_column("x").quantile(0.5)["value"]
    assert isinstance(median, float) and 20 < median < 40
    added: Any = both
    for refuse in (lambda: both.top(3, 4), lambda: both.node(4, 0), lambda: added.partition):
        with pytest.raises(ValueError, match="which have no nodes in common"):
            refuse()
    path = tmp_path / "window.parquet"
    boxes.succeed("sample", boxes.output, "--window", "2:4", "--output", path)
    x = pq.read_table(path)["x"].to_numpy()
    assert abs(len(x) - 3 * ROWS) < 30 and abs(x.mean() - 30) < 2


def test_the_totals_to_date_lie_in_each_run(boxes: Boxes) -> None:
    folder = SeriesFolder(str(boxes.output))
    for period in range(1, PERIODS + 1):
        files = sorted((boxes.period_folder(period) / "to-date" / "nodes").glob("*"))
        written = pa.concat_tables(map(pq.read_table, files))
        there = [table for _, table in folder.window(1, arrived=period).part_tables("box")]
        assert written.to_pylist() == pa.concat_tables(there).to_pylist()
    assert boxes.run("verify", boxes.period_folder(3)).code == 0


def test_rows_are_drawn_of_all_periods_and_of_one(boxes: Boxes, tmp_path: Path) -> None:
    numbers = {}
    for name, options in {
        "all": (),
        "three": ("--to-date", "3"),
        "pair": ("--window", "3:4"),
    }.items():
        path = tmp_path / f"{name}.parquet"
        boxes.succeed("sample", boxes.output, "--output", path, "--seed", "1", *options)
        numbers[name] = pq.read_table(path).num_rows
    path = tmp_path / "own.parquet"
    assert boxes.run("sample", boxes.period_folder(2), "--output", path).code == 0
    numbers["own"] = pq.read_table(path).num_rows
    wanted = {"all": PERIODS * ROWS, "three": 3 * ROWS, "pair": 2 * ROWS, "own": ROWS}
    assert all(abs(numbers[name] - wanted[name]) < 30 for name in wanted)


def test_the_mechanism_of_all_periods_is_the_partition_of_whole_levels(tmp_path: Path) -> None:
    workspace = Boxes(tmp_path)

    def change(settings: dict[str, Any]) -> None:
        settings["trees"][0] |= {"mechanism": "planned"}
        del settings["trees"][0]["counts"]

    planned = workspace.succeed("plan", workspace.configure(change)).out
    assert "PrivHP in any case: a partition of all periods so far" in planned
    path = workspace.configure(lambda settings: settings["trees"][0].update(mechanism="privtree"))
    assert "each period is released separately" in workspace.run("plan", path).out


def test_nothing_is_in_clear_and_the_last_run_leaves_none(boxes: Boxes) -> None:
    for period in range(1, PERIODS):
        (path,) = boxes.period_folder(period).glob("state/*")
        table = pq.read_table(path)
        assert table.column_names == ["sealed"]
        sealed = table["sealed"][0].as_py()
        # 16 bytes of the seal; the rest is a power of 2.
        assert (len(sealed) - 16) & (len(sealed) - 17) == 0
    assert not boxes.period_folder(PERIODS).joinpath("state").exists()
