"""What `dptrees plan --workers` predicts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dptrees.pipelines.cluster.costs import KindCosts
from dptrees.pipelines.cluster.needs import ClusterNeeds, predicted_needs
from dptrees.pipelines.configuration import load_configuration
from dptrees.pipelines.kinds import find_kind, is_tree
from tests.pipelines.conftest import Workspace
from tests.transforms.every_kind import PLANS

ROWS = 1e9


@pytest.fixture
def needs(workspace: Workspace) -> Any:
    """Predicts the needs of a changed configuration."""

    def predict(change: Any = None, *, workers: int = 10, rows: float = ROWS) -> ClusterNeeds:
        configuration = load_configuration(workspace.configure(change))
        return predicted_needs(configuration, configuration.plan(), workers=workers, rows=rows)

    return predict


def test_rows_take_processors_of_all_workers(needs: Any) -> None:
    few, many = needs(workers=10), needs(workers=100)
    assert many.rows_cpu == few.rows_cpu and many.leaves_cpu == few.leaves_cpu
    assert many.start_cpu == 10 * few.start_cpu
    assert few.seconds - many.seconds == pytest.approx(few.rows_cpu * (1 / 10 - 1 / 100), rel=0.1)
    assert many.shuffled > few.shuffled
    assert needs(rows=2 * ROWS).rows_cpu == pytest.approx(2 * few.rows_cpu)


def test_units_cost_processors_shuffle_and_memory(needs: Any) -> None:
    rows = needs()
    people = needs(lambda s: s["privacy"].update(unit="person", max_rows=3))
    assert people.rows_cpu > 5 * rows.rows_cpu
    assert people.shuffled > 6 * ROWS
    assert people.worker_memory > rows.worker_memory
    assert rows.unit_shards == 0 and people.unit_shards == 256
    # A shard holds no more than memory was planned for.
    assert 100 * ROWS / people.unit_shards < 500e6


def test_bounds_that_are_chosen_first_read_the_rows_once_more(needs: Any) -> None:
    stated = needs(lambda s: s["privacy"].update(unit="person", max_rows=3))
    chosen = needs(lambda s: s["privacy"].update(unit="person", max_rows="auto"))
    assert 1.4 * stated.rows_cpu < chosen.rows_cpu < 3 * stated.rows_cpu


def test_lines_of_text_take_longer_to_read(needs: Any) -> None:
    parquet = needs()
    csv = needs(lambda s: s["input"].update(format="csv"))
    assert csv.rows_cpu > 5 * parquet.rows_cpu and csv.leaves_cpu == parquet.leaves_cpu


def test_the_command(workspace: Workspace) -> None:
    path = workspace.configure()
    given = ("--workers", "100", "--rows", "1e10")
    lines = workspace.run("plan", path, *given).out.splitlines()
    (first,) = (number for number, line in enumerate(lines) if line.startswith("on 100 workers"))
    assert "for 10,000,000,000 rows" in lines[first]
    named = [line.strip().partition(":")[0] for line in lines[first + 1 :]]
    assert named == ["processors", "shuffled", "memory", "parts of the release"]
    entry = json.loads(workspace.run("plan", path, *given, "--json").out)["cluster"]
    configuration = load_configuration(path)
    assert entry == json.loads(
        json.dumps(
            predicted_needs(configuration, configuration.plan(), workers=100, rows=1e10).to_entry()
        )
    )
    assert "cluster" not in json.loads(workspace.run("plan", path, "--json").out)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--workers", "100"), "--workers: needs --rows"),
        (("--workers", "100", "--rows", "0"), "--workers: needs --rows"),
        (("--workers", "100", "--rows", "nan"), "--workers: needs --rows"),
        (("--workers", "0", "--rows", "10"), "0 is not a whole number from 1 to 1,000,000"),
        (("--workers", "9" * 400, "--rows", "10"), "is not a whole number from 1 to 1,000,000"),
        (("--workers", "1.5", "--rows", "10"), "1.5 is not a whole number from 1 to 1,000,000"),
        (("--rows", "10"), "goes with --target-error or --workers"),
    ],
)
def test_what_is_refused(workspace: Workspace, given: tuple[str, ...], words: str) -> None:
    outcome = workspace.run("plan", workspace.configure(), *given)
    assert outcome.code == 2 and words in outcome.err


def test_a_series_that_remembers_its_units_keeps_its_shards(workspace: Workspace) -> None:
    def change(settings: dict[str, Any]) -> None:
        settings["privacy"] |= {"unit": "person", "max_rows": 3}
        settings["series"] = {"periods": 9, "period": 2, "unit": "per_series", "max_periods": 3}

    path = workspace.configure(change)
    out = workspace.run("plan", path, "--workers", "100", "--rows", "1e10").out
    assert "rows of units: in 64 shards, which a series with max_periods keeps" in out
    entry = json.loads(
        workspace.run("plan", path, "--workers", "100", "--rows", "1e10", "--json").out
    )
    # A shard has 156 million rows.
    assert entry["cluster"]["worker_memory_bytes"] > 100 * 1e10 / 64


def test_keys_that_are_selected_are_predicted_as_one(workspace: Workspace) -> None:
    def change(settings: dict[str, Any]) -> None:
        settings["privacy"] |= {"delta": 1e-8}
        (tree, *_) = settings["trees"]
        settings["trees"] = [{**tree, "by": {"column": "carrier", "keys": "private"}}]

    outcome = workspace.run("plan", workspace.configure(change), "--workers", "2", "--rows", "1e6")
    assert "for 1,000,000 rows, as if one key were selected" in outcome.out, outcome.err


# Their costs are the defaults, of ordered trees.
LIKE_ORDERED = {"ordered", "exponential", "adaptive", "factorised", "series"}


def test_every_kind_is_predicted() -> None:
    """Every kind of tree has costs of its own, or is in the list above."""
    costs = {}
    for plan in PLANS.values():
        for question in filter(is_tree, plan().questions):
            costs[question.kind] = find_kind(question).lines().costs(question)
    assert {kind for kind, each in costs.items() if each == KindCosts()} <= LIKE_ORDERED
    assert {"hierarchy", "sparse", "hypercube", "table", "distinct", "mean"} <= costs.keys()
