"""The example of docs/transform.md: what it leaves is a release to all other commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pytest

import dptrees
from dptrees.transforms.beam.release import ReleaseTrees
from dptrees.transforms.errors import InputError
from dptrees.transforms.keys import KeyReference
from tests.pipelines.conftest import PROJECT, Workspace, both, put, search_path
from tests.pipelines.run.test_planned_once import contents

EXAMPLES = re.compile(r"<!-- example: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)


def written_examples(page: Path, folder: Path) -> list[str]:
    """Write the examples of a page into a folder; return their names."""
    found = dict(EXAMPLES.findall(page.read_text()))
    for name, text in found.items():
        (folder / name).write_text(text)
    return list(found)


def test_a_plan_without_its_keys_is_refused(workspace: Workspace) -> None:
    """Refuse a plan whose keys are selected from the rows: placeholders for them must not be
    released."""

    by = {"column": "place", "type": "text", "keys": "private"}
    private = both(put("privacy.delta", 1e-6), put("trees.1.group_by", by))
    plan = dptrees.load(workspace.configure(private))
    output = workspace.folder / "own"
    key = KeyReference(reference=f"file:{workspace.key}")
    with pytest.raises(InputError, match="the keys of places must first be selected"):
        (
            beam.Pipeline("apache_beam.runners.portability.fn_api_runner.FnApiRunner")
            | beam.Create(workspace.values().to_batches())
            | ReleaseTrees(plan, key=key, output=str(output))
        )
    assert not output.exists()


def test_example(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = workspace.folder
    assert written_examples(PROJECT / "docs" / "transform.md", folder) == [
        "visits.yaml",
        "visits.py",
    ]
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", search_path())
    done = subprocess.run(
        [sys.executable, "visits.py"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    workspace.succeed("query", "out/visits", "cdf", "60", "--tree", "minutes")
    workspace.succeed("verify", "out/visits")
    assert workspace.run("report", "out/visits").out == "out/visits/report.html\n"


class Visit(NamedTuple):
    minutes: float
    ward: str


def test_selected_fields_of_named_tuples(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`beam.Select` of NamedTuples needs no schema; with one the release is the same."""
    written_examples(PROJECT / "docs" / "transform.md", workspace.folder)
    monkeypatch.chdir(workspace.folder)
    plan = dptrees.load("visits.yaml")
    key = KeyReference(reference=f"file:{workspace.key}")
    schema = pa.schema({"minutes": pa.float64(), "ward": pa.string()})

    def release(name: str, **given: Any) -> dict[str, bytes]:
        with beam.Pipeline("apache_beam.runners.portability.fn_api_runner.FnApiRunner") as pipeline:
            visits = [Visit(35.0, "north"), Visit(12.5, "south")] * 50
            rows = pipeline | beam.Create(visits).with_output_types(Visit)
            selected = rows | beam.Select("minutes", "ward")
            output = f"out/{name}"
            selected | ReleaseTrees(plan, key=key, output=output, nonce=bytes(16), **given)
        return contents(workspace.folder / "out" / name)

    assert release("selected") == release("declared", schema=schema)
    assert workspace.run("query", "out/selected", "cdf", 60, "--tree", "minutes").code == 0
