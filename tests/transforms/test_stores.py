"""Stores without Beam find, read and write what Beam's filesystems do."""

import errno
import os
from pathlib import Path

import pytest
from apache_beam.io.filesystems import FileSystems

from dptrees.pipelines.run.job import job_options
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder import files, stores
from dptrees.transforms.folder.beam_store import BeamStore
from dptrees.transforms.folder.files import join
from dptrees.transforms.folder.listing import list_files
from dptrees.transforms.folder.stores import LocalDisk, scheme_of
from tests.pipelines.conftest import run_python

NAMES = (
    *("a.csv", ".b.csv", "b[1].csv", "x^y", "a b", "ä.csv", "a.b.csv", "in/a.csv", "in/.h/a.csv"),
    *("in/deep/b.csv", "in/deep/[x]", ".out/c.csv", "a\nb", "in!/z.csv", "-a", "]a"),
)
GLOBS = (
    *("*", "**", "*.csv", "**.csv", "in/*", "in/**", "*/a.csv", "**/a.csv", "?.csv", "??.csv"),
    *("[a-b].csv", "[!a].csv", "[^a].csv", "b[[]1].csv", "x[^]y"),
    *(
        "a[ ]b",
        "in[!]/z.csv",
        "in[!x]/z.csv",
        "[a",
        "a[",
        "a.csv",
        "in",
        "none",
        "none/*",
        "i*/d*/*",
    ),
    *("in/deep/[[]x]", "i*/d*/*", "a?b", "[-a]*", "*[!v]"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / "rows" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "rows" / name).write_text(name)
    return tmp_path / "rows"


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_globs_mean_what_they_mean_for_beam(folder: Path) -> None:
    found = {
        glob: [sorted(store.match(f"{folder}/{glob}")) for store in (LocalDisk(), BeamStore())]
        for glob in GLOBS
    }
    assert {glob: both for glob, both in found.items() if both[0] != both[1]} == {}
    assert len(found["**"][0]) == len(NAMES)


def test_globs_from_the_folder_of_the_process(folder: Path, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    for glob in ("./*.csv", "in/*.csv", "./**"):
        assert sorted(LocalDisk().match(glob)) == sorted(BeamStore().match(glob))


@pytest.mark.parametrize(
    "path", ["a/b", "/a/b", "./a", "gs://a/b", "s3://a", "file:///a/b", "c:/a", "a://b", "1x://b"]
)
def test_schemes_and_paths_are_those_of_beam(path: str) -> None:
    known = FileSystems.get_scheme(path)
    assert scheme_of(path) == ("" if known in (None, "file") else known)


@pytest.mark.parametrize("folder", ["out", "out/", "/a/out", ""])
@pytest.mark.parametrize("names", [("a",), ("nodes", "b.parquet")])
def test_paths_below_a_folder(folder: str, names: tuple[str, ...]) -> None:
    assert join(folder, *names) == FileSystems.join(folder, *names)


def test_paths_below_a_bucket() -> None:
    found = pytest.importorskip("apache_beam.io.gcp.gcsfilesystem", exc_type=ImportError)
    plain = object.__new__(found.GCSFileSystem)
    for folder in ("gs://b", "gs://b/", "gs://b/out", "gs://b/out/"):
        for names in (("a",), ("nodes", "b.parquet")):
            assert join(folder, *names) == plain.join(folder, *names)


def test_a_store_without_beam_says_what_beam_says_of_a_file(folder: Path) -> None:
    path = str(folder / "a.csv")
    assert LocalDisk().info(path) == BeamStore().info(path)
    assert LocalDisk().info(f"file://{path}").size == len("a.csv")
    assert LocalDisk().open(f"file://{path}").read() == b"a.csv"
    with LocalDisk().create(path, "") as file:
        file.write(b"new")
    assert BeamStore().open(path).read() == b"new"
    LocalDisk().delete(f"file://{path}")
    assert not LocalDisk().exists(path) and not BeamStore().exists(path)
    assert stores.store_of(path) is stores.OWN_STORES[""]


def test_links_to_nowhere_and_files_that_are_gone_are_no_files(folder: Path, monkeypatch) -> None:
    (folder / ".#a.csv").symlink_to("someone@host.1234")
    assert [file.path for file in LocalDisk().match(f"{folder}/.*.csv")] == [f"{folder}/.b.csv"]
    assert LocalDisk().match(f"{folder}/.#a.csv") == []
    (folder / "loop.csv").symlink_to("loop.csv")
    assert sorted(LocalDisk().match(f"{folder}/*.csv")) == sorted(
        BeamStore().match(f"{folder}/*.csv")
    )
    whole = LocalDisk().match(f"{folder}/*.csv")
    stat = os.stat

    def gone(path: str, **named: object) -> os.stat_result:
        if str(path).endswith("/a.csv"):
            raise FileNotFoundError(errno.ENOENT, "gone", path)
        return stat(path, **named)

    monkeypatch.setattr(stores.os, "stat", gone)
    assert len(LocalDisk().match(f"{folder}/*.csv")) == len(whole) - 1

    def refused(path: str, **named: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, "denied", path)

    monkeypatch.setattr(stores.os, "stat", refused)
    with pytest.raises(PermissionError):
        LocalDisk().match(f"{folder}/*.csv")


def test_a_glob_that_means_nothing_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="cannot be listed: bad character range 2-0"):
        list_files((f"{folder}/part-[2-0].csv",))


def test_blanks_before_a_scheme_make_no_path_of_this_machine() -> None:
    assert scheme_of(" gs://a") == "gs"


def test_a_path_with_the_scheme_of_files_is_written_where_it_is_read(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = f"file://{tmp_path}/out/a.json"
    files.write_whole(place, b"1")
    assert files.read_bytes(place) == b"1" and not files.write_once(place, b"2")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_options_of_an_earlier_job_do_not_stay() -> None:
    before = FileSystems._pipeline_options
    try:
        job_options(["--s3_endpoint_url=http://localhost:1"])
        assert "localhost:1" in str(FileSystems._pipeline_options.get_all_options())
        job_options([])
        assert "localhost:1" not in str(FileSystems._pipeline_options.get_all_options())
    finally:
        FileSystems._pipeline_options = before


RACE = """
import threading, dptrees
rows = {"x": list(range(100))}
config = {
    "release": "t", "privacy": {"epsilon": 1, "neighbors": "add_remove", "unit": "row"},
    "trees": [{"name": "x", "domain": {"column": "x", "type": "integer", "lower": 0, "upper": 9}}],
}
found = []
def release(rows, *options):
    try:
        dptrees.release(rows, config, options=options)
        found.append("made")
    except dptrees.Error:
        found.append("refused")
    except BaseException as error:
        found.append(repr(error))
calls = [(rows, "--runner=DirectRunner"), ("s3://none/a.parquet",), (rows,), ("gs://none/a.parquet",)]
threads = [threading.Thread(target=release, args=call) for call in calls]
for each in threads: each.start()
for each in threads: each.join()
print(*sorted(found))
"""


def test_threads_that_meet_beam_at_different_places_import_it_once() -> None:
    done = run_python(RACE, env=os.environ | {"AWS_EC2_METADATA_DISABLED": "true"})
    assert done.stdout.split() == ["made", "made", "refused", "refused"], done.stdout + done.stderr
