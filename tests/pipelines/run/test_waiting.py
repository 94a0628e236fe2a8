"""Waiting elements beyond the limit: the same bytes from a file without a name, and its faults."""

from __future__ import annotations

import errno
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.pipelines.run import loop
from dptrees.pipelines.run.loop import WaitingPairs
from dptrees.transforms.errors import ReleaseError
from dptrees.transforms.nameless_file import NamelessFile
from tests.pipelines.conftest import FILES, ROWS, Workspace
from tests.pipelines.test_faults import files_below

VALUE = b"a row of Smith, John" * 100
PAIRS = [(f"key {number % 7}", VALUE + bytes([number])) for number in range(50)]


def limit_memory(patch: pytest.MonkeyPatch) -> None:
    """Let all bytes but the first few go to a file."""
    patch.setattr(loop, "MEMORY_BYTES", 5000)
    patch.setattr(loop, "LEAST_BYTES", 1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, of a process that may hold few bytes in memory."""
    limit_memory(monkeypatch)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def open_files(folder: Path) -> list[str]:
    """The files of a folder that this process has open, with a name or without."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.append(os.readlink(each))
        except OSError:  # the list itself
            continue
    return [name for name in found if name.startswith(f"{folder}/")]


def filled(pairs: list[Any] = PAIRS) -> WaitingPairs:
    """Pairs that wait."""
    made = WaitingPairs()
    for pair in pairs:
        made.append(pair)
    return made


def grouped(pairs: list[Any]) -> dict[Any, list[Any]]:
    """The values of every key."""
    result: dict[Any, list[Any]] = {}
    for key, value in pairs:
        result.setdefault(key, []).append(value)
    return result


def people(settings: dict[str, Any]) -> None:
    """Count a few rows of each person."""
    settings["privacy"] |= {"unit": "person", "max_rows": 4}


@pytest.fixture
def persons(workspace: Workspace) -> Workspace:
    """A workspace whose rows are of 40 people."""
    workspace.write_rows(person=pa.array(np.arange(ROWS) % 40))
    return workspace


def test_a_release_has_the_same_bytes(
    persons: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written, write = list[int](), NamelessFile.write

    def counted(file: Any, data: bytes) -> Any:
        written.append(len(data))
        return write(file, data)

    monkeypatch.setattr(NamelessFile, "write", counted)
    assert persons.release(people).code == 0 and not written
    in_memory = files_below(persons.output)
    persons.output.rename(tmp_path / "before")
    limit_memory(monkeypatch)
    persons.make(people)
    assert len(written) > FILES and files_below(persons.output) == in_memory


def test_values_come_back_as_often_as_they_are_read(folder: Path) -> None:
    groups = filled().groups()
    for _ in range(2):
        assert {key: list(values) for key, values in groups} == grouped(PAIRS)
    assert open_files(folder)


def test_other_values_stay_in_memory(folder: Path) -> None:
    pairs = [("a", (VALUE, 1)), ("a", np.arange(10**4)), ("b", None)] * 3
    assert filled(pairs).groups() == [
        ("a", [pairs[0][1], pairs[1][1]] * 3),
        ("b", [None] * 3),
    ] and not open_files(folder)


def test_small_values_stay_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "LEAST_BYTES", len(VALUE) + 2)
    assert dict(filled().groups()) == grouped(PAIRS) and not open_files(folder)


def test_no_folder_names_the_file_and_it_ends_with_its_last_value(folder: Path) -> None:
    pairs = filled()
    (name,) = open_files(folder)
    assert name.endswith(" (deleted)") and not list(folder.iterdir())
    groups = pairs.groups()
    while groups:
        assert open_files(folder) == [name]
        list(groups.pop()[1])
    gc.collect()
    assert not open_files(folder)


def test_the_file_shows_nothing(folder: Path) -> None:
    """No value, and not whether two are alike: under a key of its own, at a place of its own."""
    texts = []
    for _ in range(2):
        pairs = filled([("a", VALUE)] * 6)
        file = pairs._file
        assert file is not None
        texts.append(os.pread(file._file.fileno(), file._end, 0))
    parts = [text[start : start + 16] for text in texts for start in range(0, len(text), 16)]
    assert len(texts[0]) == 4 * len(VALUE) and len(set(parts)) == len(parts)
    assert b"Smith" not in texts[0] + texts[1]


def test_several_threads_write_at_once(folder: Path) -> None:
    pairs = WaitingPairs()
    threads = [
        threading.Thread(
            target=lambda thread=thread: [pairs.append((thread, value)) for _, value in PAIRS]
        )
        for thread in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = [value for _, value in PAIRS]
    assert len(open_files(folder)) == 1
    groups = {key: list(each) for key, each in pairs.groups()}
    assert groups == dict.fromkeys(range(4), values)


def test_a_disk_may_take_and_give_a_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, read = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda file, data, place: write(file, data[:999], place))
    monkeypatch.setattr(os, "pread", lambda file, size, place: read(file, min(size, 777), place))
    assert {key: list(each) for key, each in filled().groups()} == grouped(PAIRS)


FAULTS = {
    "pwrite": (
        "written",
        errno.ENOSPC,
        "free space there, or set TMPDIR to a folder with space",
    ),
    "pread": ("read", errno.EIO, "set TMPDIR to another folder"),
}


@pytest.mark.parametrize("call", FAULTS)
def test_a_disk_that_fails_is_reported(
    persons: Workspace, folder: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    done, number, solution = FAULTS[call]

    def fail(*arguments: Any) -> Any:
        raise OSError(number, "kumquat")

    with monkeypatch.context() as failing:
        failing.setattr(os, call, fail)
        outcome = persons.release(people)
    assert outcome.code == 75 and outcome.err.splitlines()[-1] == (
        f"dptrees: the temporary file of waiting rows cannot be {done} in "
        f"{folder}: {os.strerror(number)}; {solution}"
    )
    assert not (persons.output / "manifest.json").exists() and not open_files(folder)
    assert persons.release(people).code == 0


def test_a_folder_that_cannot_be_used_is_reported(
    persons: Workspace, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows go to no other folder than the named one."""
    monkeypatch.setenv("TMPDIR", str(folder / "absent"))
    outcome = persons.release(people)
    assert outcome.code == 2 and outcome.err.splitlines()[-1].startswith(
        "dptrees: the temporary file of waiting rows cannot be made in "
        f"{folder}/absent: No such file or directory; "
    )


def damaged(file: NamelessFile) -> Iterator[None]:
    """Change a byte of a file; then cut it short."""
    os.pwrite(file._file.fileno(), b"?!", file._end - 1)
    yield
    os.ftruncate(file._file.fileno(), file._end - 1)
    yield


def test_a_damaged_file_is_reported(folder: Path) -> None:
    pairs = filled()
    file = pairs._file
    assert file is not None
    last = dict(pairs.groups())[PAIRS[-1][0]]
    for _ in damaged(file):
        with pytest.raises(ReleaseError, match=f"{folder} was damaged") as refused:
            list(last)
        assert refused.value.again
