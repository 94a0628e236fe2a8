"""The files of an input: listed once, complete, and read as they were listed or not at all."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystem import FileMetadata

from dptrees.transforms.beam.adapter import OnBeam
from dptrees.transforms.beam.release import ReleaseTrees
from dptrees.transforms.contract import Arrival
from dptrees.transforms.errors import ConservationError, InputError, error_in
from dptrees.transforms.folder import beam_store, listing
from dptrees.transforms.folder.listing import (
    ListedOnce,
    SealedList,
    check_unchanged,
    list_files,
    written_list,
)
from dptrees.transforms.folder.stores import FileInfo, LocalDisk
from dptrees.transforms.readers import read
from dptrees.transforms.readers.read import ReadFiles
from tests.transforms.conftest import LOCAL_RUNNER


@pytest.fixture
def folder(tmp_path: Path, rows: pa.Table) -> Path:
    """Three files of 1,000 rows."""
    made = tmp_path / "rows"
    made.mkdir()
    for number in range(3):
        pq.write_table(rows.slice(1000 * number, 1000), made / f"{number}.parquet")
    return made


@pytest.fixture
def release(make_plan, reference, folder, tmp_path) -> Callable[..., Path]:
    """Lists the folder, changes it, and runs the job of the list."""

    def made(change: Callable[[Path], Any]) -> Path:
        plan, out = make_plan(), tmp_path / "out"
        listed = list_files((str(folder),))
        change(folder)
        with (
            written_list(listed, str(out), reference, keep=False) as sealed,
            beam.Pipeline(LOCAL_RUNNER) as pipeline,
        ):
            batches = pipeline | OnBeam(ReadFiles(listed=sealed, format="parquet", plan=plan))
            batches | ReleaseTrees(plan, key=reference, output=str(out), nonce=bytes(16))
        return out

    return made


def rewrite(folder: Path) -> None:
    """Write another file of the same size."""
    path = folder / "1.parquet"
    path.write_bytes(path.read_bytes())
    os.utime(path, (0, 0))


def grown(folder: Path) -> None:
    pq.write_table(pq.read_table(folder / "0.parquet"), folder / "1.parquet", row_group_size=10)


CHANGES = {
    "removed": (lambda folder: (folder / "1.parquet").unlink(), "cannot be found any more"),
    "replaced": (rewrite, "was written again"),
    "grown": (grown, "size changed"),
    "damaged": (lambda folder: (folder / "1.parquet").write_text("x"), "size changed"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_after_it_was_listed_ends_the_job(change, release, tmp_path) -> None:
    act, words = CHANGES[change]
    with pytest.raises(Exception) as caught:
        release(act)
    error = error_in(str(caught.value))
    assert error is not None and error.again
    assert error.sentence.startswith(f"input: {tmp_path}/rows/1.parquet changed while the job ran")
    assert words in error.sentence
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["nonce.json"]  # and no list


def test_a_file_that_appears_is_not_read(release, folder, tmp_path, release_files) -> None:
    made = release_files(release(lambda _: None))
    os.rename(tmp_path / "out", tmp_path / "before")
    again = release(lambda folder: pq.write_table(pa.table({"value": [1.0]}), folder / "9.parquet"))
    assert release_files(again) == made


def test_a_file_that_changes_while_it_is_read(folder, make_plan, reference) -> None:
    """Whatever was read of it before is in a job that fails."""
    file = list_files((f"{folder}/0.parquet",))[0]
    (split,) = (
        each
        for each in read._SplitFile("parquet", make_plan()).process(tuple(file))
        if isinstance(each, read.FileSplit)
    )
    batches = read._ReadSplit("parquet", make_plan()).process(split)
    assert next(batches).num_rows == 1000
    os.utime(file.path, (0, 0))
    with pytest.raises(InputError, match=r"0\.parquet changed while the job ran"):
        list(batches)


def test_a_file_without_rows_is_checked_too(tmp_path, make_plan) -> None:
    path = tmp_path / "none.parquet"
    pq.ParquetWriter(path, pa.schema({"value": pa.float64()})).close()  # no row group
    (file,) = list_files((str(path),))
    given = [*read._SplitFile("parquet", make_plan()).process(tuple(file))]
    assert dict(each.element for each in given)["bytes of files"] == -file.size
    os.utime(path, (0, 0))
    with pytest.raises(InputError, match="was written again"):
        list(read._SplitFile("parquet", make_plan()).process(tuple(file)))


@pytest.mark.parametrize(
    "step, kept",
    [
        (read._ReadShard, lambda shard, found: found if shard else []),  # and with it its files
        (read._Shards, lambda _, found: list(found)[1:]),
    ],
)
def test_a_lost_shard_of_the_list(step, kept, release, monkeypatch) -> None:
    monkeypatch.setattr(listing, "_SHARD_FILES", 2)
    process = step.process
    monkeypatch.setattr(
        step, "process", lambda self, element: iter(kept(element, process(self, element)))
    )
    with pytest.raises(Exception, match="the engine lost or repeated data: ") as caught:
        release(lambda _: None)
    assert step is read._Shards or "bytes of files do not" in str(caught.value)
    assert ConservationError("").again


# ---- the list on its way -----------------------------------------------------------------------


def many(number: int) -> list[FileInfo]:
    return [FileInfo(f"/rows/secret-name-{each:06d}.parquet", each, 0.5) for each in range(number)]


def test_shards_give_the_files_back(tmp_path, reference, monkeypatch) -> None:
    monkeypatch.setattr(listing, "_SHARD_FILES", 3)
    files = many(8)
    with written_list(files, str(tmp_path), reference, keep=False) as listed:
        assert listed.shards == 3 and listed.number == 8 and listed.size == 28
        assert [file for shard in range(3) for file in listed.shard(shard)] == files
        for path in tmp_path.glob(".input-*"):
            data = path.read_bytes()
            assert b"secret-name" not in data and b"rows" not in data
        with pytest.raises(InputError, match="is not the file that the launcher wrote"):
            (tmp_path / Path(listed.path(1)).name).write_bytes(b"x" * 40)
            listed.shard(1)
        # One shard in place of another is refused too.
        os.replace(listed.path(0), listed.path(2))
        with pytest.raises(InputError, match="is not the file that the launcher wrote"):
            listed.shard(2)
        with pytest.raises(InputError, match="is no longer there") as caught:
            listed.shard(0)
        assert caught.value.again and listed.is_gone()
    assert list(tmp_path.glob(".input-*")) == []


def test_the_graph_does_not_grow_with_the_files(tmp_path, reference, make_plan) -> None:
    def size(number: int) -> int:
        listed = SealedList(
            folder=str(tmp_path),
            token="0" * 32,
            shards=number,
            number=number,
            size=9,
            key=reference,
        )
        pipeline = beam.Pipeline(LOCAL_RUNNER)
        pipeline | OnBeam(ReadFiles(listed=listed, format="parquet", plan=make_plan()))
        return len(pipeline.to_runner_api().SerializeToString())

    # Beam pickles and compresses a random name of its own: sizes vary by some 50 bytes.
    assert abs(size(1) - size(100_000)) < 1000


def test_all_stages_of_a_run_read_one_list(folder) -> None:
    listed = ListedOnce()
    first = [*listed.files((str(folder),))]
    (folder / "1.parquet").unlink()
    assert listed.files((str(folder),)) == first


# ---- the clocks of object stores ----------------------------------------------------------------


@pytest.fixture
def changed_at(monkeypatch) -> Callable[[float], None]:
    """Lets a store say when its file changed."""

    def stated(changed: float) -> None:
        class Store:
            def metadata(self, path: str) -> FileMetadata:
                return FileMetadata(path, 7, changed)

        monkeypatch.setattr(beam_store.FileSystems, "get_filesystem", lambda path: Store())

    return stated


def test_times_of_an_object_store(changed_at) -> None:
    """Whole seconds; and Beam may be off by an hour, by the launcher's time zone."""
    file = FileInfo("s3://bucket/a", 7, 1_700_000_000.0)
    for same in (0.0, 0.75, 3600.0, -3600.0):
        changed_at(file.changed + same)
        check_unchanged(file)
    for other in (1.0, 61.0):
        changed_at(file.changed + other)
        with pytest.raises(InputError, match="was written again"):
            check_unchanged(file)


def test_a_store_that_does_not_answer_is_no_change(monkeypatch) -> None:
    class Away:
        def metadata(self, path: str) -> FileMetadata:
            raise ConnectionResetError(104, "reset")

    monkeypatch.setattr(beam_store.FileSystems, "get_filesystem", lambda path: Away())
    with pytest.raises(InputError, match="cannot be read now") as caught:
        check_unchanged(FileInfo("s3://bucket/a", 7, 1.0))
    assert caught.value.again


# ---- whether all files are there ----------------------------------------------------------------


def again(patterns: tuple[str, ...], **arrival: Any) -> str:
    with pytest.raises(InputError) as caught:
        list_files(patterns, Arrival(**arrival))
    assert caught.value.again
    return caught.value.sentence


def test_a_marker_of_each_folder(folder, tmp_path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.parquet").write_text("x")
    (folder / "_SUCCESS").touch()
    assert len(list_files((str(folder),), Arrival(require="_SUCCESS"))) == 3
    assert len(list_files((f"{folder}/*.parquet",), Arrival(require="_SUCCESS"))) == 3
    sentence = again((f"{folder}/", f"{other}/"), require="_SUCCESS")
    assert sentence.startswith(f"input.require: {other}/ does not hold _SUCCESS yet")
    for glob in (f"{other}/*", f"{tmp_path}/*/*.parquet"):
        assert f"{other} does not hold _SUCCESS yet" in again((glob,), require="_SUCCESS")
    # A marker above folders of partitions is one of all of them.
    (tmp_path / "_SUCCESS").touch()
    assert len(list_files((f"{tmp_path}/*/*.parquet",), Arrival(require="_SUCCESS"))) == 4
    assert "does not hold" in again((f"{other}/*",), require="_SUCCESS")


def test_the_least_number_of_files(folder, tmp_path) -> None:
    assert len(list_files((str(folder),), Arrival(min_files=3))) == 3
    sentence = again((str(folder),), min_files=4)
    assert sentence.startswith("input.min_files: 3 files are there yet, of at least 4")
    # Files that are awaited may come.
    patterns = (f"{tmp_path}/later/*.parquet",)
    for arrival in ({"require": "_SUCCESS"}, {"min_files": 1}, {"max_age": 60}):
        assert again(patterns, **arrival).startswith("input.path: no file matches")
    with pytest.raises(InputError, match="no file matches") as caught:
        list_files(patterns)
    assert not caught.value.again


def aged(folder: Path, hours: float) -> None:
    """Let all files of a folder have changed some hours ago."""
    for path in folder.iterdir():
        os.utime(path, (0, time.time() - 3600 * hours))


def test_the_age_of_the_newest_file(folder, monkeypatch) -> None:
    aged(folder, 30)
    assert len(list_files((str(folder),), Arrival(max_age=31 * 3600))) == 3
    sentence = again((str(folder),), max_age=26 * 3600)
    assert sentence == (
        f"input.max_age: the newest file, {folder}/0.parquet, changed 30h ago, and at most "
        "26h are allowed; run again once a newer file is there"
    )
    os.utime(folder / "1.parquet")
    assert len(list_files((str(folder),), Arrival(max_age=26 * 3600))) == 3
    aged(folder, -24)  # a file of tomorrow is not old
    assert len(list_files((str(folder),), Arrival(max_age=1))) == 3
    plain = LocalDisk.info
    monkeypatch.setattr(LocalDisk, "info", lambda *of: plain(*of)._replace(changed=0.0))
    with pytest.raises(InputError, match="does not state when a file changed") as caught:
        list_files((str(folder),), Arrival(max_age=60))
    assert not caught.value.again


def test_a_folder_that_is_being_written_is_refused(folder) -> None:
    for place in ("_temporary", "_temporary/0", "day=1/_temporary/0"):
        (folder / place).mkdir(parents=True)
        if place != "_temporary":
            (folder / place / "part-0").write_text("x")
        assert again((str(folder),)).startswith(f"input.path: {folder} holds _temporary/")
        assert len(list_files((f"{folder}/*.parquet",))) == 3  # a glob takes what it matches
        shutil.rmtree(folder / place.split("/")[0])


def test_what_is_no_arrival() -> None:
    for arrival, words in (
        ({"require": "a/b"}, "require: 'a/b' must be the name"),
        ({"min_files": -1}, "at least 0"),
        ({"max_age": -1}, "at least 0"),
    ):
        with pytest.raises(ValueError, match=words):
            Arrival(**arrival)
