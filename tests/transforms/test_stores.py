"""Stores without Beam find, read and write what Beam's filesystems do."""

from pathlib import Path

import pytest
from apache_beam.io.filesystems import FileSystems

from dptrees.transforms.folder import stores
from dptrees.transforms.folder.beam_store import BeamStore
from dptrees.transforms.folder.stores import LocalDisk, joined, scheme_of

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
    assert joined(folder, *names) == FileSystems.join(folder, *names)


def test_paths_below_a_bucket() -> None:
    found = pytest.importorskip("apache_beam.io.gcp.gcsfilesystem", exc_type=ImportError)
    plain = object.__new__(found.GCSFileSystem)
    for folder in ("gs://b", "gs://b/", "gs://b/out", "gs://b/out/"):
        for names in (("a",), ("nodes", "b.parquet")):
            assert joined(folder, *names) == plain.join(folder, *names)


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
