"""Boxes of all periods so far: a partition that grows with every run of a series."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.questions.released import NODES
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.release.released import RunBefore, release_rows
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.query.series_folder import SeriesFolder
from dptrees.transforms.steps import carry
from tests.pipelines.series.runs import (
    Runs,
    balance_alone,
    lost,
    refused,
    repeated,
    without_its_balance,
)

PERIODS, ROWS = 5, 400
# How exact counts are held: all with a level of counters, whose noisy counts are seen as they are.
HOLDINGS: dict[str, dict[str, Any]] = {
    "dense": {"counts": "dense"},
    "sparse": {"counts": "sparse"},
    "sketch": {"counts": "sketch", "width": 64, "hashes": 1},
}


class Boxes(Runs):
    """A workspace whose rows of each period lie in other places of a box."""

    holding = "sparse"
    fanout: int | None = 2

    def write_period(self, period: int, *, moved: int = 0) -> pa.Table:
        """The rows of a period, in two files; `moved` puts a row elsewhere."""
        random = np.random.default_rng(period)
        x, y = random.normal(10 * period, 9, (2, ROWS)).clip(0, 99)
        x[0] = (x[0] + 50 * moved) % 100
        table = pa.table({"x": x, "y": y, "person": np.arange(ROWS) // 2})
        shutil.rmtree(self.rows, ignore_errors=True)
        self.rows.mkdir()
        mixed = table.take(random.permutation(ROWS))
        for index in range(2):
            pq.write_table(mixed.slice(200 * index, 200), self.file(index))
        return table

    @property
    def settings(self) -> dict[str, Any]:
        column = {"lower": 0, "upper": 100, "cells": 64}
        columns = [{"column": name} | column for name in ("x", "y")]
        own = {"mechanism": "privhp"} | HOLDINGS[self.holding]
        series: dict[str, Any] = {"periods": PERIODS, "period": 1}
        if self.fanout is not None:
            series["fanout"] = self.fanout
        return super().settings | {
            "privacy": {"epsilon": 30, "neighbors": "add_remove"},
            "series": series,
            "trees": [{"name": "box", "domain": {"kind": "hypercube", "columns": columns}} | own],
        }

    def measured(self, run: int, first: int, level: int = 1) -> dict[int, tuple[float, float]]:
        """What a run released of periods together: nodes of a level, and their standard errors."""
        folder = ReleaseFolder(str(self.period_folder(run)))
        question: Any = folder.plan.question("box")
        rows = folder.part(NODES, "box", 0, question.levels[0].plan.depths[level]).to_pylist()
        return {
            row["node"]: (row["estimate"], row["std_error"])
            for row in rows
            if (row["first"], row["last"]) == (first, run)
        }


def made(folder: Path, holding: str = "sparse", last: int = PERIODS) -> Boxes:
    workspace = Boxes(folder)
    workspace.holding = holding
    workspace.released_periods(last)
    return workspace


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Boxes:
    """All periods. Tests only read it."""
    return made(tmp_path_factory.mktemp("boxes"))


@pytest.fixture
def copy(boxes: Boxes, tmp_path: Path) -> Boxes:
    """The first two periods, to go on with."""
    folder = tmp_path / "copy"
    folder.mkdir()
    own = Boxes(folder)
    own.output.mkdir()
    for period in (1, 2):
        shutil.copytree(boxes.period_folder(period), own.period_folder(period))
    own.write_period(3)
    return own


# --- what is released ---


@pytest.mark.parametrize("holding", HOLDINGS)
def test_runs_are_made_again_from_their_rows(tmp_path: Path, holding: str) -> None:
    workspace = made(tmp_path, holding)
    outcome = workspace.run("query", workspace.output, "cdf", "--column", "x", "50", "--running")
    assert outcome.code == 0 and len(outcome.out.splitlines()) == PERIODS + 2
    configured = workspace.configured(PERIODS)
    outcome = workspace.run("verify", workspace.period_folder(PERIODS), "--data", configured)
    assert outcome.code == 0, outcome.out


def test_answers_are_of_all_periods_so_far(boxes: Boxes) -> None:
    folder = SeriesFolder(str(boxes.output))
    totals = [folder.window(1, arrived=period).tree("box") for period in range(1, PERIODS + 1)]
    for period, tree in enumerate(totals, 1):
        answer: Any = tree.box({"x": ("0", "50")})
        by_hand = sum(
            int((rows["x"].to_numpy() < 50).sum())
            for rows in (Boxes.write_period(boxes, each) for each in range(1, period + 1))
        )
        assert abs(answer.estimate - by_hand) < 6 * answer.std_error
    boxes.write_period(PERIODS)


def test_a_run_by_itself_is_its_period_and_the_window_is_a_node_of_time(boxes: Boxes) -> None:
    three = ["box", "--side", "x", "0", "100", "--json"]
    own = json.loads(boxes.run("query", boxes.period_folder(4), *three).out)["answers"][0]
    assert abs(own["count"] - ROWS) < 30
    pair = json.loads(boxes.run("query", boxes.output, *three, "--window", "3:4").out)
    assert abs(pair["answers"][0]["count"] - 2 * ROWS) < 30


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
    outcome = boxes.run("sample", boxes.output, "--window", "2:4", "--output", path)
    assert outcome.code == 0
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
        outcome = boxes.run("sample", boxes.output, "--output", path, "--seed", "1", *options)
        assert outcome.code == 0, outcome.err
        numbers[name] = pq.read_table(path).num_rows
    path = tmp_path / "own.parquet"
    assert boxes.run("sample", boxes.period_folder(2), "--output", path).code == 0
    numbers["own"] = pq.read_table(path).num_rows
    wanted = {"all": PERIODS * ROWS, "three": 3 * ROWS, "pair": 2 * ROWS, "own": ROWS}
    assert all(abs(numbers[name] - wanted[name]) < 30 for name in wanted)


def test_the_plan_says_what_a_period_and_all_to_date_cost(boxes: Boxes) -> None:
    outcome = boxes.run("plan", boxes.configured(1))
    assert "each row is in one node of every temporal level" in outcome.out
    assert "the error of a total to date is" in outcome.out and "12 of 12 bits deep" in outcome.out


def test_the_mechanism_of_all_periods_is_the_partition_of_whole_levels(tmp_path: Path) -> None:
    workspace = Boxes(tmp_path)

    def change(settings: dict[str, Any]) -> None:
        settings["trees"][0] |= {"mechanism": "planned"}
        del settings["trees"][0]["counts"]

    path = workspace.configure(change)
    assert (
        "PrivHP in any case: a partition of all periods so far" in workspace.run("plan", path).out
    )
    path = workspace.configure(lambda settings: settings["trees"][0].update(mechanism="privtree"))
    assert "each period is released separately" in workspace.run("plan", path).out


def test_a_run_in_memory_is_the_same_as_the_pipelines(boxes: Boxes, tmp_path: Path) -> None:
    other, key = Boxes(tmp_path), ReleaseKey(bytes(range(32)))
    before: list[RunBefore] = []
    for period in range(1, PERIODS + 1):
        theirs = ReleaseFolder(str(boxes.period_folder(period)))
        nonce = bytes.fromhex(str(theirs.manifest["nonce"]))
        spec: Any = theirs.manifest["spec"]
        rows = other.write_period(period)
        run = release_rows(plan_from_spec(spec), rows.to_batches(), key, nonce=nonce, before=before)
        before.append(RunBefore(run, nonce))
        for depth in (4, 12):
            ours = run.part(NODES, "box", 0, depth)
            assert ours.to_pylist() == theirs.part(NODES, "box", 0, depth).to_pylist()


def test_nothing_is_in_clear_and_the_last_run_leaves_none(boxes: Boxes) -> None:
    for period in range(1, PERIODS):
        (path,) = boxes.period_folder(period).glob("state/*")
        table = pq.read_table(path)
        assert table.column_names == ["sealed"]
        sealed = table["sealed"][0].as_py()
        # 16 bytes of the seal; the rest is a power of 2.
        assert (len(sealed) - 16) & (len(sealed) - 17) == 0
    assert not boxes.period_folder(PERIODS).joinpath("state").exists()


# --- repeated, killed, restored ---


def test_a_run_goes_on_from_what_is_there(copy: Boxes, boxes: Boxes) -> None:
    assert copy.period(3).code == 0
    (copy.period_folder(3) / "manifest.json").unlink()
    first = copy.snapshot(3)
    assert copy.period(3).code == 0
    again = copy.snapshot(3)
    assert {name: again[name] for name in first} == first


def test_a_run_is_repaired_with_the_same_bytes(copy: Boxes) -> None:
    assert copy.period(3).code == 0
    whole = copy.snapshot(3)
    for path in [*copy.period_folder(3).glob("state/*"), *copy.period_folder(3).glob("nodes/*")]:
        path.unlink()
    assert copy.period(3, "--repair").code == 0
    assert copy.snapshot(3) == whole


def test_other_rows_are_not_finished_as_the_same_draw(copy: Boxes) -> None:
    assert copy.period(3).code == 0
    (copy.period_folder(3) / "manifest.json").unlink()
    copy.write_period(3, moved=1)
    refused(copy.period(3), "made from other data")


@pytest.mark.parametrize("damage", ["deleted", "of another run", "cut off"])
def test_without_what_the_run_before_left_nothing_is_drawn(copy: Boxes, damage: str) -> None:
    (path,) = copy.period_folder(2).glob("state/*")
    if damage == "deleted":
        path.unlink()
    elif damage == "cut off":
        path.write_bytes(path.read_bytes()[:-5])
    else:
        (other,) = copy.period_folder(1).glob("state/*")
        path.write_bytes(other.read_bytes())
    refused(copy.period(3), "is missing or damaged; --repair makes it again")
    copy.write_period(2)
    assert copy.period(2, "--repair").code == 0
    shutil.rmtree(copy.period_folder(3))
    copy.write_period(3)
    assert copy.period(3).code == 0


def test_a_rotated_key_goes_on_with_the_key_of_the_series(copy: Boxes) -> None:
    """The noise of earlier periods is computed again under the key that drew it."""
    assert copy.run("keygen", copy.key, "--rotate").code == 0
    assert copy.period(3).code == 0
    whole, pair, own = (
        copy.measured(3, 1),
        copy.measured(2, 1),
        copy.measured(3, 3),
    )
    assert whole and pair and own
    manifests = [copy.period_folder(each) / "manifest.json" for each in (2, 3)]
    first, second = (json.loads(path.read_text())["key_id"] for path in manifests)
    assert first == second
    shutil.rmtree(copy.period_folder(3))
    copy.key.write_text(ReleaseKey(bytes(32)).to_text() + "\n")
    refused(copy.period(3), "does not hold the key")


# --- lost and repeated between steps ---


@pytest.mark.parametrize("fault", [lost, without_its_balance, balance_alone, repeated])
def test_counts_that_are_lost_stop_the_run(
    copy: Boxes, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., Any]
) -> None:
    own = carry._Open.process
    monkeypatch.setattr(
        carry._Open,
        "process",
        lambda self, element: fault(lambda each: own(self, each), element),
    )
    refused(copy.period(3), "the engine lost or repeated data")
    assert not (copy.period_folder(3) / "manifest.json").exists()
