"""What is no part of a release goes; what is not ours, and what is published, stays."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.transforms.folder.existing_release import (
    ExistingReleaseError,
    begun_without_record,
    discard,
    missing_files,
    sweep_temporary,
    sweep_unnamed,
)
from dptrees.transforms.folder.layout import parquet_bytes
from dptrees.transforms.steps.record import _by_part as by_part

MINE = {
    "notes.txt": b"mine",
    "x.tmp": b"mine",
    "nodes/mine.parquet": b"mine",
    "nodes/other-000000-000000-feed.parquet": b"mine",
}
OTHER_DRAW = "nodes/value-000000-000000-feedfeedfeedfeed.parquet"
HALF = "nodes/." + 32 * "a" + ".tmp"


def put(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the release is that tests copy."""
    return tmp_path_factory.mktemp("kept") / "out"


@pytest.fixture
def out(make_plan, rows, run_steps, kept, tmp_path) -> Path:
    """A folder that holds the release of the plan of one tree."""
    if not kept.exists():
        run_steps(make_plan(), rows, kept)
    return Path(shutil.copytree(kept, tmp_path / "out"))


def test_what_the_manifest_does_not_name_goes(out, make_plan, release_files) -> None:
    plan, released = make_plan(), release_files(out)
    put(out, MINE | {OTHER_DRAW: b"another draw", HALF: b"half"})
    sweep_unnamed(str(out), plan)
    assert release_files(out) == released | MINE | {HALF: b"half"}
    sweep_temporary(str(out))
    assert release_files(out) == released | MINE
    assert missing_files(str(out), released) == []
    (out / "record.json").unlink()
    assert missing_files(str(out), released) == ["record.json"]


def test_of_two_draws_of_a_chunk_the_loser_is_cleared(
    make_plan, data, run, tmp_path, release_files, monkeypatch
) -> None:
    """Make each attempt at a part write other bytes, as if files changed while an engine computed
    again."""
    attempts = iter(range(100))

    def other_bytes(table: pa.Table) -> bytes:
        return parquet_bytes(table.replace_schema_metadata({"attempt": str(next(attempts))}))

    monkeypatch.setattr("dptrees.transforms.steps.draw.parquet_bytes", other_bytes)
    out = tmp_path / "out"
    run(make_plan(), data, out, pipeline_options=["--direct_runner_bundle_repeat=2"])
    assert next(attempts) > 5
    parts = [name for name in release_files(out) if name.startswith(("nodes/", "cdf/"))]
    assert len(parts) == 2 and missing_files(str(out), parts) == []
    named = {part["file"] for part in json.loads((out / "manifest.json").read_text())["parts"]}
    assert named == set(parts)


def test_the_beginning_of_a_release_is_discarded(
    make_plan, data, rows, run, run_steps, tmp_path, release_files
) -> None:
    out, plan = tmp_path / "out", make_plan("value", "number")
    run_steps(plan, rows, out)
    (out / "manifest.json").unlink()
    put(out, MINE | {HALF: b"half"})
    discard(str(out))
    assert release_files(out) == MINE
    pq.write_table(pq.read_table(data.replace("*", "a")), tmp_path / "fewer.parquet")
    run(plan, str(tmp_path / "fewer.parquet"), out, nonce=None)
    assert "manifest.json" in release_files(out)


def test_what_is_not_discarded(tmp_path, out, release_files) -> None:
    """A finished release, and a folder of others."""
    mine = {"quantiles.parquet": b"mine"} | MINE
    put(tmp_path / "others", mine)
    for folder, words in (
        (out, "contains a finished release, which --discard does not"),
        (tmp_path / "others", "contains nothing that --discard could remove"),
    ):
        before = release_files(folder)
        with pytest.raises(ExistingReleaseError, match=words):
            discard(str(folder))
        assert release_files(folder) == before


def test_what_a_killed_discarding_leaves_is_seen(out) -> None:
    assert not begun_without_record(str(out))
    for name in ("manifest.json", "nonce.json", "record.json"):
        (out / name).unlink()
    assert begun_without_record(str(out))
    discard(str(out))
    assert not begun_without_record(str(out))


def test_a_job_whose_beginning_was_discarded_does_not_commit(
    make_plan, data, run, tmp_path, monkeypatch
) -> None:
    """Its launcher was killed, and somebody discards what it wrote while the engine goes on."""
    out = tmp_path / "out"

    def discarded(receipts):
        for name in ("record.json", "nonce.json"):
            (out / name).unlink()
        return by_part(receipts)

    monkeypatch.setattr("dptrees.transforms.steps.record._by_part", discarded)
    with pytest.raises(Exception, match="made from other data, with another key"):
        run(make_plan(), data, out)
    assert not (out / "manifest.json").exists()


def test_folders_whose_names_match_are_left_alone(
    make_plan, data, run, tmp_path, release_files, out
) -> None:
    """`v[12]` as a pattern is `v1`."""
    out.rename(tmp_path / "v1")
    before = release_files(tmp_path / "v1")
    run(make_plan(), data, tmp_path / "v[12]", nonce=bytes(16))
    assert release_files(tmp_path / "v1") == before
    other = release_files(tmp_path / "v[12]")
    assert missing_files(str(tmp_path / "v[12]"), other) == []
    (tmp_path / "v[12]" / "manifest.json").unlink()
    discard(str(tmp_path / "v[12]"))
    assert release_files(tmp_path / "v1") == before


def test_a_damaged_manifest_sweeps_nothing(make_plan, data, run, out, release_files) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(manifest | {"parts": []}))
    before = release_files(out)
    for again in (
        lambda: sweep_unnamed(str(out), make_plan()),
        lambda: run(make_plan(), data, out),
    ):
        with pytest.raises(ExistingReleaseError, match="is damaged or was edited"):
            again()
    assert release_files(out) == before


def test_a_losing_job_clears_its_parts(
    make_plan, data, rows, run, run_steps, tmp_path, monkeypatch
) -> None:
    """Another release exists by the time that it would commit."""
    out, other = tmp_path / "out", tmp_path / "other"
    run_steps(make_plan(), rows, other, nonce=bytes(16))

    def beaten(receipts):
        shutil.copytree(other, out, dirs_exist_ok=True)
        return by_part(receipts)

    monkeypatch.setattr("dptrees.transforms.steps.record._by_part", beaten)
    with pytest.raises(Exception, match="contains another release; it was not changed"):
        run(make_plan(), data, out)
    named = json.loads((out / "manifest.json").read_text())["parts"]
    assert len(list((out / "nodes").iterdir())) == sum("nodes/" in part["file"] for part in named)


def test_discarding_begins_with_the_nonce(out, monkeypatch) -> None:
    """Interrupted, it leaves nothing under which a second draw could be compared with the first."""
    (out / "manifest.json").unlink()
    deleted: list[str] = []

    def killed(paths: list[str]) -> None:
        deleted.extend(paths)
        raise KeyboardInterrupt

    monkeypatch.setattr("dptrees.transforms.folder.files.delete", killed)
    with pytest.raises(KeyboardInterrupt):
        discard(str(out))
    assert deleted == [str(out / "nonce.json")]
