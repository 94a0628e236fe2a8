"""The release as a folder: its manifest, its tables, and what a reader refuses."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore import __version__
from dptrees.dpcore.noise.laws import SAMPLER_VERSION
from dptrees.dpcore.release.guarantee import manifest_checksum
from dptrees.dpcore.release.plan import FORMAT_VERSION, plan_from_spec
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.query.release_folder import FolderError, ReleaseFolder

if TYPE_CHECKING:
    from tests.pipelines.conftest import Workspace

NODES = "tree key level node label estimate std_error ci_low ci_high count"
CDF = "tree key upper estimate std_error ci_low ci_high count fraction"
QUANTILES = "tree key q value ci_low ci_high"


def read_manifest(workspace: Workspace) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((workspace.output / "manifest.json").read_text())
    return manifest


# The manifest.


def test_manifest_holds_what_the_design_says(released: Workspace) -> None:
    manifest = read_manifest(released)
    entries = "spec dptrees arithmetic guarantee trees nonce key_id record parts files checksum"
    assert list(manifest) == entries.split()
    assert manifest["dptrees"] == __version__
    spec = manifest["spec"]
    assert (spec["format"], spec["sampler"]) == (FORMAT_VERSION, SAMPLER_VERSION)
    guarantee = manifest["guarantee"]
    assert set(guarantee) == {"words", "neighbors", "unit", "epsilon", "assumes"}
    assert (guarantee["neighbors"], guarantee["unit"], guarantee["epsilon"]) == (
        *("add_remove", "row", "1"),
    )
    assert "epsilon = 1" in guarantee["words"] and "key" in guarantee["assumes"]


def test_manifest_holds_the_exact_noise_of_every_level(released: Workspace) -> None:
    manifest = read_manifest(released)
    plan = load_configuration(released.configure()).plan()
    for question, tree in zip(plan.questions, manifest["trees"], strict=True):
        assert {"name", "epsilon", "levels", "policies"} <= set(tree)
        assert (tree["name"], tree["epsilon"]) == (question.name, "1/2")
        for number, (level, law) in enumerate(zip(tree["levels"], question.plan.laws, strict=True)):
            assert level["level"] == number
            assert level["nodes"] == question.plan.tree.level_sizes[number]
            assert level["epsilon"] == str(question.plan.level_amounts[number])
            noise = {"law": "discrete Laplace", "scale": str(getattr(law, "scale", None))}
            assert level["noise"] == (noise if law else "not measured")
    all_rows, places = manifest["trees"]
    assert all_rows["policies"] == {"x": {"outside": "clamp", "missing": "drop"}}
    assert places["policies"] == all_rows["policies"] | {"place": {"unknown key": "drop"}}


def test_plan_is_read_back_from_the_manifest(released: Workspace) -> None:
    plan = load_configuration(released.configure()).plan()
    assert plan_from_spec(read_manifest(released)["spec"]).digest == plan.digest
    assert ReleaseFolder(str(released.output)).plan.digest == plan.digest


def test_manifest_names_every_part_with_its_checksum(released: Workspace) -> None:
    manifest = read_manifest(released)
    for part in manifest["parts"]:
        assert set(part) == {"file", "rows", "sha256", "tree", "key", "chunk"}
        data = (released.output / part["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == part["sha256"]
        assert pq.read_metadata(released.output / part["file"]).num_rows == part["rows"]
    quantiles = (released.output / "quantiles.parquet").read_bytes()
    assert manifest["files"] == {"quantiles.parquet": hashlib.sha256(quantiles).hexdigest()}


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
    assert workspace.release().code == 0
    mine, theirs = read_manifest(workspace), read_manifest(released)
    assert mine["record"] != theirs["record"]
    assert mine["files"] != theirs["files"]
    assert without_bytes(mine) == without_bytes(theirs)
    shapes = [
        {path.name.rpartition("-")[0]: pq.read_metadata(path).num_row_groups for path in parts}
        for parts in (sorted(made.output.glob("*/*.parquet")) for made in (workspace, released))
    ]
    assert shapes[0] == shapes[1]


# The tables.


def test_columns_of_the_tables(released: Workspace) -> None:
    folder = ReleaseFolder(str(released.output))
    for tree in ("all", "places"):
        assert folder.rows("nodes", tree).column_names == NODES.split()
        assert folder.rows("cdf", tree).column_names == CDF.split()
    quantiles = folder.quantiles()
    assert quantiles is not None
    assert quantiles.column_names[:6] == QUANTILES.split()
    assert quantiles.column_names[6:] == ["value_text", "ci_low_text", "ci_high_text"]
    for file in ("nodes", "cdf"):
        schemas = {pq.read_schema(path) for path in (released.output / file).iterdir()}
        assert len(schemas) == 1


def test_tables_keep_their_rules(released: Workspace) -> None:
    folder = ReleaseFolder(str(released.output))
    sizes = {"all": 1, "places": 2}
    for tree, keys in sizes.items():
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
    for row in ReleaseFolder(str(released.output)).rows("cdf", "all").to_pylist():
        truth = len(x) if row["upper"] == 100 else (x < row["upper"]).sum()
        assert 0 < abs(row["estimate"] - truth) < 10 * row["std_error"]


# What a reader refuses.


@pytest.fixture
def copied(workspace: Workspace, released: Workspace) -> Path:
    """A release that a test may damage."""
    shutil.copytree(released.output, workspace.output)
    return workspace.output


def edit(folder: Path, change: dict[str, Any]) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def test_folder_without_a_manifest(copied: Path) -> None:
    (copied / "manifest.json").unlink()
    with pytest.raises(FolderError, match=r"is not a release \(there is no manifest.json\)"):
        ReleaseFolder(str(copied))


@pytest.mark.parametrize("text", ["", "{", "\x00", "[]", "3"])
def test_manifest_is_none(copied: Path, text: str) -> None:
    (copied / "manifest.json").write_text(text)
    with pytest.raises(FolderError, match=r"manifest.json: is not .*the release is damaged"):
        ReleaseFolder(str(copied))


@pytest.mark.parametrize(
    "change",
    [
        {"spec": None},
        {"spec": {}},
        {"spec": {"format": "3"}},
        {"parts": None},
        {"parts": [{}]},
        {"trees": []},
        {"trees": [None]},
        {"trees": [[]]},
    ],
)
def test_manifest_of_another_form(copied: Path, change: dict[str, Any]) -> None:
    edit(copied, change)
    with pytest.raises(FolderError, match="its manifest cannot be read by this program"):
        ReleaseFolder(str(copied))


@pytest.mark.parametrize("amount", ["1/0", "x", None, []])
def test_a_budget_that_is_no_number(copied: Path, amount: object) -> None:
    spec = json.loads((copied / "manifest.json").read_text())["spec"]
    edit(copied, {"spec": spec | {"budget": amount}})
    with pytest.raises(FolderError, match="its manifest cannot be read by this program"):
        ReleaseFolder(str(copied))


@pytest.mark.parametrize("kind", ["nodes", "cdf"])
def test_damaged_part(workspace: Workspace, copied: Path, kind: str) -> None:
    (path,) = copied.glob(f"{kind}/all-*.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(FolderError, match="it does not match its checksum in the manifest"):
        ReleaseFolder(str(copied)).rows(kind, "all")
    for command in (("query", copied, "cdf", "50", "--tree", "all"), ("report", copied)):
        outcome = workspace.run(*command)
        # A query of the CDF reads the node of the root too, for the fraction.
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.count("\n") == 1 and str(path) in outcome.err


def test_missing_part(workspace: Workspace, copied: Path) -> None:
    (path,) = copied.glob("cdf/all-*.parquet")
    path.unlink()
    outcome = workspace.run("query", copied, "cdf", "50", "--tree", "all")
    assert outcome.code == 2
    assert outcome.err == f"dptrees: {path}: cannot be read: No such file or directory\n"


@pytest.mark.parametrize("name", ["cdf/all-*.parquet", "quantiles.parquet"])
def test_damaged_file_is_fixed_by_a_repair(workspace: Workspace, copied: Path, name: str) -> None:
    (path,) = copied.glob(name)
    before = path.read_bytes()
    path.write_bytes(b"")
    assert workspace.release(None, "--repair").code == 0
    assert path.read_bytes() == before


def test_missing_file_is_reported_and_fixed_by_a_repair(workspace: Workspace, copied: Path) -> None:
    (path,) = copied.glob("cdf/all-*.parquet")
    before = path.read_bytes()
    path.unlink()
    outcome = workspace.release()
    assert (outcome.code, outcome.out) == (2, "")
    assert f"cdf/{path.name} is missing" in outcome.err and "--repair" in outcome.err
    assert workspace.release(None, "--repair").code == 0
    assert path.read_bytes() == before


EDITS: dict[str, dict[str, Any]] = {
    "the words": {"words": "perfect privacy"},
    "the budget": {"epsilon": "1/100"},
    "the unit": {"unit": "person"},
}


@pytest.mark.parametrize("kind", EDITS)
def test_edited_guarantee_is_noticed(workspace: Workspace, copied: Path, kind: str) -> None:
    guarantee = json.loads((copied / "manifest.json").read_text())["guarantee"]
    edit(copied, {"guarantee": guarantee | EDITS[kind]})
    outcome = workspace.run("query", copied, "cdf", "50", "--tree", "all")
    assert (outcome.code, outcome.out) == (2, "")
    assert "its manifest cannot be read by this program: it" in outcome.err
    if kind != "the words":  # another checksum does not help
        manifest = json.loads((copied / "manifest.json").read_text())
        edit(copied, {"checksum": manifest_checksum(manifest)})
        with pytest.raises(FolderError, match="its guarantee is not that of its specification"):
            ReleaseFolder(str(copied))


def test_a_release_of_the_format_before_is_read(copied: Path) -> None:
    """Format 2 had no nonce and no checksum."""
    path = copied / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["spec"]["format"] = 2
    del manifest["nonce"], manifest["checksum"]
    path.write_text(json.dumps(manifest))
    assert ReleaseFolder(str(copied)).release.tree("all").node(0, 0).count > 0


def test_files_beside_the_named_ones_are_not_read(released: Workspace, copied: Path) -> None:
    (path,) = copied.glob("cdf/all-*.parquet")
    shutil.copy(path, path.with_name("all-000000-000001-0000000000000000.parquet"))
    assert ReleaseFolder(str(copied)).rows("cdf", "all").num_rows == 16
