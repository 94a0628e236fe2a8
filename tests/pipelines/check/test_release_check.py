"""A check without rows: it ends as the run would before its job, and changes nothing anywhere."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.pipelines.check import places
from dptrees.pipelines.run import engine
from dptrees.pipelines.run import stage as stages
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers import parquet_rows
from dptrees.transforms.readers import read as reading
from tests.pipelines.conftest import Outcome, Workspace
from tests.pipelines.daily import DAYS, daily_series
from tests.pipelines.test_private_keys import change as private_keys
from tests.pipelines.test_private_keys import shops  # noqa: F401, a fixture

Settings = dict[str, Any]


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file and folder below a folder, with its time and its bytes."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


def dry(workspace: Workspace, *options: str) -> Outcome:
    """A check of the written configuration, which leaves everything as it was."""
    before = everything(workspace.folder)
    outcome = workspace.run("check", workspace.folder / "release.yaml", "--no-rows", *options)
    assert everything(workspace.folder) == before
    assert not any(value in outcome.out + outcome.err for value in workspace.SENTINELS)
    return outcome


def ended_as_the_run(workspace: Workspace, *options: str) -> Outcome:
    """A check, which ends with the exit code and the sentence of the run that follows it."""
    outcome = dry(workspace, *options)
    run = workspace.run("release", workspace.folder / "release.yaml", *options)
    assert (outcome.code, outcome.err) == (run.code, run.err)
    return outcome


def report(workspace: Workspace, *options: str) -> dict[str, Any]:
    """The report of a check for a program."""
    result = json.loads(dry(workspace, "--json", *options).out)
    assert isinstance(result, dict)
    return result


def no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any reading of rows fail."""

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("a row was read")

    monkeypatch.setattr(parquet_rows, "batches", refused)
    monkeypatch.setattr(stages, "run_job", refused)


def ledgered(workspace: Workspace, *, epsilon: float = 3.0) -> Callable[[Settings], None]:
    """The change of a configuration whose release is counted in a new ledger."""
    url = f"sqlite:///{workspace.folder}/budget.db"
    given = ("--dataset", "people", "--epsilon", epsilon)
    assert workspace.run("ledger", "init", url, *given).code == 0
    return lambda settings: settings.update(ledger=url, dataset="people")


def test_a_release_that_would_start(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.configure(ledgered(workspace))
    no_rows(monkeypatch)
    outcome = dry(workspace)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[-1] == "the release would start"
    for words in (
        "Do not publish this report",
        "3 files of parquet",
        "place: string",
        "is new, and may be written",
        "epsilon 0 of 3 is spent or reserved",
        "after this release epsilon 2 would be left",
        "predicted error",
    ):
        assert words in outcome.out
    found = report(workspace)
    assert found["would_start"] and found["exit_code"] == 0 and found["state"] == "new"
    sizes = [path.stat().st_size for path in workspace.rows.iterdir()]
    rows = found["input"]
    assert (rows["files"], rows["bytes"], rows["heads_read"]) == (3, sum(sizes), 3)
    assert rows["columns"] == {"x": "double", "place": "string"}
    assert rows["oldest"] <= rows["newest"] and rows["newest"].endswith("+00:00")
    assert found["ledger"]["left_after"] == {"epsilon": 2.0}
    assert len(found["key"]["id"]) == 16 and found["engine"]["runs_here"]
    assert [each["name"] for each in found["total"]["trees"]] == ["all", "places"]


def gone(workspace: Workspace) -> None:
    for path in workspace.rows.iterdir():
        path.unlink()


def no_place(workspace: Workspace) -> None:
    pq.write_table(pa.table({"x": pa.array([1.0])}), workspace.file(0))


def no_parquet(workspace: Workspace) -> None:
    workspace.file(0).write_text("kumquat")


def old(workspace: Workspace) -> None:
    for path in workspace.rows.iterdir():
        os.utime(path, (0, time.time() - 200_000))


def stranger(workspace: Workspace) -> None:
    workspace.output.mkdir()
    (workspace.output / "notes.txt").write_text("mine")


def a_file(workspace: Workspace) -> None:
    workspace.output.write_text("mine")


@pytest.mark.parametrize(
    ("prepare", "settings", "options", "code"),
    [
        (gone, {}, (), 2),
        (gone, {"input": {"min_files": 1}}, (), 75),
        (None, {"input": {"min_files": 9}}, (), 75),
        (None, {"input": {"require": "_SUCCESS"}}, (), 75),
        (old, {"input": {"max_age": "2d"}}, (), 75),
        (None, {"input": {"schema": {"x": "int64"}}}, (), 2),
        (no_place, {}, (), 2),
        (no_parquet, {}, (), 2),
        (stranger, {}, (), 2),
        (a_file, {}, (), 2),
        (lambda workspace: workspace.key.unlink(), {}, (), 2),
        (lambda workspace: workspace.key.chmod(0o644), {}, (), 2),
        (lambda workspace: workspace.key.write_text("no key"), {}, (), 2),
        (None, {"signing_key": "absent.pem"}, (), 2),
        (None, {"ledger": "sqlite:///absent.db", "dataset": "people"}, (), 2),
        (None, {"trees": []}, (), 2),
        (None, {}, ("--runner=Nonsense",), 2),
        (None, {}, ("--runner=PortableRunner", "--job_endpoint=localhost"), 2),
        (None, {}, ("--runner=PortableRunner", "--job_endpoint=localhost:1"), 75),
        (None, {}, ("--no_such_option",), 2),
    ],
)
def test_a_check_ends_as_the_run(
    prepare: Callable[[Workspace], object] | None,
    settings: Settings,
    options: tuple[str, ...],
    code: int,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its sentence on standard error is the run's, too."""
    monkeypatch.setattr(engine, "ANSWER_SECONDS", 0.2)
    monkeypatch.chdir(workspace.folder)
    if prepare is not None:
        prepare(workspace)

    def apply(own: Settings) -> None:
        for key, value in settings.items():
            own[key] = own[key] | value if isinstance(value, dict) else value

    workspace.configure(apply)
    outcome = ended_as_the_run(workspace, *options)
    assert outcome.code == code and outcome.err.count("\n") == 1


def test_all_faults_are_shown_and_the_first_one_counts(workspace: Workspace) -> None:
    workspace.key.unlink()
    gone(workspace)
    workspace.configure(lambda settings: settings["input"].update(min_files=1))
    outcome = dry(workspace)
    assert outcome.code == 2 and "release.key does not exist" in outcome.err
    assert "REFUSED, exit code 2: key:" in outcome.out
    assert "REFUSED, exit code 75: input.path: no file matches" in outcome.out
    assert outcome.out.splitlines()[-1] == "the release would not start: exit code 2"
    found = report(workspace)
    assert not found["key"]["ok"] and found["input"]["exit_code"] == 75
    assert found["exit_code"] == 2 and found["output"]["ok"]


def test_a_budget_that_does_not_suffice(workspace: Workspace) -> None:
    workspace.configure(ledgered(workspace, epsilon=0.5))
    outcome = ended_as_the_run(workspace)
    assert outcome.code == 2 and "the total of data set people would be exceeded" in outcome.err


def test_a_ledger_that_is_locked_stays_free(workspace: Workspace) -> None:
    """After a check another process takes its lock at once, and finds no entry."""
    workspace.configure(ledgered(workspace))
    assert dry(workspace).code == 0
    with sqlite3.connect(workspace.folder / "budget.db", timeout=0.1) as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert connection.execute("SELECT count(*) FROM dptrees_releases").fetchone() == (0,)


def test_a_finished_release(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workspace.configure(ledgered(workspace))
    assert workspace.run("release", path).code == 0
    no_rows(monkeypatch)
    gone(workspace)  # a run would read nothing
    outcome = dry(workspace)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[-1].startswith("the release exists: a run would read no row")
    found = report(workspace)
    assert found["state"] == "finished" and found["ledger"]["release"] == "committed"
    part = next(workspace.output.rglob("nodes/*.parquet"))
    part.unlink()
    outcome = ended_as_the_run(workspace)
    assert outcome.code == 2 and "is missing, of" in outcome.err


def test_a_finished_release_that_the_ledger_does_not_know(workspace: Workspace) -> None:
    change = ledgered(workspace)
    path = workspace.configure(change)
    assert workspace.run("release", path).code == 0
    (workspace.folder / "budget.db").unlink()
    ledgered(workspace)
    outcome = ended_as_the_run(workspace)
    assert outcome.code == 2 and "is not in sqlite" in outcome.err


def test_a_release_that_was_begun(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workspace.configure(ledgered(workspace))

    def killed(*_: Any) -> None:
        raise InputError("input: gone", again=True)

    with monkeypatch.context() as patched:
        patched.setattr(stages, "run_job", killed)
        assert workspace.run("release", path).code == 75
    outcome = dry(workspace)
    assert (outcome.code, outcome.err) == (0, "")
    assert "holds the beginning of this release, and may be written" in outcome.out
    assert "this release is reserved already, and costs nothing more" in outcome.out
    assert "after this release epsilon 2 would be left" in outcome.out
    found = report(workspace)
    assert found["state"] == "begun" and found["ledger"]["release"] == "reserved"


def test_a_release_with_private_keys(
    shops: Workspace,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two jobs, which the ledger counts together."""
    url = f"sqlite:///{shops.folder}/budget.db"
    given = ("--dataset", "people", "--epsilon", 3, "--delta", 1e-3)
    assert shops.run("ledger", "init", url, *given).code == 0
    apply = private_keys()

    def change(settings: Settings) -> None:
        apply(settings)
        settings.update(ledger=url, dataset="people")

    path = shops.configure(change)
    found = report(shops)
    assert found["would_start"] and found["state"] == "new"
    assert found["ledger"]["left_after"]["epsilon"] == pytest.approx(1)
    assert "a first job makes the selection of its keys" in dry(shops).out
    run_job, jobs = stages.run_job, []

    def second_fails(*arguments: Any) -> None:
        jobs.append(arguments)
        if len(jobs) == 2:
            raise InputError("input: gone", again=True)
        run_job(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(stages, "run_job", second_fails)
        assert shops.run("release", path).code == 75
    found = report(shops)
    assert found["would_start"] and found["state"] == "begun"
    assert found["ledger"]["left_after"]["epsilon"] == pytest.approx(1)
    assert shops.run("release", path).code == 0
    assert report(shops)["state"] == "finished"


@pytest.fixture
def daily(workspace: Workspace) -> str:
    """The configuration of a series of days, the third without a file."""
    return daily_series(workspace)


def test_a_series(workspace: Workspace, daily: str) -> None:
    first, second = (("--set", f"date={day}") for day in DAYS[:2])
    assert "period 1 of 4 is next" in dry(workspace, *first).out
    outcome = ended_as_the_run(workspace, *second)
    assert outcome.code == 2 and "contains no finished release" in outcome.err
    assert workspace.run("release", daily, *first).code == 0
    assert report(workspace, *first)["state"] == "finished"
    assert "period 2 of 4 is next" in dry(workspace, *second).out


def test_heads_of_many_files(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only the first one: the job would find a fault after the budget is reserved."""
    workspace.configure()
    pq.write_table(pa.table({"x": pa.array(["a"]), "place": pa.array(["a"])}), workspace.file(2))
    outcome = dry(workspace)
    assert outcome.code == 2 and "part-2.parquet" in outcome.err
    for module in (places, reading):
        monkeypatch.setattr(module, "spread", lambda paths, *_: paths[:1])
    assert dry(workspace).code == 0


def test_formats_of_text(workspace: Workspace) -> None:
    for path in workspace.rows.iterdir():
        path.unlink()
    (workspace.rows / "a.csv").write_text("x,place\n61.7313,kumquat\n")
    (workspace.rows / "a.jsonl").write_text('{"x": 61.7313, "place": "kumquat"}\n')

    def of(format: str, ending: str) -> None:
        given = {"format": format, "path": str(workspace.rows / f"*.{ending}")}
        workspace.configure(lambda settings: settings.update(input=given))

    of("csv", "csv")
    assert report(workspace)["input"]["columns"] == {"x": "text", "place": "text"}
    of("json", "jsonl")
    assert report(workspace)["input"]["columns"] is None
    assert "columns are not looked for: the names are in the rows" in dry(workspace).out


def test_memory_is_stated_before_a_release_starts(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def many(settings: Settings) -> None:
        settings["trees"] = settings["trees"][:1]
        settings["trees"][0]["domain"]["cells"] = 2**20

    path = workspace.configure(many)
    assert "this process runs the job, with about 0.7 GiB of memory" in dry(workspace).out
    assert report(workspace)["engine"]["memory"] > 16 * 2**20 + 2**29
    monkeypatch.setattr(os, "sysconf", lambda name: 2**10)
    outcome = workspace.run("release", path)
    assert outcome.code == 0 and "may need 0.7 GiB of memory, and there are" in outcome.err


def test_memory_that_grows_with_the_rows_is_named(workspace: Workspace) -> None:
    def distinct(settings: Settings) -> None:
        domain = {"kind": "distinct", "column": "place"}
        settings["trees"] = [{"name": "n", "domain": domain, "max_values": 1}]

    workspace.configure(distinct)
    assert "boxes, sparse trees and distinct values need more" in dry(workspace).out


def test_an_analyst_without_the_key_reads_the_rows_of_a_later_period(
    workspace: Workspace, daily: str
) -> None:
    """The plan is that of the run before, whose key is not there: one finding, beside the rows."""
    assert workspace.run("release", daily, "--set", f"date={DAYS[0]}").code == 0
    workspace.key.unlink()
    second = ("--set", f"date={DAYS[1]}")
    ended_as_the_run(workspace, *second)
    rows = workspace.run("check", daily, *second)
    assert rows.code == 0 and "rows read" in rows.out
    assert rows.out.splitlines()[-1] == "the release would not start: exit code 2"
