"""``dptrees release`` end to end: killed at any moment it recovers, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import DirectOptions, SetupOptions

from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.process import UserError
from dptrees.pipelines.run import job
from dptrees.pipelines.run.engine import BEAMS_RUNNER
from dptrees.pipelines.run.job import LOOP_RUNNER, job_options
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder.names import INPUT_LIST_NAMES
from dptrees.transforms.held import GivenRows
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.release import Release
from tests.pipelines.conftest import (
    NONCE,
    Change,
    Outcome,
    Workspace,
    put,
    read_files,
    release_files,
    run_python,
    update,
)

BESIDE_PARTS = {"manifest.json", "nonce.json", "plan.json", "record.json", "report.html"}


# The first tree is one of many parts, so that a process can be killed between them.
wide = put("trees.0.domain.cells", 140_000)
SKETCH = {"domain": {"kind": "sketch", "column": "place"}, "hashes": 7}
sketched = update(trees=[{"name": "sketch", "width": 2**20, **SKETCH}])


@pytest.fixture(scope="module", params=[wide, sketched], ids=["tree", "sketch"])
def parts(request: pytest.FixtureRequest) -> Change:
    """A configuration of many parts."""
    change: Change = request.param
    return change


@pytest.fixture(scope="module")
def undisturbed(parts: Change, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with the release of many parts."""
    workspace = Workspace(tmp_path_factory.mktemp("undisturbed"))
    workspace.make(parts)
    return workspace


# What a run leaves that ends at the record, or between two parts: test_bad_input's full disk.
MOMENTS = ("first temporary part", "manifest")
# The command in a process that kills itself, with no chance to clean up, once it has come so far.
KILLED = """
import os, signal, sys
from dptrees.transforms.folder import files
from dptrees.pipelines.cli.command import main
moment = sys.argv.pop(1)
put, finished = files._put, files._finished

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def half(file, content):
    if moment == "first temporary part" and content[:4] == b"PAR1":
        put(file, content[: len(content) // 2])
        file.flush()
        killed()
    put(file, content)

def named(path, *arguments):
    done = finished(path, *arguments)
    if moment == os.path.basename(path).removesuffix(".json"):
        killed()
    return done

files._put, files._finished = half, named
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_and_run_again(
    workspace: Workspace,
    parts: Change,
    undisturbed: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    path, elsewhere = workspace.configure(parts), workspace.folder / "tmp"
    elsewhere.mkdir()
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    run = (KILLED, moment, "release", path, *NONCE)
    ended = run_python(*run, cwd=workspace.folder)
    assert ended.returncode == -signal.SIGKILL, ended.stderr

    # What a killed job leaves: released bytes, the record and the sealed list of the input's files;
    # no exact counts and no key.
    assert not read_files(elsewhere)
    expected = release_files(undisturbed.output)
    left = release_files(workspace.output)
    (listed,) = (name for name in left if INPUT_LIST_NAMES.fullmatch(name))
    assert b"part-0" not in left.pop(listed)
    assert any(name.endswith(".tmp") for name in left) == (moment != "manifest")
    assert ("manifest.json" in left) == (moment == "manifest")
    for name, data in left.items():
        if name.endswith(".tmp"):
            assert any(whole.startswith(data) for whole in expected.values())
        else:
            assert data == expected[name]

    workspace.succeed("release", path)
    assert release_files(workspace.output) == expected
    assert (workspace.output / "report.html").exists()


def test_strays_are_swept(again: Workspace) -> None:
    """What other runs left behind goes; what is not the program's stays."""
    (again.output / "manifest.json").unlink()
    strays = {f"nodes/.{32 * 'a'}.tmp", f".{32 * '0'}.tmp"}
    strays.add(f"nodes/all-000000-000000-{16 * '0'}.parquet")
    mine = {"notes.txt", "x.tmp", "nodes/mine.parquet", "cdf/all-notes.txt"}
    for name in strays | mine:
        (again.output / name).write_text("of others")
    files = again.make().files
    assert set(release_files(again.output)) == ({*files} | mine | BESIDE_PARTS - {"report.html"})


def test_parts_without_a_record_are_not_joined(again: Workspace) -> None:
    for name in ("manifest.json", "record.json"):
        (again.output / name).unlink()
    before = release_files(again.output)
    refused = again.release()
    assert refused.code == 2 and "contains parts of a release without record.json" in refused.err
    assert release_files(again.output) == before
    again.make(None, "--discard")


def test_folder_holds_the_release_and_nothing_else(undisturbed: Workspace) -> None:
    files = undisturbed.made().files
    assert len(files) == len(set(files)) > 6
    assert {*read_files(undisturbed.output)} == {*files} | BESIDE_PARTS
    modes = {path.stat().st_mode & 0o111 for path in undisturbed.output.rglob("*.*")}
    assert modes == {0}


@pytest.mark.parametrize("option", ["--direct_runner_bundle_repeat=2", "--runner=DirectRunner"])
def test_release_is_drawn_once(workspace: Workspace, released: Workspace, option: str) -> None:
    workspace.make(None, option)
    assert release_files(workspace.output) == release_files(released.output)


def test_order_of_rows_and_split_into_files_do_not_matter(
    workspace: Workspace, released: Workspace
) -> None:
    rows = workspace.values()
    shuffled = rows.take(pa.array(np.random.default_rng(3).permutation(rows.num_rows)))
    for index, (start, length) in enumerate(((0, 1), (1, 0), (1, rows.num_rows - 1))):
        pq.write_table(shuffled.slice(start, length), workspace.file(index), row_group_size=97)
    workspace.make()
    assert release_files(workspace.output) == release_files(released.output)


def columns_of_numbers(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield every column of numbers of every Parquet file, and its runs of one level."""
    for path in sorted(folder.rglob("*.parquet")):
        table = pq.read_table(path)
        parts = [table]
        if "level" in table.column_names:
            levels = table["level"].to_numpy()
            parts += [table.filter(pa.array(levels == level)) for level in np.unique(levels)]
        for part in parts:
            for field in part.schema:
                if pa.types.is_floating(field.type) or pa.types.is_integer(field.type):
                    yield f"{path.name}: {field.name}", part[field.name].to_numpy()


def exact_columns(folder: Path, exact: np.ndarray) -> list[str]:
    """Return the columns that show more exact counts, or exact prefixes, than chance does."""
    found = []
    for name, column in columns_of_numbers(folder):
        for truth in (exact, np.cumsum(exact)):
            if len(column) == len(truth) and np.count_nonzero(column == truth) > len(truth) // 2:
                found.append(name)
    return found


def test_exact_counts_are_nowhere_on_disk(released: Workspace, tmp_path: Path) -> None:
    x = released.values()["x"].to_numpy()
    exact = np.histogram(np.clip(x, 0, 99.999), bins=16, range=(0, 100))[0]
    assert exact.sum() == len(x)
    assert exact_columns(released.output, exact) == []
    pq.write_table(pa.table({"count": exact}), tmp_path / "planted.parquet")
    pq.write_table(pa.table({"sum": np.cumsum(exact)}), tmp_path / "sums.parquet")
    assert len(exact_columns(tmp_path, exact)) == 2


def test_key_is_nowhere_in_the_release(released: Workspace) -> None:
    text = released.key.read_bytes().strip().split(b":")[1]
    for name, data in read_files(released.output).items():
        assert text not in data and bytes(range(32)) not in data, name
    record = json.loads((released.output / "record.json").read_text())
    assert set(record) == {"record"} and len(bytes.fromhex(record["record"])) == 32


def test_a_job_that_ends_without_a_commit(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "dptrees.transforms.steps.record._Commit.process", lambda self, element, draw: ()
    )
    outcome = workspace.release()
    assert (outcome.code, outcome.out) == (75, "")
    assert outcome.err == (
        "dptrees: the engine lost or repeated data: nothing arrived at the commit\n"
    )


def test_runners() -> None:
    for arguments in ([], ["--unit_shards=9"], ["--s3_region_name=eu-west-1"]):
        assert job_options(arguments).runner == LOOP_RUNNER and job_options(arguments).is_here
    for name in ("DirectRunner", "direct", "SWITCHINGDIRECT"):
        options = job_options([f"--runner={name}"])
        assert options.runner == BEAMS_RUNNER and options.is_here
        assert options.beam.view_as(DirectOptions).direct_num_workers == 1
    for name in ("FnApiRunner", "PrismRunner", "FlinkRunner", "flink"):
        assert job_options([f"--runner={name}"]).runner == name


@pytest.mark.parametrize(
    ("arguments", "cells", "threads"),
    [
        ([], 2**22, 7),
        ([], 2**22 + 1, 1),
        (["--direct_num_workers=3"], 2**23, 3),
        (["--direct_num_workers=3"], 8, 3),
    ],
)
def test_large_arrays_of_counts_are_held_once(
    arguments: list[str],
    cells: int,
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    domain = StepDomain(kind="integer", column="x", lower=0, upper=cells)
    own = OrderedWorkload(name="x", domain=domain, quantiles=())
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    question = own.planned(Setting(unit=ADD_REMOVE_ROW, budget=budget))
    plan = ReleasePlan(name="r", unit=ADD_REMOVE_ROW, budget=budget, questions=(question,))
    ran: list[int] = []
    monkeypatch.setattr(job, "run_flow", lambda graph, number: ran.append(number))
    monkeypatch.setattr(job, "processor_count", lambda: 7)
    release = Release(plan, key=KeyReference(reference="env:NONE"), output=str(tmp_path / "out"))
    monkeypatch.setattr(Release, "expand", lambda *_: None)
    for given in (arguments, [*arguments, "--s3_region_name=eu-west-1"]):
        job.run_job(GivenRows(0), release, job_options(given))
    assert ran == [threads] * 2


@pytest.mark.parametrize("others", [[], ["--s3_region_name=eu-west-1"]])
@pytest.mark.parametrize("option", ["--direct_num_workers=-1", "--unit_shards=0"])
def test_numbers_out_of_range(option: str, others: list[str]) -> None:
    with pytest.raises((UserError, InputError), match=f"{option.partition('=')[0]}: -?[01] is"):
        job_options([option, *others])


def test_main_session_is_never_saved() -> None:
    options = job_options(["--save_main_session"])
    assert options.beam.view_as(SetupOptions).save_main_session is False


# --- the folder holds the release alone ---


ORPHAN = "universe-0123456789abcdef.parquet"


def over_places(workspace: Workspace, *places: str) -> str:
    """A configuration of a tree over a table of places."""
    table = workspace.folder / f"places-{len(places)}.csv"
    table.write_text("\n".join(["place", *places]) + "\n")

    domain = {"kind": "hierarchy", "columns": ["place"], "table": str(table)}
    return workspace.configure(update(trees=[{"name": "places", "domain": domain}]))


def universes(workspace: Workspace) -> list[str]:
    return sorted(path.name for path in workspace.output.glob("universe-*"))


def test_a_run_that_fails_leaves_no_table_for_the_next_release(workspace: Workspace) -> None:
    # It begins and ends as Parquet does: a worker finds that the rest is damaged.
    good = workspace.file(2).read_bytes()
    column = pq.read_metadata(workspace.file(2)).row_group(0).column(1)
    start = column.dictionary_page_offset or column.data_page_offset
    workspace.file(2).write_bytes(good[:start] + bytes(20) + good[start + 20 :])
    failed = workspace.run("release", over_places(workspace, "north", "south"))
    assert failed.code == 2 and "is damaged" in failed.err
    assert sorted(path.name for path in workspace.output.iterdir()) == ["nonce.json", "plan.json"]
    workspace.file(2).write_bytes(good)
    workspace.succeed("release", over_places(workspace, "north", "south", "west"))
    assert len(universes(workspace)) == 1


def test_what_a_killed_run_left_goes_when_a_release_is_there(workspace: Workspace) -> None:
    workspace.output.mkdir()
    (workspace.output / ORPHAN).write_bytes(b"of another release")
    workspace.succeed("release", over_places(workspace, "north", "south"))
    assert len(universes(workspace)) == 1 and ORPHAN not in universes(workspace)


@pytest.mark.parametrize("name", ["notes.txt", "other/manifest.json", "manifest.json.bak"])
def test_a_release_is_not_begun_beside_other_files(workspace: Workspace, name: str) -> None:
    mine = workspace.output / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    outcome = workspace.release()
    assert outcome.code == 2 and outcome.err == (
        f"dptrees: output: {workspace.output} holds {name.split('/')[0]}, which does not belong "
        "to a release; choose a new or empty folder\n"
    )
    assert read_files(workspace.output) == {name: b"mine"}


def test_hidden_files_are_left_out(workspace: Workspace) -> None:
    workspace.output.mkdir()
    (workspace.output / ".gitignore").write_text("*")
    workspace.make()
    assert (workspace.output / ".gitignore").read_text() == "*"


# --- what a second run reveals: nothing about the rows, but where that is requested and said ---

# With a victim's row taken out and another put in, an exit code would show whether both fall into
# the same cells, exactly and at any epsilon; so would tables that are the same bytes.
OTHER_NONCE = ("--nonce", 32 * "f")


def exchange(workspace: Workspace, value: float) -> None:
    """Take the first row out, and put in one of this value."""
    rows = pq.read_table(workspace.file(0)).slice(1)
    row = pa.table({"x": [value], "place": ["north"]})
    pq.write_table(pa.concat_tables([row, rows]), workspace.file(0))


def plain(workspace: Workspace, *options: str) -> Outcome:
    """Run the release as a person does, without a nonce."""
    return workspace.run("release", workspace.configure(), *options)


def test_a_second_run_reveals_no_cell(workspace: Workspace) -> None:
    exchange(workspace, 3.0)
    assert plain(workspace).code == 0
    before, outcomes = read_files(workspace.output), []
    for value in (3.1, 97.0):  # of the same cell as the victim's, and of another
        exchange(workspace, value)
        outcomes.append(plain(workspace))
    assert outcomes[0] == outcomes[1] and outcomes[0].code == 0
    assert read_files(workspace.output) == before


def test_a_second_run_reads_no_row_and_needs_no_key(again: Workspace) -> None:
    before = read_files(again.output)
    files = [again.output / "manifest.json", again.output / "report.html"]
    for path in files:
        os.utime(path, (1, 1))
    shutil.rmtree(again.rows)
    again.key.unlink()
    outcome = plain(again)
    assert (outcome.code, outcome.err) == (0, "")
    assert "is already there; no rows were read" in outcome.out
    assert read_files(again.output) == before
    assert [path.stat().st_mtime for path in files] == [1, 1]


def test_another_folder_shows_no_equal_bytes(workspace: Workspace, tmp_path: Path) -> None:
    assert plain(workspace).code == 0
    first = read_files(workspace.output)
    shutil.move(workspace.output, tmp_path / "first")
    assert plain(workspace).code == 0
    second = read_files(workspace.output)
    parts = {name for name in first if name.startswith(("nodes/", "cdf/"))}
    assert parts and not parts & second.keys()
    for name in ("record.json", "nonce.json", "quantiles.parquet"):
        assert first[name] != second[name]


def test_the_same_nonce_shows_equal_bytes(workspace: Workspace, released: Workspace) -> None:
    """Why it is for comparing engines and files alone."""
    assert plain(workspace, *NONCE).code == 0
    assert read_files(workspace.output) == read_files(released.output)


def test_a_killed_run_is_finished_or_discarded(again: Workspace) -> None:
    finished = read_files(again.output)
    (again.output / "manifest.json").unlink()
    assert plain(again).code == 0
    assert read_files(again.output) == finished

    (again.output / "manifest.json").unlink()
    exchange(again, 3.0)
    refused = plain(again)
    assert refused.code == 2 and "start an unfinished one again with --discard" in refused.err
    outcome = plain(again, "--discard")
    assert outcome.code == 0 and "its budget counts as spent" in outcome.out
    assert (
        not {name for name in finished if name.startswith("nodes/")}
        & read_files(again.output).keys()
    )


def test_options_that_cannot_be(workspace: Workspace) -> None:
    for options, words in (
        (("--repair",), "contains no finished release; run without it"),
        (("--nonce", "00"), "'00' must be 32 hexadecimal digits"),
        (("--nonce", 32 * "g"), "must be 32 hexadecimal digits"),
        (("--repair", "--discard"), "not allowed with argument"),
    ):
        outcome = plain(workspace, *options)
        assert outcome.code == 2 and words in outcome.err
    assert not workspace.output.exists()


def test_a_finished_release_takes_no_other_nonce_and_is_not_discarded(again: Workspace) -> None:
    before = read_files(again.output)
    for options, words in (
        (("--discard",), "contains a finished release, which --discard does not remove"),
        (OTHER_NONCE, "contains a release with another nonce"),
        (("--repair", *OTHER_NONCE), "contains a release with another nonce"),
    ):
        outcome = plain(again, *options)
        assert outcome.code == 2 and words in outcome.err, outcome
        assert read_files(again.output) == before


def test_a_repair_restores_the_nonce(again: Workspace) -> None:
    before = read_files(again.output)
    (again.output / "nonce.json").unlink()
    next((again.output / "nodes").iterdir()).unlink()
    assert plain(again, "--repair").code == 0
    assert read_files(again.output) == before


def test_a_repair_that_writes_other_bytes_says_so(
    again: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dptrees.transforms.folder.layout import parquet_bytes

    next((again.output / "cdf").iterdir()).unlink()

    def other_bytes(table: pa.Table) -> bytes:
        return parquet_bytes(table.replace_schema_metadata({"written by": "another version"}))

    monkeypatch.setattr("dptrees.transforms.steps.draw.parquet_bytes", other_bytes)
    outcome = plain(again, "--repair")
    assert outcome.code == 2 and "is still missing: this installation writes other" in outcome.err
