"""`dptrees verify`: what it finds, with nothing, with the signer, with the key and the rows."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import signal
from collections.abc import Iterator
from copy import deepcopy
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.release.guarantee import ARITHMETIC_VERSION
from dptrees.dpcore.release.manifest import manifest_checksum
from dptrees.pipelines.check.replay import _Comparison
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.proof.check import CheckFailed, run_checks
from dptrees.pipelines.proof.signature import load_signing_key
from dptrees.pipelines.proof.tables import _certified
from dptrees.pipelines.proof.verified import Verified
from tests.golden.configurations import NONCE as GOLDEN_NONCE
from tests.golden.configurations import write_configuration, write_data
from tests.pipelines.conftest import (
    PROJECT,
    Outcome,
    Workspace,
    edit_manifest,
    put,
    read_files,
    run_python,
    update,
)
from tests.processor import wait_for_work
from tests.transforms.eager import release_table

NAMES = ("manifest", "specification", "guarantee", "sensitivities", "noise", "composition")
NAMES += ("parts", "draw", "files", "tables", "page")
Place = tuple[str | int, ...]


@pytest.fixture(autouse=True, scope="module")
def remembered_widths() -> Iterator[None]:
    """Widths of intervals follow from a plan and a confidence alone, and take most of the time of
    a verification. The widths of uniform trees are computed once in a process; here all are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IrregularMechanism, "widths", lru_cache(IrregularMechanism.widths))
        yield


def check_results(outcome: Outcome) -> dict[str, str]:
    return {line[9:].partition(": ")[0]: line[:9].strip() for line in outcome.out.splitlines()}


def edited(folder: Path, change: Any, *, checksum: bool = True) -> None:
    """Do what an editor of the manifest would: publish a copy without a plan."""
    (folder / "plan.json").unlink(missing_ok=True)
    edit_manifest(folder, change, checksum=checksum)


def replace_part(folder: Path, path: Path, table: pa.Table) -> str:
    """Writes a part anew, with its name and all checksums to suit; returns its new file."""
    data = pa.BufferOutputStream()
    pq.write_table(table, data)
    written = data.getvalue().to_pybytes()
    found = hashlib.sha256(written).hexdigest()
    name = f"{path.name.rsplit('-', 1)[0]}-{found[:16]}.parquet"
    path.unlink()
    path.with_name(name).write_bytes(written)
    kind = path.parent.name

    def renamed(manifest: dict[str, Any]) -> None:
        for part in manifest["parts"]:
            if part["file"] == f"{kind}/{path.name}":
                part |= {"file": f"{kind}/{name}", "sha256": found}

    edited(folder, renamed)
    return f"{kind}/{name}"


def refused(workspace: Workspace, check: str, words: str, *options: object) -> None:
    outcome = workspace.run("verify", workspace.output, *options)
    assert outcome.code == 2
    assert outcome.err.startswith(f"dptrees: {workspace.output}: {check}: "), outcome.err
    assert words in outcome.err and outcome.err.count("\n") == 1
    assert check_results(outcome)[check] == "FAILED"


# A release as it was made


def test_a_release_is_fine(released: Workspace) -> None:
    outcome = released.run("verify", released.output)
    assert (outcome.code, outcome.err) == (0, "")
    assert check_results(outcome) == dict.fromkeys(NAMES, "ok")
    report = json.loads(released.run("verify", released.output, "--json").out)
    assert report["ok"] is True and report["release"] == str(released.output)
    assert [each["check"] for each in report["checks"]] == list(NAMES)
    assert all(each["ok"] is True and each["told"] for each in report["checks"])


def test_failures_for_programs(again: Workspace) -> None:
    edited(again.output, update(extra=1))
    outcome = again.run("verify", again.output, "--json")
    results = {each["check"]: each["ok"] for each in json.loads(outcome.out)["checks"]}
    assert outcome.code == 2 and "manifest: the entry extra does not belong" in outcome.err
    assert results["manifest"] is False and results["guarantee"] is None


def test_nothing_is_written_and_beam_is_not_needed(again: Workspace) -> None:
    """A published copy holds only what the manifest names."""
    for name in ("nonce.json", "record.json", "report.html"):
        (again.output / name).unlink()
    before = {path: path.stat().st_mtime_ns for path in again.folder.rglob("*")}
    program = (
        "import sys; from dptrees.pipelines.cli.command import main; "
        "assert main(['verify', sys.argv[1]]) == 0; "
        "assert 'apache_beam' not in sys.modules"
    )
    run_python(program, again.output, check=True)
    assert {path: path.stat().st_mtime_ns for path in again.folder.rglob("*")} == before


# Planted faults


def weaker_words(manifest: dict[str, Any]) -> None:
    words = manifest["guarantee"]["words"]
    manifest["guarantee"]["words"] = words.replace("epsilon = 1", "epsilon = 0.1")


def halved_everywhere(manifest: dict[str, Any]) -> None:
    """Halve the budget in the specification, the guarantee and the entries of trees."""
    from dptrees.dpcore.release.guarantee import plan_manifest
    from dptrees.dpcore.release.plan import plan_from_spec

    spec = manifest["spec"]
    spec["budget"] = str(Fraction(spec["budget"]) / 2)
    for tree in spec["trees"]:
        tree["budget"] = str(Fraction(tree["budget"]) / 2)
        tree["level_amounts"] = [str(Fraction(each) / 2) for each in tree["level_amounts"]]
    forged = json.loads(json.dumps(plan_manifest(plan_from_spec(spec))))
    manifest |= {name: forged[name] for name in ("guarantee", "trees")}


def other_relation(manifest: dict[str, Any]) -> None:
    manifest["spec"]["neighbors"] = manifest["guarantee"]["neighbors"] = "substitute"


def drop_a_part(manifest: dict[str, Any]) -> None:
    manifest["parts"].pop()


FAULTS: list[tuple[Any, str, str]] = [
    (weaker_words, "guarantee", "guarantee.words does not match the guarantee"),
    (put("guarantee.epsilon", "1/2"), "guarantee", "guarantee.epsilon does not match"),
    (halved_everywhere, "tables", "std_error is not that of"),
    (other_relation, "guarantee", "guarantee.words"),
    (
        put("trees.0.levels.1.noise.scale", "9"),
        "noise",
        "trees[0].levels[1].noise.scale does not follow",
    ),
    (put("spec.budget", "1/2"), "specification", "budgets sum to"),
    (drop_a_part, "parts", "parts are in the manifest; the plan"),
    (put("parts.0.rows", 1), "files", "does not have the number of rows"),
    (update(record=64 * "0"), "draw", "record is not that of"),
    (update(key_id=16 * "0"), "draw", "key_id is not that of"),
    (update(dptrees="new"), "manifest", "is not a version"),
    (put("spec.format", 2), "manifest", "is of format 2"),
]


def test_an_edit_is_found_whose_checksum_is_right(again: Workspace) -> None:
    manifest = again.output / "manifest.json"
    whole = manifest.read_text()
    for change, check, words in FAULTS:
        edited(again.output, change)
        refused(again, check, words)
        manifest.write_text(whole)


def test_an_edit_without_a_checksum(again: Workspace) -> None:
    edited(again.output, weaker_words, checksum=False)
    refused(again, "manifest", "it was edited or damaged: its checksum does not match")


def test_files(again: Workspace) -> None:
    part = next((again.output / "nodes").iterdir())
    stray = again.output / "cdf" / "stray.parquet"
    stray.write_bytes(b"")
    refused(again, "files", "cdf/stray.parquet is there, but is not in the manifest")
    stray.unlink()
    data = part.read_bytes()
    part.write_bytes(data[:-1])
    refused(again, "files", f"nodes/{part.name} does not match its checksum in the manifest")
    part.unlink()
    refused(again, "files", f"nodes/{part.name} is missing")


def test_a_table_that_was_written_anew(again: Workspace) -> None:
    """Labels, or errors made small, with every checksum recomputed."""
    path = again.output / "quantiles.parquet"
    table = pq.read_table(path)
    q = pc.multiply(table["q"], 1.5)
    pq.write_table(table.set_column(table.schema.get_field_index("q"), "q", q), path)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    edited(again.output, lambda manifest: manifest["files"].update({path.name: found}))
    refused(again, "tables", "quantiles.parquet: q is not that of the specification")


# Every scalar of a manifest, one after the other

# What nothing else in a release follows from: none bears on the guarantee. A signature, and a
# replay, cover it.
ELSEWHERE = re.compile(
    r"dptrees|spec\.name|spec\.trees\.\d+\.(weight|weights\..*|objective\..*|confidence|shards"
    r"|chunk_leaves|fanouts\.0|domain\.columns\..*)"
)
KINDS = ("cdf-approximate", "sums", "sparse-codes", "box-dense", "hierarchy-by-rho")


def scalars(value: object, place: Place = ()) -> Iterator[Place]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from scalars(each, (*place, name))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from scalars(each, (*place, index))
    else:
        yield place


def another(value: Any) -> Any:
    """A scalar of the same type that differs, and keeps the form of numbers."""
    if value is None or isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1 if isinstance(value, int) else value * 1.01 + 0.01
    try:
        return str(Fraction(value) * Fraction(101, 100) or 1)
    except ValueError:
        return ("1" if value[0] == "0" else "0") + value[1:]


def edited_in_memory(
    folder: Path, manifest: dict[str, Any], place: Place, value: object
) -> Verified:
    """A release whose manifest has another value at a place, with a checksum to suit."""
    changed = deepcopy(manifest)
    inner: Any = changed
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    changed["checksum"] = manifest_checksum(changed)
    release = Verified(str(folder))
    release.__dict__["manifest"] = changed
    return release


def unnoticed(folder: Path) -> list[str]:
    """The scalars whose change, with a checksum to suit, no check finds."""
    manifest = json.loads((folder / "manifest.json").read_text())
    found = []
    for place in scalars({name: manifest[name] for name in manifest if name != "checksum"}):
        value: Any = manifest
        for step in place:
            value = value[step]
        release = edited_in_memory(folder, manifest, place, another(value))
        checks = [*release.manifest_checks(), *release.file_checks()]
        if all(each.ok for each in run_checks(checks)):
            found.append(".".join(map(str, place)))
    return found


def golden(kind: str) -> Path:
    """The folder of a golden release, made in the working directory."""
    write_data(Path())
    configuration = load_configuration(str(write_configuration(Path(), kind)))
    rows, key = pq.read_table("rows.parquet"), configuration.key.checked()
    nonce = bytes.fromhex(GOLDEN_NONCE)
    release_table(configuration.plan(), rows, key, configuration.output, nonce)
    return Path(configuration.output)


def test_a_universe_that_was_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workspace: Workspace
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = golden("hierarchy")
    (path,) = folder.glob("universe-*.parquet")
    table = pq.read_table(path)
    labels = pc.replace_substring(table["label"], "a", "b").combine_chunks()
    pq.write_table(table.set_column(table.schema.get_field_index("label"), "label", labels), path)
    outcome = workspace.run("verify", folder)
    assert (
        f"specification: spec cannot be planned: ValueError {path.name} does not match its checksum"
    ) in outcome.err
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    edited(folder, lambda manifest: manifest["files"].update({path.name: found}))
    outcome = workspace.run("verify", folder)
    assert outcome.code == 2
    assert f"{path.name} is not the universe that the specification names" in outcome.err


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_any_scalar_is_found(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = golden(kind)
    assert all(each.ok for each in run_checks(Verified(str(folder)).manifest_checks()))
    left = unnoticed(folder)
    assert [place for place in left if not ELSEWHERE.fullmatch(place)] == []
    assert "spec.name" in left  # the list above is not longer than it must be


# Composition


def moved(sigma_squared: int, count: int) -> tuple[tuple[DiscreteGaussian, int], ...]:
    return ((DiscreteGaussian(sigma_squared=Fraction(sigma_squared)), count),)


def test_composition_accepts_the_true_noise_and_rejects_less() -> None:
    rho = Fraction(1)  # says nothing by conversion
    printed = _certified(moved(25, 1), rho, Fraction(1), Fraction(2, 10**8))
    assert "certified delta 1.82934e-08" in printed
    with pytest.raises(CheckFailed, match="has delta"):
        _certified(moved(18, 1), rho, Fraction(1), Fraction(2, 10**8))
    with pytest.raises(CheckFailed, match="has delta"):
        _certified(moved(25, 2), rho, Fraction(1), Fraction(2, 10**8))
    with pytest.raises(CheckFailed, match="does not convert"):
        _certified(None, rho, Fraction(1), Fraction(2, 10**8))


def test_dp_accounting_is_consulted_and_can_object(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dp_accounting")
    laws = (*moved(25, 2), (DiscreteLaplace(scale=Fraction(40)), 1))
    printed = _certified(laws, Fraction(1), Fraction(1), Fraction(1, 10**4))
    certified, second = map(float, re.findall(r"(?:delta|accounting:) ([0-9.e-]+)", printed))
    assert second <= certified * 1.001 and second > certified * 0.9
    monkeypatch.setattr("dptrees.pipelines.proof.tables.certified_delta", lambda *_: 0.0)
    with pytest.raises(CheckFailed, match="dp-accounting computes delta"):
        _certified(laws, Fraction(1), Fraction(1), Fraction(1, 10**6))


# With the signer


@pytest.fixture
def signed(again: Workspace) -> Workspace:
    path = again.folder / "s.pem"
    assert again.run("keygen", "--signing", path).code == 0
    manifest = (again.output / "manifest.json").read_bytes()
    signature = load_signing_key(f"file:{path}").sign(manifest)
    (again.output / "manifest.sig").write_bytes(signature)
    return again


def test_a_signature(signed: Workspace) -> None:
    signer = signed.folder / "s.pem.pub"
    outcome = signed.run("verify", signed.output, "--signer", signer)
    assert outcome.code == 0 and check_results(outcome)["signature"] == "ok"
    # What nothing else notices, the signature does.
    edited(signed.output, put("spec.trees.0.weight", "2"))
    assert signed.run("verify", signed.output).code == 0
    refused(signed, "signature", f"manifest.sig is not that of {signer} and", "--signer", signer)


def test_another_signer_or_none(signed: Workspace) -> None:
    assert signed.run("keygen", "--signing", signed.folder / "t.pem").code == 0
    other = signed.folder / "t.pem.pub"
    refused(signed, "signature", f"manifest.sig is not that of {other}", "--signer", other)
    (signed.output / "manifest.sig").write_bytes(b"short")
    refused(signed, "signature", f"manifest.sig is not that of {other}", "--signer", other)
    (signed.output / "manifest.sig").unlink()
    refused(signed, "signature", "there is no manifest.sig", "--signer", other)
    for name in ("none", "s.pem", "release.key"):  # which are no public keys
        outcome = signed.run("verify", signed.output, "--signer", signed.folder / name)
        assert (outcome.code, outcome.out) == (2, "") and "--signer: " in outcome.err


def test_an_edited_release_is_not_signed_later(again: Workspace) -> None:
    path = again.folder / "s.pem"
    assert again.run("keygen", "--signing", path).code == 0
    edited(again.output, weaker_words)
    outcome = again.release(update(signing_key=str(path)))
    assert outcome.code == 2 and "not signed: guarantee: " in outcome.err
    assert not (again.output / "manifest.sig").exists()


# With the key and the rows


def test_a_replay_is_the_release_bit_for_bit(released: Workspace) -> None:
    before = sorted(released.folder.rglob("*"))
    for options in (
        ("--data", released.configure()),
        ("--key", released.key, "--data", released.configure()),
        ("--key", f"file:{released.key}", "--data", *map(released.file, range(3))),
        ("--key", released.key, "--data", released.rows / "*.parquet"),
    ):
        outcome = released.run("verify", released.output, *options)
        assert (outcome.code, outcome.err) == (0, ""), outcome
        assert check_results(outcome)["replay"] == "ok"
        assert check_results(outcome).get("key") == ("ok" if options[0] == "--key" else None)
    assert sorted(released.folder.rglob("*")) == before


def test_a_replay_of_other_rows(again: Workspace) -> None:
    table = pq.read_table(again.file(0))
    pq.write_table(table.slice(1), again.file(0))
    refused(again, "replay", "the release was not made from these", "--data", again.configure())


def test_a_replay_finds_what_the_manifest_alone_cannot_report(again: Workspace) -> None:
    edited(again.output, put("spec.trees.0.weight", "2"))
    again.succeed("report", again.output)
    again.succeed("verify", again.output)
    refused(again, "replay", "spec.trees[0].weight differs", "--data", again.configure())


def test_a_replay_finds_estimates_that_were_edited(again: Workspace) -> None:
    path = next((again.output / "nodes").iterdir())
    table = pq.read_table(path)
    column = table.schema.get_field_index("estimate")
    estimate = pa.chunked_array([pc.add(table["estimate"], 1.0).combine_chunks()])
    file = replace_part(again.output, path, table.set_column(column, "estimate", estimate))
    again.succeed("report", again.output)
    again.succeed("verify", again.output)
    refused(again, "replay", f"{file} differs when", "--data", again.configure())


def test_a_release_under_a_retired_key(again: Workspace) -> None:
    again.succeed("keygen", again.key, "--rotate")
    again.succeed("verify", again.output, "--data", again.configure())
    again.key.unlink()
    again.succeed("keygen", again.key)
    refused(again, "key", "does not hold the key", "--key", again.key)


def test_mistakes(released: Workspace) -> None:
    configuration = released.configure()
    for options, words in (
        (("--data", released.file(0)), "--data: files of rows need --key"),
        (("--data", configuration, "x"), "--data: takes one configuration, or files of rows"),
        (("--set", "a=1"), "--set: goes with --data CONFIG"),
        (("--key", "none.key"), "key: none.key does not exist"),
        (("--data", "none.yaml"), "none.yaml: there is no such file"),
        (("--key", released.key, "--data", "none-*"), "no file matches none-*"),
    ):
        outcome = released.run("verify", released.output, *options)
        assert outcome.code == 2 and words in outcome.err and outcome.err.count("\n") == 1, outcome


def test_a_replay_with_parameters(workspace: Workspace) -> None:
    def change(settings: dict[str, Any]) -> None:
        settings["release"] = "small-${run}"
        settings["input"]["path"] = settings["input"]["path"].replace("*", "${run}")

    workspace.make(change, "--set", "run=part-1")
    data = ("--data", workspace.configure(change), "--set")
    workspace.succeed("verify", workspace.output, *data, "run=part-1")
    refused(workspace, "replay", "describes another release: spec.name", *data, "run=part-0")


HEARD = """
import os, sys, tempfile
tempfile.gettempdir()  # which tries whether it can write there
changes = []
def heard(event, arguments):
    path = str(arguments[0]) if arguments else ""
    if path == os.devnull or "__pycache__" in path:
        return
    writes = event == "open" and isinstance(arguments[2], int)
    if writes and arguments[2] & (os.O_WRONLY | os.O_RDWR) or event in CHANGES:
        changes.append((event, path))
CHANGES = {"os.mkdir", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.remove"}
from dptrees.pipelines.cli.command import main
import dptrees.pipelines.check.replay
sys.addaudithook(heard)
code = main(["verify", sys.argv[1], "--data", sys.argv[2]])
print(code, changes, file=sys.stderr)
"""


def test_a_replay_writes_nothing(released: Workspace) -> None:
    done = run_python(HEARD, released.output, released.configure())
    assert done.stderr.splitlines()[-1] == "0 []"


def test_a_killed_replay_leaves_nothing(
    again: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    configuration = again.configure()
    before = sorted(again.folder.rglob("*"))
    process = again.start("verify", again.output, "--data", configuration)
    wait_for_work(process, 2.0)  # mostly of imports
    process.send_signal(signal.SIGKILL)
    process.communicate()
    # An empty folder is Beam's, which removes it at once. Python's tempfile writes "blat" to try a
    # folder, and removes that file at once.
    assert set(read_files(temporary).values()) <= {b"", b"blat"}
    shutil.rmtree(temporary)
    assert sorted(again.folder.rglob("*")) == [each for each in before if each != temporary]


def test_every_check_is_documented() -> None:
    page = (PROJECT / "docs" / "verify.md").read_text()
    for name in (*NAMES, "signature", "key", "replay"):
        assert f"\n| `{name}` |" in page, name


WRONG: tuple[object, ...] = (None, [], {}, "", "x", -1, 1.5, True, ["a"], "1/0")


def test_no_manifest_breaks_the_program(again: Workspace) -> None:
    """Every entry down to a depth of four, replaced by another, is reported in a sentence."""
    manifest = again.manifest()
    places = {
        place[:depth] for place in scalars(manifest) for depth in range(1, min(len(place), 4))
    }
    for place in places - {("checksum",)}:
        for wrong in WRONG:
            release = edited_in_memory(again.output, manifest, place, wrong)
            assert not all(each.ok for each in run_checks(release.manifest_checks())), place


# --- releases whose floats depended on the processor are made again to a relative 1e-9 ---


TABLE = pa.table(
    {
        "label": ["a", "b", "c"],
        "count": pa.array([3, 0, 12], pa.int64()),
        "estimate": pa.array([2.75, -1e-13, None], pa.float64()),
    }
)


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def is_near(folder: Path, again: pa.Table, *, arithmetic: int | None = None) -> bool:
    (folder / "nodes").mkdir(parents=True)
    (folder / "nodes" / "one.parquet").write_bytes(parquet(TABLE))
    comparison = _Comparison(
        manifest={} if arithmetic is None else {"arithmetic": arithmetic},
        folder=str(folder),
        again={"nodes/other.parquet": parquet(again)},
    )
    return comparison._is_near("nodes/one.parquet", "nodes/other.parquet")


def replaced(name: str, values: list[object]) -> pa.Table:
    place = TABLE.column_names.index(name)
    return TABLE.set_column(place, name, pa.array(values, TABLE.column(name).type))


def test_last_digits_of_floats_may_differ(tmp_path: Path) -> None:
    assert is_near(tmp_path, replaced("estimate", [2.7500000000000004, 1e-13, None]))


def test_they_may_not_where_the_arithmetic_is_the_same_everywhere(tmp_path: Path) -> None:
    again = replaced("estimate", [2.7500000000000004, -1e-13, None])
    assert not is_near(tmp_path, again, arithmetic=ARITHMETIC_VERSION)


def test_what_differs_more_is_found(tmp_path: Path) -> None:
    for place, again in enumerate(
        (
            replaced("estimate", [2.75 * (1 + 1e-8), -1e-13, None]),
            replaced("estimate", [2.75, -1e-13, 0.0]),
            replaced("count", [3, 1, 12]),
            replaced("label", ["a", "b", "d"]),
            TABLE.slice(0, 2),
            TABLE.drop_columns(["label"]),
            TABLE.set_column(1, "count", pa.array([3.0, 0.0, 12.0])),
        )
    ):
        assert not is_near(tmp_path / str(place), again)
