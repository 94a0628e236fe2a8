"""Files appear whole or not at all, and a failure to write leaves nothing behind."""

import builtins
import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dptrees.transforms.folder import files
from dptrees.transforms.folder.files import OutputError
from tests.transforms.at_once import run_at_once

DISK_FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fails(*arguments: Any, **named: Any) -> None:
    raise DISK_FULL


class FullFile:
    """A file that takes half of what is written."""

    def __init__(self, path: str, mode: str, opener: Any = None) -> None:
        self._file = builtins.open(path, mode)  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> "FullFile":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        self._file.write(data[: len(data) // 2])
        raise DISK_FULL


def write_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "open", FullFile, raising=False)


PLANTED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "open": lambda monkeypatch: monkeypatch.setattr(files, "open", fails, raising=False),
    "write": write_fails,
    "fsync": lambda monkeypatch: monkeypatch.setattr(os, "fsync", fails),
    "replace": lambda monkeypatch: monkeypatch.setattr(os, "replace", fails),
    "link": lambda monkeypatch: monkeypatch.setattr(os, "link", fails),
    "makedirs": lambda monkeypatch: monkeypatch.setattr(os, "makedirs", fails),
}


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("write", [files.write_whole, files.write_once])
def test_folders_are_made_and_no_temporary_file_stays(write, tmp_path) -> None:
    path = tmp_path / "a" / "b" / "c.bin"
    write(str(path), b"data")
    assert path.read_bytes() == b"data" == files.read_bytes(str(path))
    assert below(tmp_path) == ["a/b/c.bin"]
    with pytest.raises(OutputError, match="cannot be written: "):
        write(str(path / "part"), b"data")  # a file where a folder should be


def test_a_file_is_replaced_as_a_whole(tmp_path) -> None:
    path = tmp_path / "a"
    files.write_whole(str(path), b"longer than before")
    with path.open("rb") as opened:
        files.write_whole(str(path), b"short")
        assert opened.read() == b"longer than before"
    assert path.read_bytes() == b"short"


@pytest.mark.parametrize("local", [True, False])
def test_once(local: bool, tmp_path, monkeypatch) -> None:
    """Also straight at the final name, as an object store is written."""
    monkeypatch.setattr(files, "is_local", lambda path: local)
    path = str(tmp_path / "a")
    assert files.write_once(path, b"first")
    assert not files.write_once(path, b"second")
    files.write_whole(str(tmp_path / "b"), b"data")
    assert files.read_bytes(path) == b"first"
    assert below(tmp_path) == ["a", "b"]


def test_of_several_writers_at_once_one_wins(tmp_path) -> None:
    for attempt in range(20):
        path, texts = str(tmp_path / f"manifest-{attempt}"), [b"%d" % n * 1000 for n in range(4)]
        won = run_at_once(*(partial(files.write_once, path, text) for text in texts))
        assert sorted(won) == [False, False, False, True]
        assert files.read_bytes(path) == texts[won.index(True)]
    assert len(below(tmp_path)) == 20


@pytest.mark.parametrize(
    "write, place",
    [(files.write_whole, place) for place in PLANTED if place != "link"]
    + [(files.write_once, place) for place in PLANTED if place != "replace"],
)
def test_a_full_disk(write, place, tmp_path, monkeypatch) -> None:
    path = tmp_path / "part"
    with monkeypatch.context() as patch:
        PLANTED[place](patch)
        with pytest.raises(OutputError) as caught:
            write(str(path), b"data" * 1000)
    reason = "No space left on device"
    assert caught.value.sentence == f"output: {path} cannot be written: {reason}"
    assert below(tmp_path) == []
    write(str(path), b"data")
    assert below(tmp_path) == ["part"]


def test_a_failed_replacement_leaves_the_file_as_it_was(tmp_path, monkeypatch) -> None:
    path = tmp_path / "part"
    files.write_whole(str(path), b"before")
    for place in ("write", "fsync", "replace"):
        with monkeypatch.context() as patch:
            PLANTED[place](patch)
            with pytest.raises(OutputError):
                files.write_whole(str(path), b"after")
        assert path.read_bytes() == b"before"
    assert below(tmp_path) == ["part"]


def test_names_below_and_deletion(tmp_path) -> None:
    names = ["a.parquet", f".x{files.TEMPORARY_SUFFIX}", "manifest.json"]
    for name in names:
        (tmp_path / name).write_text("x")
    found = list(files.names_below(str(tmp_path)))
    assert sorted(map(os.path.basename, found)) == sorted(names)
    files.delete([path for path in found if path.endswith(files.TEMPORARY_SUFFIX)])
    assert below(tmp_path) == ["a.parquet", "manifest.json"]
    files.delete([])
    assert list(files.names_below(str(tmp_path / "nothing"))) == []


def test_what_is_local() -> None:
    assert files.is_local("out/a") and files.is_local("/out") and files.is_local("file:///out")
    assert not files.is_local("gs://bucket/out")
    assert files.join("out", "nodes", "a") == os.path.join("out", "nodes", "a")
    assert not files.exists("nothing at all")


def test_a_swept_temporary_file_is_written_again(tmp_path, monkeypatch) -> None:
    """Another run of the same release, just over, may sweep the temporary files of this one."""
    replace, swept = os.replace, []

    def sweep(source: str, target: str) -> None:
        if not swept:
            swept.append(source)
            os.unlink(source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", sweep)
    path = tmp_path / "part"
    files.write_whole(str(path), b"data")
    assert swept and [each.name for each in tmp_path.iterdir()] == ["part"]
    assert path.read_bytes() == b"data"
    files.delete([str(path), str(path)])
    assert not path.exists()
