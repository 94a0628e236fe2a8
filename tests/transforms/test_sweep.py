"""What is no part of a release goes; what is not ours, and what is published, stays."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transforms.parts import parquet_bytes
from transforms.standing import StandingError
from transforms.sweep import discard, missing_files, sweep_temporary, sweep_unnamed

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


def test_what_the_manifest_does_not_name_goes(
    make_plan, data, run, tmp_path, release_files
) -> None:
    out, plan = tmp_path / "out", make_plan()
    run(plan, data, out)
    released = release_files(out)
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
    """As if files changed while an engine computed again: each attempt at a part writes another."""
    attempts = iter(range(100))

    def other_bytes(table: pa.Table) -> bytes:
        return parquet_bytes(table.replace_schema_metadata({"attempt": str(next(attempts))}))

    monkeypatch.setattr("transforms.write.parquet_bytes", other_bytes)
    out = tmp_path / "out"
    run(make_plan(), data, out, pipeline_options=["--direct_runner_bundle_repeat=2"])
    assert next(attempts) > 5
    parts = [name for name in release_files(out) if name.startswith(("nodes/", "cdf/"))]
    assert len(parts) == 2 and missing_files(str(out), parts) == []
    named = {part["file"] for part in json.loads((out / "manifest.json").read_text())["parts"]}
    assert named == set(parts)


def test_the_beginning_of_a_release_is_discarded(
    make_plan, data, run, tmp_path, release_files, monkeypatch
) -> None:
    out, plan = tmp_path / "out", make_plan("value", "number")
    run(plan, data, out)
    (out / "manifest.json").unlink()
    put(out, MINE | {HALF: b"half"})
    discard(str(out))
    assert release_files(out) == MINE
    pq.write_table(pq.read_table(data.replace("*", "a")), tmp_path / "fewer.parquet")
    run(plan, str(tmp_path / "fewer.parquet"), out, nonce=None)
    assert "manifest.json" in release_files(out)


def test_discarding_begins_with_the_nonce(make_plan, data, run, tmp_path, monkeypatch) -> None:
    """Interrupted, it leaves nothing under which a second draw could be compared with the first."""
    out = tmp_path / "out"
    run(make_plan(), data, out)
    (out / "manifest.json").unlink()
    deleted: list[str] = []

    def killed(paths: list[str]) -> None:
        deleted.extend(paths)
        raise KeyboardInterrupt

    monkeypatch.setattr("transforms.files.delete", killed)
    with pytest.raises(KeyboardInterrupt):
        discard(str(out))
    assert deleted == [str(out / "nonce.json")]


def test_a_finished_release_is_not_discarded(make_plan, data, run, tmp_path, release_files) -> None:
    out = tmp_path / "out"
    run(make_plan(), data, out)
    before = release_files(out)
    with pytest.raises(StandingError, match="holds a finished release, which --discard does not"):
        discard(str(out))
    assert release_files(out) == before
