"""The release as a folder: what it reveals, its tables, and what a reader refuses.

Golden releases have its names, columns and entries.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.query.release_folder import FolderError
from tests.pipelines.conftest import Change, Workspace, edit_manifest, put, update

CDF_OF_ALL = ("cdf", "50", "--tree", "all")


def test_plan_is_read_back_from_the_manifest(released: Workspace) -> None:
    plan = load_configuration(released.configure()).plan()
    assert plan_from_spec(released.manifest()["spec"]).digest == plan.digest
    assert released.made().plan.digest == plan.digest


def without_bytes(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest without what describes the bytes of the noisy tables."""
    known = dict(manifest)
    known.pop("record")
    known.pop("checksum")
    known["files"] = sorted(known["files"])
    known["parts"] = [
        {name: value for name, value in part.items() if name not in ("file", "sha256")}
        | {"file": part["file"].rpartition("-")[0]}
        for part in known["parts"]
    ]
    return known


def test_manifest_reveals_nothing_about_the_data(workspace: Workspace, released: Workspace) -> None:
    """Other rows, ten times as many: only the names and checksums of noisy tables differ."""
    workspace.write_rows(seed=5, x=pa.array([1.0, 99.0] * 2000), place=pa.array(["south"] * 4000))
    workspace.make()
    mine, theirs = workspace.manifest(), released.manifest()
    assert mine["record"] != theirs["record"]
    assert mine["files"] != theirs["files"]
    assert without_bytes(mine) == without_bytes(theirs)
    shapes = [
        {path.name.rpartition("-")[0]: pq.read_metadata(path).num_row_groups for path in parts}
        for parts in (sorted(made.output.glob("*/*.parquet")) for made in (workspace, released))
    ]
    assert shapes[0] == shapes[1]


def test_tables_keep_their_rules(released: Workspace) -> None:
    folder = released.made()
    for tree, keys in {"all": 1, "places": 2}.items():
        nodes, cdf = folder.rows("nodes", tree), folder.rows("cdf", tree)
        question = folder.plan.question(tree)
        assert nodes.num_rows == keys * sum(question.plan.tree.level_sizes)
        assert cdf.num_rows == keys * 16
        assert min(nodes["count"].to_pylist()) >= 0
        for table in (nodes, cdf):
            for row in table.to_pylist():
                assert 0 <= row["ci_low"] <= max(0, row["estimate"])
                assert row["ci_low"] <= row["ci_high"]
        for start in range(0, 16 * keys, 16):
            counts = cdf["count"].to_pylist()[start : start + 16]
            assert counts == sorted(counts)
            assert cdf["fraction"].to_pylist()[start + 15] == 1
    assert set(folder.rows("cdf", "all")["key"].to_pylist()) == {None}
    assert set(folder.rows("cdf", "places")["key"].to_pylist()) == {"north", "south"}


def test_tables_are_near_the_truth(released: Workspace) -> None:
    """Ten standard errors of discrete Laplace noise are exceeded once in 10^5 at one point; the
    key is fixed, so the draw is always the same."""
    x = released.values()["x"].to_numpy()
    for row in released.made().rows("cdf", "all").to_pylist():
        truth = len(x) if row["upper"] == 100 else (x < row["upper"]).sum()
        assert 0 < abs(row["estimate"] - truth) < 10 * row["std_error"]


# What a reader refuses.


def test_what_is_no_manifest(again: Workspace) -> None:
    manifest = again.output / "manifest.json"
    for text in ("", "{", "\x00", "[]", "3"):
        manifest.write_text(text)
        with pytest.raises(FolderError, match=r"manifest.json: is not .*the release is damaged"):
            again.made()
    manifest.unlink()
    with pytest.raises(FolderError, match=r"is not a release \(there is no manifest.json\)"):
        again.made()


OTHER_FORMS: list[Change] = [
    *(update(spec=value) for value in (None, {}, {"format": "3"})),
    *(put("spec.budget", value) for value in ("1/0", "x", None, [])),
    *(update(parts=value) for value in (None, [{}])),
    *(update(trees=value) for value in ([], [None], [[]])),
]


def test_manifests_of_another_form(again: Workspace) -> None:
    whole = (again.output / "manifest.json").read_text()
    for change in OTHER_FORMS:
        (again.output / "manifest.json").write_text(whole)
        edit_manifest(again.output, change, checksum=False)
        with pytest.raises(FolderError, match="its manifest cannot be read by this program"):
            again.made()


@pytest.mark.parametrize("kind", ["nodes", "cdf"])
def test_damaged_part(again: Workspace, kind: str) -> None:
    (path,) = again.output.glob(f"{kind}/all-*.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(FolderError, match="it does not match its checksum in the manifest"):
        again.made().rows(kind, "all")
    for command in (("query", again.output, *CDF_OF_ALL), ("report", again.output)):
        outcome = again.run(*command)
        # A query of the CDF reads the node of the root too, for the fraction.
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.count("\n") == 1 and str(path) in outcome.err


def unlink(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("name", "spoil"),
    [("cdf/all-*.parquet", empty), ("quantiles.parquet", empty), ("cdf/all-*.parquet", unlink)],
)
def test_a_repair_fixes_files(again: Workspace, name: str, spoil: Callable[[Path], None]) -> None:
    (path,) = again.output.glob(name)
    before = path.read_bytes()
    spoil(path)
    if spoil is unlink:
        outcome = again.run("query", again.output, *CDF_OF_ALL)
        assert outcome.err == f"dptrees: {path}: cannot be read: No such file or directory\n"
        refused = again.release()
        assert (outcome.code, refused.code, refused.out) == (2, 2, "")
        assert f"cdf/{path.name} is missing" in refused.err and "--repair" in refused.err
    again.make(None, "--repair")
    assert path.read_bytes() == before


def test_edited_guarantee_is_noticed(again: Workspace) -> None:
    whole = (again.output / "manifest.json").read_text()
    for name, value in (("words", "perfect privacy"), ("epsilon", "1/100"), ("unit", "person")):
        (again.output / "manifest.json").write_text(whole)
        change = put(f"guarantee.{name}", value)
        edit_manifest(again.output, change, checksum=False)
        outcome = again.run("query", again.output, *CDF_OF_ALL)
        assert (outcome.code, outcome.out) == (2, "")
        assert "its manifest cannot be read by this program: it" in outcome.err
        if name != "words":  # another checksum does not help
            edit_manifest(again.output, change)
            with pytest.raises(FolderError, match="guarantee is not that of its specification"):
                again.made()


def test_files_beside_the_named_ones_are_not_read(again: Workspace) -> None:
    (path,) = again.output.glob("cdf/all-*.parquet")
    shutil.copy(path, path.with_name("all-000000-000001-0000000000000000.parquet"))
    assert again.made().rows("cdf", "all").num_rows == 16
