"""Whatever fails, the noise is drawn once: one release, and no other draw anywhere.

Workers note every file that they write (planted/sitecustomize.py), so that also what a retry
replaced, or a later run swept, is compared with the release that nothing disturbed.
"""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dptrees.transforms.folder.names import INPUT_LIST_NAMES
from tests.engines.conftest import Workspace, release_files
from tests.engines.servers import kill_group

pytestmark = pytest.mark.engines

Files = dict[str, bytes]
Leaks = Callable[[Path], list[str]]

# Steps of the job, each in another stage, and what must be there once the step begins.
READ, DRAW, WRITE, COMMIT = "Read/Read", "Draw/Noise", "Draw/Finish", "Commit/Commit"
STEPS = (READ, DRAW, WRITE, COMMIT)

SETTLE_SECONDS = 120
# Of the tests' Spark: a stage that is computed once has one bundle in each.
SPARK_PARTITIONS = 2


def engines(*names: str) -> pytest.MarkDecorator:
    """Run a test on these engines only."""
    return pytest.mark.parametrize("running", names, indirect=True)


def check_drawn_once(workspace: Workspace, expected: Files, leaks: Leaks) -> None:
    """See that a folder holds the one release, that no worker ever wrote anything else, and that
    neither the key nor a row's value was left anywhere."""
    settle(workspace.output)
    assert release_files(workspace.output) == expected
    check_written(workspace, expected)
    assert leaks(workspace.output) + leaks(workspace.engine.servers.folder) == []


def settle(folder: Path) -> None:
    """Wait until nobody writes: a job whose launcher was killed may go on after the release."""
    limit = time.monotonic() + SETTLE_SECONDS
    while any(name.endswith(".tmp") for name in release_files(folder)):
        assert time.monotonic() < limit
        time.sleep(0.1)


def check_written(workspace: Workspace, expected: Files) -> None:
    """See that workers wrote the files of one draw only, however often."""
    wanted = {
        f"{Path(name).name} {hashlib.sha256(data).hexdigest()}" for name, data in expected.items()
    }
    # The launcher makes the report of the release, says beside it how long it took, and lists the
    # input's files, sealed, while the job runs.
    beside = ("report.html", "out.run.json", ".input-")
    written = [line for line in workspace.noted("written") if not line.startswith(beside)]
    assert written
    assert set(written) <= wanted


def check_left(folder: Path, expected: Files) -> None:
    """See that an interrupted run left nothing but parts of the one draw, whole or in part."""
    for name, data in release_files(folder).items():
        if INPUT_LIST_NAMES.fullmatch(name):
            continue
        if name.endswith(".tmp"):
            assert any(whole.startswith(data) for whole in expected.values()), name
        else:
            assert data == expected[name], name


@engines("local")
def test_bundles_processed_again(workspace: Workspace, undisturbed: Files, leaks: Leaks) -> None:
    workspace.release(("--runner=DirectRunner", "--direct_runner_bundle_repeat=2"))
    check_drawn_once(workspace, undisturbed, leaks)
    written = workspace.noted("written")
    assert len(written) > 1.5 * len(set(written))


@engines("flink", "spark", "spark_cluster")
def test_every_stage_fails_once_after_its_work(
    workspace: Workspace, undisturbed: Files, leaks: Leaks
) -> None:
    workspace.plant(raise_=1)
    workspace.release()
    check_drawn_once(workspace, undisturbed, leaks)
    begun, raised = workspace.noted("begun"), workspace.noted("raised")
    assert set(raised) == set(begun)
    assert any(WRITE in stage for stage in raised)


@engines("flink_cluster")
def test_checkpoints_and_blocking_shuffles(
    workspace: Workspace, undisturbed: Files, leaks: Leaks
) -> None:
    """Options of Flink for what is to be tried again: the first means nothing to a batch job, with
    the second every stage is stored, so that fewer of them are."""
    options = ("--checkpointing_interval=500", "--execution_mode_for_batch=BATCH_FORCED")
    workspace.plant(raise_=1)
    workspace.release((*workspace.engine.quick, *options))
    check_drawn_once(workspace, undisturbed, leaks)
    assert any(WRITE in stage for stage in workspace.noted("raised"))


@engines("spark")
def test_bundles_fail_once_after_their_work(
    workspace: Workspace, undisturbed: Files, leaks: Leaks
) -> None:
    workspace.plant(raise_=5)
    workspace.release()
    check_drawn_once(workspace, undisturbed, leaks)
    raised = workspace.noted("raised")
    assert len(raised) > 1.5 * len(set(raised))


@engines("spark_forgetful")
def test_spark_computes_again(workspace: Workspace, undisturbed: Files, leaks: Leaks) -> None:
    workspace.release()
    check_drawn_once(workspace, undisturbed, leaks)
    begun = workspace.noted("begun")
    for step in (READ, DRAW):
        assert sum(step in stage for stage in begun) > SPARK_PARTITIONS


@engines("flink_cluster", "spark_cluster")
def test_one_of_two_workers_killed(workspace: Workspace, undisturbed: Files, leaks: Leaks) -> None:
    """A task manager or an executor is lost with its processes of Python, and what it had made."""
    kill, start = workspace.engine.kill_worker, workspace.engine.start_worker
    assert kill is not None and start is not None
    workspace.plant(hold=READ)
    process, lost = workspace.start(), False
    try:
        workspace.wait_for(READ, process)
        kill(0)
        check_left(workspace.output, undisturbed)
        # The other does it all, until it is the one that is lost.
        workspace.plant(hold=DRAW)
        workspace.wait_for(DRAW, process)
        start(0)
        workspace.plant(hold=WRITE)
        workspace.wait_for(WRITE, process)
        kill(1)
        lost = True
        check_left(workspace.output, undisturbed)
        workspace.plant(hold="")
        assert workspace.finish(process) == 0, workspace.log()
    finally:
        kill_group(process)
        if lost:
            start(1)  # for the tests that follow
    check_drawn_once(workspace, undisturbed, leaks)


@engines("spark_cluster")
def test_tasks_run_twice_at_once(workspace: Workspace, undisturbed: Files, leaks: Leaks) -> None:
    """Speculation: what the slow one of two workers does, the other does again meanwhile."""
    before = second_attempts(workspace)
    workspace.plant(straggle=3)
    workspace.release()
    check_drawn_once(workspace, undisturbed, leaks)
    assert second_attempts(workspace) > before


def second_attempts(workspace: Workspace) -> int:
    """How many tasks Spark has begun while it still ran them elsewhere."""
    logs = (workspace.engine.servers.folder / "events").iterdir()
    events = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    begun = [each["Task Info"] for each in events if each["Event"] == "SparkListenerTaskStart"]
    return sum(task["Speculative"] for task in begun)


@pytest.mark.parametrize(
    ("running", "step"),
    [
        *(("prism", step) for step in STEPS),
        *(("flink", step) for step in (DRAW, COMMIT)),
        *(("spark", step) for step in (READ, WRITE)),
        # Here the job goes on without its launcher, and the second one waits for its slots.
        *(("flink_cluster", step) for step in (READ, WRITE)),
    ],
    indirect=["running"],
)
def test_launcher_killed_and_run_again(
    workspace: Workspace, undisturbed: Files, leaks: Leaks, step: str
) -> None:
    workspace.plant(hold=step)
    process = workspace.start()
    try:
        workspace.wait_for(step, process)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        check_left(workspace.output, undisturbed)
        workspace.plant(hold="")
        if workspace.engine.restart_server is not None:
            workspace.engine.restart_server()
        workspace.release()
    finally:
        kill_group(process)
    check_drawn_once(workspace, undisturbed, leaks)


@engines("local", "prism", "flink", "flink_cluster", "spark")
def test_two_submissions_at_once(workspace: Workspace, undisturbed: Files, leaks: Leaks) -> None:
    workspace.plant(sleep=0.2)
    other = workspace.engine.second_server
    options = workspace.engine.quick if other is None else other()
    first, second = workspace.start(), workspace.start(options)
    try:
        codes = workspace.finish(first), workspace.finish(second)
    finally:
        kill_group(second)
    assert codes == (0, 0), workspace.log()
    check_drawn_once(workspace, undisturbed, leaks)


def test_planted_second_draw_is_found(tmp_path: Path, undisturbed: Files) -> None:
    name, data = next(item for item in undisturbed.items() if item[0].startswith("nodes/"))
    (tmp_path / "nodes").mkdir()
    (tmp_path / name).write_bytes(data)
    check_left(tmp_path, undisturbed)
    (tmp_path / "nodes" / ".0a.tmp").write_bytes(data[: len(data) // 2] + b"another draw")
    with pytest.raises(AssertionError):
        check_left(tmp_path, undisturbed)
