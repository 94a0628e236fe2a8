"""``type: DPTree`` in pipelines of Beam YAML: the release of the command, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from dptrees.pipelines.beam_yaml import DPTree
from dptrees.pipelines.process import UserError
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.run import engine
from dptrees.pipelines.sections.document import ConfigurationError
from tests.pipelines.conftest import PROJECT, Workspace, search_path

RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
PROVIDER = PROJECT / "deploy" / "beam" / "dptrees-provider.yaml"


def run_yaml(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs Beam's own program."""
    return subprocess.run(
        [sys.executable, "-m", "apache_beam.yaml.main", f"--runner={RUNNER}", *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": search_path()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def small_section(workspace: Workspace, output: Path) -> dict[str, Any]:
    """The small release, without an input."""
    section = {name: each for name, each in workspace.settings.items() if name != "input"}
    return section | {"output": str(output)}


def write_pipeline(workspace: Workspace, section: dict[str, Any]) -> str:
    """Write a pipeline that releases the rows, and reads them if the section does not."""
    rows = {"path": str(workspace.rows / "*.parquet")}
    steps: list[Any] = [] if "input" in section else [{"type": "ReadFromParquet", "config": rows}]
    steps.append({"type": "DPTree", "config": section})
    providers = [{"include": str(PROVIDER)}]
    pipeline = {"pipeline": {"type": "chain", "transforms": steps}, "providers": providers}
    path = workspace.folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(pipeline))
    return f"--yaml_pipeline_file={path}"


@pytest.mark.parametrize("input", [False, True], ids=["of a step", "of files"])
def test_the_release_is_that_of_the_command(workspace: Workspace, input: bool) -> None:
    assert workspace.release().code == 0
    output = workspace.folder / "own"
    output.mkdir()
    nonce = (workspace.output / "nonce.json").read_bytes()
    (output / "nonce.json").write_bytes(nonce)  # so that noise can be compared
    section = small_section(workspace, output)
    section |= {"input": workspace.settings["input"]} if input else {}
    done = run_yaml(workspace.folder, write_pipeline(workspace, section))
    assert done.returncode == 0, done.stderr[-2000:]
    for path in output.rglob("*.*"):
        assert path.read_bytes() == (workspace.output / path.relative_to(output)).read_bytes()
    assert (output / "manifest.json").exists()
    assert not any(text in done.stdout + done.stderr for text in workspace.SENTINELS)


def test_a_finished_release_is_refused_or_used(workspace: Workspace) -> None:
    section, found = small_section(workspace, workspace.output), workspace.folder / "found"
    assert workspace.release().code == 0
    done = run_yaml(workspace.folder, write_pipeline(workspace, section))
    assert done.returncode == 1 and "contains the finished release of this plan" in done.stderr
    with beam.Pipeline(RUNNER) as pipeline:
        rows = pipeline | beam.Create([beam.Row(x=1.0, place="north")])
        rows = rows | DPTree(**section, if_exists="use")
        rows | beam.Map(lambda row: found.write_text(row.status))
    assert found.read_text() == "found"


EXPRESSION = """
pipeline:
  type: chain
  transforms:
    - type: Create
      config: {elements: [{a: 1.5, place: north}, {a: 2.5, place: south}]}
    - type: MapToFields
      config:
        language: python
        fields: {x: {expression: "(a + 1).real"TYPE}, place: place}
    - type: DPTree
      config: SECTION
providers:
  - include: PROVIDER
"""


@pytest.mark.parametrize("type", ["", ", output_type: number"])
def test_an_expression_needs_an_output_type(workspace: Workspace, type: str) -> None:
    section = json.dumps(small_section(workspace, workspace.folder / "own"))
    text = EXPRESSION.replace("TYPE", type).replace("SECTION", section)
    path = workspace.folder / "pipeline.yaml"
    path.write_text(text.replace("PROVIDER", str(PROVIDER)))
    done = run_yaml(workspace.folder, f"--yaml_pipeline_file={path}")
    assert (done.returncode == 0) is bool(type), done.stderr[-2000:]
    assert type or "in Beam YAML state its output_type" in done.stderr


def test_a_mistake_is_reported_with_the_sentence_of_the_command(workspace: Workspace) -> None:
    section = small_section(workspace, workspace.folder / "own")
    section["trees"][0]["domain"]["lower"] = 200
    done = run_yaml(workspace.folder, write_pipeline(workspace, section))
    assert done.returncode == 1
    with pytest.raises(ConfigurationError) as raised:
        DPTree(**section)
    *_, last = done.stderr.strip().splitlines()
    assert last.startswith('ValueError: Invalid transform specification at "DPTree"')
    assert last.endswith(str(raised.value)) and "DPTree: trees[0].domain" in str(raised.value)
    assert not (workspace.folder / "own").exists()


def test_example(workspace: Workspace) -> None:
    tails = pa.array(["N1", "N2", None] * 200)
    delays = pa.array([5, None, 61] * 200, pa.int16())
    rows = pa.table({"tailnum": tails, "arr_delay": delays, "distance": [100, 700, 900] * 200})
    pq.write_table(rows, workspace.folder / "flights.parquet")
    variables = {"rows": "flights.parquet", "key": str(workspace.key)}
    example = PROJECT / "examples" / "beam.yaml"
    done = run_yaml(
        workspace.folder,
        f"--yaml_pipeline_file={example}",
        f"--jinja_variables={json.dumps(variables)}",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    folder = workspace.folder / "out" / "flights-beam"
    release = ReleaseFolder(str(folder)).release
    assert [question.name for question in release.plan.questions] == ["arrival_delay"]
    (table,) = workspace.folder.glob("out/flights-beam-told*")
    (row,) = pq.read_table(table).to_pylist()
    assert row["release"] == "flights-beam" and row["manifest"] == str(folder / "manifest.json")
    assert row["status"] == "made"
    assert row["checksum"] == json.loads((folder / "manifest.json").read_text())["checksum"]


def test_what_the_command_refuses_is_refused(workspace: Workspace) -> None:
    section = small_section(workspace, workspace.folder / "own")
    for option, sentence in (
        ("--experiments=enable_data_sampling", "since it shows rows"),
        ("--dataflow_service_options=enable_data_sampling", "since it shows rows"),
        ("--s3_secret_access_key=planted", "--s3_secret_access_key: holds a secret"),
        ("--streaming", "since a release is a batch job"),
    ):
        options = PipelineOptions([f"--runner={RUNNER}", option])
        with pytest.raises(UserError, match=sentence):
            beam.Pipeline(options=options) | beam.Create([beam.Row(x=1.0)]) | DPTree(**section)
    for runner, sentence in (
        ("DaskRunner", "in tests it lost parts of a job"),
        ("InteractiveRunner", "it keeps copies of the exact counts"),
    ):
        pipeline = beam.Pipeline(RUNNER)
        pipeline.options.view_as(StandardOptions).runner = runner
        with pytest.raises(UserError, match=sentence):
            pipeline | DPTree(**section)
    assert not (workspace.folder / "own").exists()


def test_options_of_dataflow_are_those_of_the_pipeline(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google's clients need not be here."""
    monkeypatch.setattr(engine, "create_runner", lambda name: None)
    section = small_section(workspace, workspace.folder / "own")
    needed = ("--project=p", "--region=r", "--temp_location=gs://b/t", "--sdk_container_image=i")
    for given, sentence in (((), ""), (("--update",), "--update: refused")):
        pipeline = beam.Pipeline(RUNNER, options=PipelineOptions([*needed, *given]))
        pipeline.options.view_as(StandardOptions).runner = "DataflowRunner"
        rows = pipeline | beam.Create([beam.Row(x=1.0, place="north")])
        with pytest.raises(UserError, match=sentence) if sentence else nullcontext():
            rows | DPTree(**section)
