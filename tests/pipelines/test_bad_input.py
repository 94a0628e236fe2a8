"""Bad input, one by one: one sentence on standard error, exit code 2, nothing half-written."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from dptrees.pipelines.run import job
from dptrees.pipelines.run.engine import SECRETS
from tests.pipelines.conftest import (
    Change,
    Outcome,
    Workspace,
    assert_refused,
    put,
    read_files,
    release_files,
    run_python,
)

Settings = dict[str, Any]


# The configuration.


def key_of_the_environment(settings: Settings) -> None:
    settings.pop("key_file")
    settings["key"] = "env:DPTREES_NO_SUCH_KEY"


def one_glob_more(settings: Settings) -> None:
    settings["input"]["path"] = [settings["input"]["path"], "/nowhere/*.parquet"]


# `test_configuration.py` and the golden failures refuse many more configurations.
WRITTEN: list[tuple[Change, tuple[str, ...]]] = [
    (put("trees.0.domain.cells", 0), ("trees[0].domain.cells: 0",)),
    (put("trees.0.domain.cells", 2**40 + 1), ("trees[0].domain.cells", str(2**40 + 1))),
    (put("privacy.epsilon", float("nan")), ("privacy.epsilon: NaN must be a number above 0",)),
    (put("outputs", "x"), ("outputs: unknown key; did you mean output?",)),
    *(
        (
            put(f"trees.0.{key}", 1),
            (f"trees[0].{key}: unknown key; write it inside domain: {{{key}",),
        )
        for key in ("kind", "lower", "cells")
    ),
    (put("trees", []), ("trees",)),
]
FOUND: list[tuple[Change, tuple[str, ...]]] = [
    (put("input.path", "/nowhere/x.parquet"), ("input.path", "/nowhere/x.parquet")),
    (put("input.path", "/nowhere/*.parquet"), ("input.path: no file matches",)),
    (one_glob_more, ("input.path: no file matches /nowhere/*.parquet",)),
    (put("input.path", "nowhere://rows/*.parquet"), ("nowhere://rows",)),
    (put("output", "nowhere://out"), ("nowhere://out",)),
    (put("trees.0.domain.column", "y"), ("part-0.parquet", "no column 'y'")),
    (put("trees.1.group_by.column", "y"), ("part-0.parquet", "no column 'y'")),
    (
        put("trees.0.domain.column", "place"),
        ("trees[1]", "no type of the column 'place'", "these keys need a column of texts"),
    ),
    (put("trees.1.group_by.column", "x"), ("part-0.parquet", "'x'", "double")),
    (put("key_file", "/nowhere/k"), ("key: /nowhere/k does not exist", "keygen")),
    (
        key_of_the_environment,
        ("key: the environment variable DPTREES_NO_SUCH_KEY is not set",),
    ),
]


def test_bad_settings(workspace: Workspace) -> None:
    for change, words in WRITTEN:
        path = workspace.configure(change)
        for command in ("release", "plan"):
            outcome = workspace.run(command, path)
            assert_refused(workspace, outcome, f"dptrees: {path}: ", *words)
    for change, words in FOUND:
        assert_refused(workspace, workspace.release(change), *words)
    assert not workspace.output.exists()


# The key.


def test_bad_key(workspace: Workspace) -> None:
    for mode in (0o644, 0o640, 0o604, 0o610):
        workspace.key.chmod(mode)
        outcome = workspace.release()
        assert_refused(workspace, outcome, str(workspace.key), "others", "chmod 600")
    workspace.key.chmod(0o600)
    for text in ("", "kumquat", "dptrees-key-1:kumquat", "kumquät", "61.7313\n" * 9):
        workspace.key.write_text(text)
        assert_refused(workspace, workspace.release(), str(workspace.key))
    folder = put("key_file", str(workspace.folder))
    assert_refused(workspace, workspace.release(folder), "key: ")
    assert not workspace.output.exists()


# The data.


def cut(path: Path) -> None:
    """Cut a file short, as a copy that stopped."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def damage(path: Path) -> None:
    """Spoil the pages of a Parquet file and leave its end as it is."""
    data = bytearray(path.read_bytes())
    data[8:2000] = bytes(b ^ 0xFF for b in data[8:2000])
    path.write_bytes(data)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (cut, "damaged or cut short"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "pages": (damage, "damaged or cut short"),
    "text": (lambda path: path.write_text("x,place\n61.7313,kumquat\n"), "not a Parquet file"),
    "no column": (lambda path: pq.write_table(pa.table({"x": [61.7313]}), path), "'place'"),
    "other type": (
        lambda path: pq.write_table(pa.table({"x": ["61.7313"], "place": ["kumquat"]}), path),
        "'x'",
    ),
}


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_parquet(workspace: Workspace, kind: str, index: int) -> None:
    spoil, words = DAMAGES[kind]
    spoil(workspace.file(index))
    assert_refused(workspace, workspace.release(), f"input: {workspace.file(index)}", words)
    assert read_files(workspace.output).keys() <= {"nonce.json", "plan.json"}


def as_csv(workspace: Workspace) -> list[Path]:
    """Write the rows as CSV too; return the files."""
    paths = [workspace.file(index).with_suffix(".csv") for index in range(3)]
    for index, path in enumerate(paths):
        pa_csv.write_csv(pq.read_table(workspace.file(index)), path)
    return paths


def csv_input(settings: Settings) -> None:
    path = settings["input"]["path"].replace("*.parquet", "*.csv")
    settings["input"] = {"format": "csv", "path": path}


SPOILT_CSV = {
    "field too many": b"61.7313,kumquat,kumquat\n",
    "field too few": b"61.7313\n",
    "not UTF-8": b"61.7313,\xffkumquat\n",
    "open quote": b'61.7313,"kumquat\n',
}


@pytest.mark.parametrize(("kind", "index"), [*zip(SPOILT_CSV, (0, 2, 0, 2), strict=True)])
def test_malformed_rows_of_csv(workspace: Workspace, kind: str, index: int) -> None:
    paths = as_csv(workspace)
    good = paths[index].read_bytes().partition(b"\n")
    paths[index].write_bytes(b"".join(good[:2]) + SPOILT_CSV[kind] + good[2])

    def fail(settings: Settings) -> None:
        csv_input(settings)
        settings["input"]["malformed"] = "fail"

    outcome = workspace.release(fail)
    assert_refused(workspace, outcome, f"input: {paths[index]} has a malformed row")
    assert read_files(workspace.output).keys() <= {"nonce.json", "plan.json"}


def test_malformed_rows_of_csv_are_left_out(workspace: Workspace, released: Workspace) -> None:
    """Each by itself, behind the header and among others: the release is that of the other rows,
    and of the Parquet files."""
    for path in as_csv(workspace):
        lines = path.read_bytes().splitlines(keepends=True)
        for place, spoilt in enumerate(SPOILT_CSV.values()):
            lines.insert(1 + 5 * place, spoilt)
        path.write_bytes(b"".join(lines))
    workspace.make(csv_input)
    assert release_files(workspace.output) == release_files(released.output)


# The output.


def other_rows(workspace: Workspace) -> None:
    workspace.write_rows(seed=1)


def one_row_more(workspace: Workspace) -> None:
    table = pq.read_table(workspace.file(2))
    pq.write_table(pa.concat_tables([table, table.slice(0, 1)]), workspace.file(2))


OTHER_RELEASES = {
    "privacy.epsilon was 1, now 2": put("privacy.epsilon", 2),
    "release was small, now large": put("release", "large"),
    "trees[0].domain.cells was 16, now 20": put("trees.0.domain.cells", 20),
}


def test_output_holds_another_release(again: Workspace) -> None:
    before = read_files(again.output)
    for words, change in OTHER_RELEASES.items():
        said = (f"output: {again.output}", f"another configuration: {words}", "another output")
        assert_refused(again, again.release(change), *said)
    assert read_files(again.output) == before


@pytest.mark.parametrize("change", [other_rows, one_row_more])
def test_output_holds_a_release_of_other_rows(
    again: Workspace, change: Callable[[Workspace], None]
) -> None:
    """A second run reveals nothing about them; a repair compares, and says so."""
    before, standing = read_files(again.output), again.release()
    assert standing.code == 0
    change(again)
    assert again.release() == standing
    words = (f"output: {again.output}", "made from other data, with another key", "another output")
    assert_refused(again, again.release(None, "--repair"), *words)
    assert read_files(again.output) == before


def test_output_holds_the_beginning_of_another_release(
    workspace: Workspace, released: Workspace
) -> None:
    """A record without a manifest is a draw too: its noise may have been seen."""
    workspace.output.mkdir()
    shutil.copy(released.output / "record.json", workspace.output)
    shutil.copy(released.output / "nonce.json", workspace.output)
    other_rows(workspace)
    outcome = workspace.release()
    assert_refused(workspace, outcome, "made from other data, with another key", "--discard")
    assert set(read_files(workspace.output)) == {"nonce.json", "record.json"}


def test_output_holds_a_damaged_manifest(workspace: Workspace) -> None:
    workspace.output.mkdir()
    for text in ("", "{", "[]", "{}", '{"spec": {"format": 99}}'):
        (workspace.output / "manifest.json").write_text(text)
        assert_refused(workspace, workspace.release(), "output: ", "manifest")
        assert set(read_files(workspace.output)) == {"manifest.json"}


def test_output_is_a_file_or_below_one(workspace: Workspace) -> None:
    workspace.output.write_text("mine")
    assert_refused(workspace, workspace.release(), f"output: {workspace.output} is not a folder")
    below = put("output", f"{workspace.output}/out")
    assert_refused(workspace, workspace.release(below), f"output: {workspace.output}")
    assert workspace.output.read_text() == "mine"


class FullDisk:
    """A disk that takes so many files and no more."""

    def __init__(self, files: int) -> None:
        self.left, self.sync = files, os.fsync

    def fsync(self, handle: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.sync(handle)


# The nonce, the record, two kinds of parts of two trees, quantiles, manifest.
WRITES = 9


def test_disk_full(
    workspace: Workspace, released: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each file in turn: the first run leaves none, and each later run one more."""
    # On several threads a part may be whole when the disk is found full at another one.
    monkeypatch.setattr(job, "processor_count", lambda: 1)
    whole = release_files(released.output)

    def run_until(files: int) -> Outcome:
        # The plan, the nonce and the record are written once; parts, and the list of the input's
        # files, which comes after the plan, by every run.
        with monkeypatch.context() as full:
            room = max(min(files, 1), files - 3) + (files > 1)
            full.setattr(os, "fsync", FullDisk(room).fsync)
            return workspace.release()

    for files in range(WRITES):
        outcome = run_until(files)
        place, reason = f"output: {workspace.output}", "No space left on device"
        assert_refused(workspace, outcome, place, reason, code=75)
        left = read_files(workspace.output)
        assert len(left) == files and "manifest.json" not in left
        assert left.items() <= whole.items()
        for question in ("query", "report"):
            requested = ("cdf", "5", "--tree", "all") if question == "query" else ()
            refused = workspace.run(question, workspace.output, *requested)
            assert_refused(workspace, refused, "is not a release")

    # The release is there now; only its page is missing, and running again writes it.
    outcome = run_until(WRITES)
    complete = f"No space left on device; the release in {workspace.output} is complete"
    assert_refused(workspace, outcome, "report.html cannot be written", complete, code=75)
    assert read_files(workspace.output) == whole
    assert workspace.release().code == 0
    assert read_files(workspace.output).keys() == {*whole, "report.html"}
    assert release_files(workspace.output) == whole


def small_files() -> None:
    """Allow this process files of 8 KiB; the next byte is refused by the kernel."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))


def test_write_cut_off_by_the_system(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    # Python does not notice that its own files of compiled modules are cut off too.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    def fine(settings: Settings) -> None:
        """Make every part larger than the plan, which is written first."""
        for tree in settings["trees"]:
            tree["domain"]["cells"], tree["fanouts"] = 4096, [64, 64]

    process = workspace.start("release", workspace.configure(fine), preexec_fn=small_files)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 2 and out == ""
    assert err.count("\n") == 1 and "cannot be written: File too large" in err, err
    assert set(read_files(workspace.output)) == {"nonce.json", "plan.json", "record.json"}


# What this process runs, it runs without the rights of the superuser.
WITHOUT_RIGHTS = """
import sys
from dptrees.pipelines.cli.command import main
for arguments in sys.argv[1].split(";"):
    print(main(arguments.split(" ")), flush=True)
"""


def test_no_permission(workspace: Workspace) -> None:
    prefix: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("the superuser may do anything, and there is no setpriv to change that")
        prefix = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    closed, configurations = workspace.folder / "closed", []
    for name in ("in", "out", "half/nodes"):
        (closed / name).mkdir(parents=True)
    shutil.copy(workspace.file(0), closed / "in" / "rows.parquet")
    places = (("input.path", "in/rows.parquet"), ("output", "out/release"), ("output", "half"))
    for index, (key, name) in enumerate((*places, ("key_file", "key"))):
        path = workspace.folder / f"{index}.yaml"
        shutil.move(workspace.configure(put(key, str(closed / name))), path)
        configurations.append(f"release {path}")
    shutil.copy(workspace.key, closed / "key")
    (closed / "in" / "rows.parquet").chmod(0)
    (closed / "key").chmod(0)
    (closed / "out").chmod(0o555)
    (closed / "half" / "nodes").chmod(0o555)
    keygen, plan = f"keygen {closed}/out/new.key", f"plan {workspace.folder}/unreadable.yaml"
    (workspace.folder / "unreadable.yaml").touch(mode=0)

    commands = ";".join([*configurations, keygen, plan])
    done = run_python(WITHOUT_RIGHTS, commands, prefix=prefix)
    sentences = done.stderr.splitlines()
    assert done.stdout.split() == ["2"] * 6, done
    assert len(sentences) == 6, done.stderr
    for sentence, place in zip(
        sentences,
        ("in/rows.parquet", "out/release", "half/nodes", "closed/key", "new.key", "unreadable"),
        strict=True,
    ):
        assert sentence.startswith("dptrees: ") and place in sentence
        assert "permission denied" in sentence.lower()
    assert set(read_files(closed)) - {"half/record.json", "half/nonce.json", "half/plan.json"} == {
        "in/rows.parquet",
        "key",
    }


# The options of Beam.


BAD_OPTIONS = {
    **{
        option: f"{option}: is not an option"
        for option in (
            *("--foo", "--foo=3", "--epsilon=3", "-runner=FlinkRunner", "--runer=FlinkRunner"),
            "stray",
        )
    },
    "--direct_num_workers=two": "--direct_num_workers: invalid int value: 'two'",
    "--runner=NoSuchRunner": "--runner=NoSuchRunner: Beam knows no such runner",
    "--runner=no.such.Runner": "--runner=no.such.Runner: Beam knows no such runner",
    "--runner=DaskRunner": "--runner=DaskRunner: refused, since",
    "--runner=dask": "--runner=dask: refused, since",
    "--runner=apache_beam.runners.dask.dask_runner.DaskRunner": "refused, since",
    "--runner=InteractiveRunner": "exact counts",
    "--runner=interactive": "exact counts",
    "--experiments=enable_data_sampling": "refused, since it shows rows",
    "--experiment=enable_data_sampling": "refused, since it shows rows",
    "--streaming": "refused, since a release is a batch job, of rows that end",
    "--experiments=enable_always_on_exception_sampling": "refused, since it shows rows",
    **{
        f"--{name}=planted-secret": f"--{name}: holds a secret, which would be in logs"
        for name in ("s3_secret_access_key", "s3_session_token", "azure_connection_string")
    },
}


def test_bad_beam_options(workspace: Workspace) -> None:
    for option, words in BAD_OPTIONS.items():
        outcome = workspace.release(None, option)
        assert_refused(workspace, outcome, words)
        assert "planted-secret" not in outcome.err
    assert not workspace.output.exists()


def test_all_secrets_among_the_options_of_beam() -> None:
    """A new one of Beam's is found by its name."""
    words = re.compile("secret|token|password|credential|connection_string|api_?key")
    named = {name for name in PipelineOptions([]).get_all_options() if words.search(name)}
    assert named == set(SECRETS)


def test_a_missing_key_file_says_where_relative_paths_start(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.folder)
    outcome = workspace.release(put("key_file", "absent.key"))
    assert outcome.code == 2 and outcome.err == (
        f"dptrees: key: absent.key does not exist in {workspace.folder}, where relative paths "
        "start; make it with: dptrees keygen absent.key\n"
    )
