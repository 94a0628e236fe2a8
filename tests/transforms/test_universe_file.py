"""Universes travel as places of files: written once, read once, the one that was written."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystems import FileSystems

from dptrees.dpcore.hierarchy.leaf_codes import universe_from_table
from dptrees.transforms.errors import UniverseError
from dptrees.transforms.folder import files
from dptrees.transforms.folder import universe as universe_file
from dptrees.transforms.folder.layout import sha256
from dptrees.transforms.folder.names import universe_name
from dptrees.transforms.folder.universe import SharedUniverse, share_universes, universe_files
from tests.dpcore.hierarchy_questions import (
    BLOCKS,
    ROUTES,
    hierarchy_question,
    make_release_plan,
    universe_domain,
)
from tests.transforms.test_object_store import BUCKET, MemoryStore

PROJECT = Path(__file__).resolve().parents[2]
READ = """
import pickle, sys
from dptrees.transforms.folder import files
reads, read = [], files.read_bytes
files.read_bytes = lambda path: reads.append(path) or read(path)
plans = [pickle.loads(open(sys.argv[1], "rb").read()) for _ in range(3)]
labels = [q.node_labels(0, __import__("numpy").arange(1)).to_pylist() for q in plans[0].questions]
print(len(reads), plans[0].digest == plans[2].digest, plans[0].digest.hex(), labels)
"""


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> dict[str, SharedUniverse]:
    """A process that has read no universe yet."""
    loaded: dict[str, SharedUniverse] = {}
    monkeypatch.setattr(universe_file, "_LOADED", loaded)
    return loaded


@pytest.fixture
def plan():
    """Three trees over two universes."""
    return make_release_plan(
        hierarchy_question("digits", name="one"),
        hierarchy_question("digits", name="two", domain=universe_domain("digits", unknown="other")),
        hierarchy_question("columns", name="three"),
    )


def file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_trees_share_one_file_of_each_universe(plan, make_plan, tmp_path) -> None:
    shared = share_universes(plan, str(tmp_path / "out"))
    names = sorted(universe_name(universe.digest) for universe in (BLOCKS, ROUTES))
    assert file_names(tmp_path / "out") == names == sorted(universe_files(shared))
    assert universe_files(plan) == {}
    for name, checksum in universe_files(shared).items():
        data = (tmp_path / "out" / name).read_bytes()
        assert sha256(data) == checksum
    table = pq.read_table(tmp_path / "out" / universe_name(BLOCKS.digest))
    assert universe_from_table(table) == BLOCKS
    assert shared == plan and shared.digest == plan.digest and shared.spec() == plan.spec()
    # Widths that were computed are kept; a tree without a universe is as it was.
    widths = plan.questions[0].widths
    shared = share_universes(plan, str(tmp_path / "out"))
    assert shared.questions[0].__dict__["widths"] is widths
    assert "widths" not in shared.questions[1].__dict__
    plain = make_plan("value", "carrier")
    assert share_universes(plain, str(tmp_path / "none")) == plain
    assert universe_files(plain) == {} and not (tmp_path / "none").exists()


def test_sharing_again_writes_what_is_not_there(plan, tmp_path, monkeypatch) -> None:
    """A folder that was cleared gets its universes again, and another folder its own."""
    written: list[str] = []
    write = files.write_whole
    monkeypatch.setattr(files, "write_whole", lambda p, d, **_: written.append(p) or write(p, d))
    shared = share_universes(plan, str(tmp_path / "out"))
    assert len(written) == 2
    again = share_universes(shared, str(tmp_path / "out"))
    assert len(written) == 2 and again == shared
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    share_universes(plan, str(tmp_path / "out"))
    assert file_names(tmp_path / "out") == sorted(universe_files(shared))
    other = share_universes(plan, str(tmp_path / "other"))
    assert file_names(tmp_path / "other") == file_names(tmp_path / "out")
    assert universe_files(other) == universe_files(shared)
    universes = [each.questions[0].domain.universe for each in (shared, other)]
    assert universes[0].path != universes[1].path


def test_a_release_that_exists_keeps_the_bytes_that_it_names(
    plan, tmp_path, monkeypatch, nothing_loaded
) -> None:
    """Another version of Arrow writes the same universe with other bytes."""
    shared = share_universes(plan, str(tmp_path / "out"))
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    nothing_loaded.clear()

    def otherwise(table: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="gzip")
        return sink.getvalue().to_pybytes()

    monkeypatch.setattr(universe_file, "parquet_bytes", otherwise)
    again = share_universes(plan, str(tmp_path / "out"))
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert universe_files(again) == universe_files(shared)


def test_what_is_not_the_universe_is_written_anew(plan, tmp_path, nothing_loaded) -> None:
    shared = share_universes(plan, str(tmp_path / "out"))
    first, second = (tmp_path / "out" / universe_name(u.digest) for u in (BLOCKS, ROUTES))
    good = first.read_bytes()
    for wrong in (b"", b"PAR1", good[: len(good) // 2], second.read_bytes()):
        first.write_bytes(wrong)
        nothing_loaded.clear()
        again = share_universes(plan, str(tmp_path / "out"))
        assert universe_files(again) == universe_files(shared)
        assert first.read_bytes() == good


def test_another_process_reads_each_universe_once(plan, tmp_path) -> None:
    shared = share_universes(plan, str(tmp_path / "out"))
    travelled = pickle.dumps(shared)
    assert len(travelled) < 8000 and b"0112" not in travelled
    (tmp_path / "plan").write_bytes(travelled)
    reported = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "plan")],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert reported == f"2 True {plan.digest.hex()} [[''], [''], ['']]\n"


def test_in_one_process_it_is_read_once_and_not_at_all_by_the_launcher(
    plan, tmp_path, monkeypatch, nothing_loaded
) -> None:
    reads: list[str] = []
    read = files.read_bytes
    monkeypatch.setattr(files, "read_bytes", lambda path: reads.append(path) or read(path))
    travelled = pickle.dumps(share_universes(plan, str(tmp_path / "out")))
    assert pickle.loads(travelled) == plan and reads == []
    nothing_loaded.clear()
    first, second = pickle.loads(travelled), pickle.loads(travelled)
    assert len(reads) == 2 and first == second == plan
    assert first.questions[0].domain.universe is second.questions[1].domain.universe


def test_a_file_that_is_changed_or_gone_is_refused(plan, tmp_path, nothing_loaded) -> None:
    travelled = pickle.dumps(share_universes(plan, str(tmp_path / "out")))
    path = tmp_path / "out" / universe_name(BLOCKS.digest)
    good = path.read_bytes()
    for wrong in (good + b" ", good[:-1], b"", good[:200] + bytes([good[200] ^ 1]) + good[201:]):
        nothing_loaded.clear()
        path.write_bytes(wrong)
        with pytest.raises(UniverseError, match="is not the file that the launcher wrote"):
            pickle.loads(travelled)
    nothing_loaded.clear()
    path.unlink()
    with pytest.raises(Exception, match="cannot be read"):
        pickle.loads(travelled)
    path.write_bytes(good)
    assert pickle.loads(travelled) == plan


def test_a_universe_of_another_table_is_refused(plan, tmp_path, nothing_loaded) -> None:
    """Another universe under the right name and with its own checksum is found by no digest of its
    bytes: what the plan says of it no longer holds, so that the plan differs."""
    shared = share_universes(plan, str(tmp_path / "out"))
    other = share_universes(
        make_release_plan(hierarchy_question("bushy", name="one")), str(tmp_path / "other")
    )
    assert other.digest != shared.digest
    assert universe_files(other).keys().isdisjoint(universe_files(shared))


def test_a_remote_folder(plan, monkeypatch, nothing_loaded) -> None:
    objects: dict[str, bytes] = {}
    monkeypatch.setattr(MemoryStore, "objects", objects)
    monkeypatch.setattr(MemoryStore, "failure", [])
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    travelled = pickle.dumps(share_universes(plan, f"{BUCKET}/out"))
    assert sorted(objects) == sorted(
        f"{BUCKET}/out/{universe_name(universe.digest)}" for universe in (BLOCKS, ROUTES)
    )
    nothing_loaded.clear()
    assert pickle.loads(travelled) == plan
    nothing_loaded.clear()
    objects[f"{BUCKET}/out/{universe_name(BLOCKS.digest)}"] += b" "
    with pytest.raises(UniverseError, match=f"{BUCKET}/out/universe-.* is not the file"):
        pickle.loads(travelled)


def test_a_shared_universe_is_a_universe(tmp_path) -> None:
    plan = make_release_plan(hierarchy_question("paths"))
    shared = share_universes(plan, str(tmp_path / "out"))
    universe = shared.questions[0].domain.universe
    assert isinstance(universe, SharedUniverse)
    plain = plan.questions[0].domain.universe
    assert universe == plain and hash(universe) == hash(plain)
    assert universe.find("usr/bin/vi") == plain.find("usr/bin/vi")
    # What a policy adds is no part of the file.
    other = replace(shared.questions[0].domain, unknown="other")
    assert other.tree.paths(1, pa.array([3]).to_numpy()).to_pylist() == ["other"]
