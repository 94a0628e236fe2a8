"""Parts, receipts and manifest: a release exists once its manifest does, and never changes."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.questions.messages import Part
from dptrees.dpcore.release.guarantee import plan_manifest
from dptrees.dpcore.release.manifest import manifest_checksum
from dptrees.transforms.errors import ConservationError
from dptrees.transforms.folder.files import TEMPORARY_SUFFIX
from dptrees.transforms.folder.layout import (
    Receipt,
    parquet_bytes,
    part_file,
    planned_parts,
    sha256,
)
from dptrees.transforms.steps.record import (
    CommitError,
    _by_part,
    _Commit,
    check_record,
    manifest_text,
)


@pytest.fixture
def plan(make_plan):
    """A tree in several chunks with a spine, and a small one."""
    return make_plan("value", "number", fanouts=(4, 4, 2), chunk_leaves=8)


def test_parts_of_a_plan_are_named_apart(plan) -> None:
    parts = list(planned_parts(plan))
    names = [part_file(part, "0" * 64) for part in parts]
    assert len(set(names)) == len(names) == len(set(parts))
    chunks = sum(len(question.forest.chunking) for question in plan.questions)
    spines = sum(question.forest.chunking.split_level > 0 for question in plan.questions)
    assert len(parts) == 2 * chunks + spines
    assert "nodes/value-000000-spine-0000000000000000.parquet" in names


def test_the_manifest_names_every_part_with_its_checksum(
    plan, data, run, tmp_path, release_files
) -> None:
    run(plan, data, tmp_path / "out")
    files = release_files(tmp_path / "out")
    manifest = json.loads(files["manifest.json"])
    listed = {part["file"]: part for part in manifest["parts"]}
    assert len(listed) == len(manifest["parts"]) == len(list(planned_parts(plan)))
    beside = {"manifest.json", "nonce.json", "record.json", "quantiles.parquet"}
    assert set(files) - set(listed) == beside
    for name, part in listed.items():
        assert sha256(files[name]) == part["sha256"]
        named = Part(
            kind=name.split("/")[0], tree=part["tree"], key=part["key"], index=part["chunk"]
        )
        assert name == part_file(named, part["sha256"])
        assert pq.read_metadata(tmp_path / "out" / name).num_rows == part["rows"]
    assert manifest["files"] == {"quantiles.parquet": sha256(files["quantiles.parquet"])}
    assert manifest["record"] == json.loads(files["record.json"])["record"]
    assert manifest["nonce"] == json.loads(files["nonce.json"])["nonce"]
    assert manifest["checksum"] == manifest_checksum(manifest)
    reported = json.loads(json.dumps(plan_manifest(plan)))
    assert {name: manifest[name] for name in reported} == reported


def test_the_same_release_again_changes_nothing(
    plan, data, run, tmp_path, release_files, monkeypatch
) -> None:
    """Also by another version, and as a repair."""
    run(plan, data, tmp_path / "out")
    before = release_files(tmp_path / "out")
    inode = os.stat(tmp_path / "out" / "manifest.json").st_ino
    for version in ("", "2"):
        if version:
            monkeypatch.setattr("dptrees.dpcore.release.guarantee.__version__", version)
        for repair in (False, True):
            run(plan, data, tmp_path / "out", repair=repair, if_exists="use")
            assert release_files(tmp_path / "out") == before
        if not version:
            assert os.stat(tmp_path / "out" / "manifest.json").st_ino == inode


def test_a_folder_with_a_record_and_strays_is_completed(
    plan, data, rows, run, run_steps, tmp_path, release_files
) -> None:
    run_steps(plan, rows, tmp_path / "whole")
    whole = release_files(tmp_path / "whole")
    out = tmp_path / "out"
    (out / "nodes").mkdir(parents=True)
    (out / "record.json").write_bytes(whole["record.json"])
    some = next(name for name in whole if name.startswith("nodes/"))
    (out / some).write_bytes(b"half of a part")
    (out / "nodes" / f".stray{TEMPORARY_SUFFIX}").write_bytes(b"stray")
    (out / "nodes" / "value-000000-000000-feedfeedfeedfeed.parquet").write_bytes(b"stray")
    run(plan, data, out)
    found = release_files(out)
    # A part that the manifest does not name might be another draw of the same chunk.
    assert found == whole | {f"nodes/.stray{TEMPORARY_SUFFIX}": b"stray"}


def test_a_release_without_its_record_is_not_damaged_by_other_data(
    plan, rows, run, run_steps, tmp_path, release_files
) -> None:
    run_steps(plan, rows, tmp_path / "out")
    (tmp_path / "out" / "record.json").unlink()
    before = release_files(tmp_path / "out")
    pq.write_table(rows.slice(0, 2000), tmp_path / "other.parquet")
    with pytest.raises(Exception, match="made from other data, with another key"):
        run(plan, str(tmp_path / "other.parquet"), tmp_path / "out", repair=True)
    assert release_files(tmp_path / "out") == before


def receipt(index: int, checksum: str = "aa", **fields: Any) -> Receipt:
    part = Part(kind="nodes", tree="t", key=0, index=index)
    return Receipt(part=part, rows=3, sha256=checksum, **fields)


def test_receipts_of_retries_are_one_whatever_their_order() -> None:
    each = receipt(4, note="eA==")
    assert Receipt.from_bytes(each.to_bytes()) == each
    receipts = [receipt(2), receipt(1, "bb"), receipt(1, "aa"), receipt(2)]
    expected = {receipt(1).part: receipt(1, "aa"), receipt(2).part: receipt(2)}
    for order in (receipts, receipts[::-1]):
        assert list(_by_part(order).items()) == list(expected.items())


def test_a_manifest_has_no_clock_and_no_order_of_arrival() -> None:
    receipts = list(_by_part([receipt(2), receipt(1)]).values())
    other = list(_by_part([receipt(1), receipt(2)]).values())
    text = manifest_text({"a": 1}, b"\x01", receipts, {"q": "aa"})
    assert text == manifest_text({"a": 1}, b"\x01", other, {"q": "aa"})
    assert json.loads(text)["parts"][0] == {
        "file": "nodes/t-000000-000001-aa.parquet",
        "rows": 3,
        "sha256": "aa",
        "tree": "t",
        "key": 0,
        "chunk": 1,
    }


def commit(
    plan, reference, folder: Path, receipts: list[Receipt], draw: bytes = bytes(48)
) -> list[str]:
    step = _Commit(plan, reference, str(folder), {"spec": plan.spec()})
    step.setup()
    return list(step.process((0, [each.to_bytes() for each in receipts]), [draw]))


def test_a_commit_needs_every_part(make_plan, reference, tmp_path) -> None:
    plan = make_plan("number")
    receipts = [Receipt(part=part, rows=1, sha256="aa") for part in planned_parts(plan)]
    foreign = Receipt(part=Part(kind="nodes", tree="x", key=0, index=0), rows=1, sha256="aa")
    for wrong in (receipts[1:], [], [*receipts, foreign]):
        with pytest.raises(ConservationError, match="the parts of the release did not arrive"):
            commit(plan, reference, tmp_path / "out", wrong)
        assert not (tmp_path / "out").exists()
    step = _Commit(plan, reference, "", {})
    step.setup()
    check_record(str(tmp_path / "out"), step.source([bytes(48)]).record())
    (path,) = commit(plan, reference, tmp_path / "out", receipts)
    before = Path(path).read_bytes()
    assert commit(plan, reference, tmp_path / "out", receipts[::-1]) == [path]
    other = [Receipt(part=each.part, rows=1, sha256="bb") for each in receipts]
    assert commit(plan, reference, tmp_path / "out", other) == [path]
    assert Path(path).read_bytes() == before
    with pytest.raises(CommitError, match="contains another release; it was not changed"):
        commit(plan, reference, tmp_path / "out", receipts, draw=bytes(47) + b"1")
    assert Path(path).read_bytes() == before


def test_the_same_table_gives_the_same_bytes() -> None:
    table = pa.table({"level": [1, 1, 2], "estimate": [0.5, 1.5, -2.0]})
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert parquet_bytes(table) == parquet_bytes(table) == parquet_bytes(chunked.combine_chunks())
    assert pq.read_table(pa.BufferReader(parquet_bytes(table))).equals(table)
