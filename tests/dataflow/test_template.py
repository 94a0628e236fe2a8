"""The Flex template: its metadata as Google's API has it, its entry as its launcher starts it."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from dptrees.pipelines.run.engine import engine_options
from tests import google_cloud
from tests.google_cloud import PROJECT
from tests.transforms.conftest import key, key_file, rows  # noqa: F401
from tests.transforms.test_object_store import parquet, settings

STARTED = """
import runpy, sys

del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
FOLDER = PROJECT / "deploy" / "dataflow"
METADATA = json.loads((FOLDER / "metadata.json").read_text(encoding="utf-8"))
PARAMETERS = {each["name"]: each for each in METADATA["parameters"]}
needs_google = google_cloud.needed()
needs_server = google_cloud.needed(server=True)


@pytest.fixture
def entry() -> ModuleType:
    """main.py, as a module."""
    spec = importlib.util.spec_from_file_location("template_main", FOLDER / "main.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_google
def test_metadata_is_as_the_api_has_it() -> None:
    from google.cloud.dataflow_v1beta3 import TemplateMetadata

    made = TemplateMetadata.from_json(json.dumps(METADATA), ignore_unknown_fields=False)
    assert [each.name for each in made.parameters] == list(PARAMETERS)
    assert not made.streaming
    for each in made.parameters:
        assert each.label and each.help_text and each.regexes, each.name


@needs_google
def test_the_specification_is_as_the_api_has_it() -> None:
    from google.cloud.dataflow_v1beta3 import ContainerSpec, SDKInfo

    made = subprocess.run(
        [sys.executable, str(FOLDER / "spec.py"), "registry/dptrees-template:1"],
        capture_output=True,
        text=True,
        check=True,
    )
    spec = ContainerSpec.from_json(made.stdout, ignore_unknown_fields=False)
    assert spec.image == "registry/dptrees-template:1"
    assert spec.sdk_info.language == SDKInfo.Language.PYTHON
    assert len(spec.metadata.parameters) == len(PARAMETERS)


def test_every_parameter_is_taken(entry) -> None:
    own = {action.dest for action in entry.parser()._actions} & set(PARAMETERS)
    assert own == {"config", "set"}
    needed = {each["name"] for each in METADATA["parameters"] if not each.get("isOptional")}
    assert needed == {"config", "sdk_container_image"}
    values = {"sdk_container_image": "a/b:1", "number_of_worker_harness_threads": "2"}
    assert values.keys() == PARAMETERS.keys() - own
    engine_options([f"--{name}={value}" for name, value in values.items()])


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        (
            "config",
            ["gs://bucket/release.yaml", "gs://a-b.c/x/y z.yml"],
            ["/tmp/release.yaml", "gs://bucket/", "gs://bucket/x.json", "gs://B/x.yaml"],
        ),
        ("set", ["date=2026-11-21", "a=1;b=", "a-b=x=y"], ["date", "=1", "a=1;", "a=1;b", "1=a"]),
        (
            "sdk_container_image",
            ["europe-docker.pkg.dev/p/images/worker:1.0", "h:5000/a@sha256:" + "0" * 64],
            ["worker", "h/worker", "h/worker:", "h/worker@sha256:12"],
        ),
        ("number_of_worker_harness_threads", ["1", "12"], ["0", "-1", "x", "1000"]),
    ],
)
def test_regexes(name, right, wrong) -> None:
    (regex,) = PARAMETERS[name]["regexes"]
    assert all(re.fullmatch(regex, each) for each in right)
    assert not any(re.fullmatch(regex, each) for each in wrong)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A bucket of a server of Cloud Storage."""
    with google_cloud.storage() as storage:
        storage.reach(monkeypatch)
        yield storage.new_bucket("template")


def launched(*argv: str) -> "subprocess.CompletedProcess[str]":
    """The entry in a process of its own, as the launcher starts it."""
    program = google_cloud.HERE_ONLY + google_cloud.ONE_BY_ONE + STARTED
    return subprocess.run(
        [sys.executable, "-c", program, str(FOLDER / "main.py"), *argv],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@needs_server
def test_the_entry_as_the_launcher_starts_it(bucket, rows, key_file) -> None:  # noqa: F811
    root = f"gs://{bucket.name}"
    bucket.blob("rows/2026-11-21.parquet").upload_from_string(parquet(rows))
    chosen = settings(f"{root}/rows/${{date}}.parquet", f"{root}/out-${{date}}", key_file)
    chosen["parameters"] = {"date": {"type": "date"}}
    bucket.blob("configs/release.yaml").upload_from_string(yaml.safe_dump(chosen))
    given = (f"--config={root}/configs/release.yaml", "--set=date=2026-11-21")
    made = launched(*given, "--runner=DirectRunner", "--project=test")
    assert made.returncode == 0, made.stderr
    names = {each.name for each in bucket.list_blobs(prefix="out-2026-11-21/")}
    assert {"out-2026-11-21/manifest.json", "out-2026-11-21/report.html"} <= names

    # With Dataflow's runner, which is the entry's own choice, it must be given what that needs.
    made = launched(*given, "--project=test")
    assert made.returncode == 2 and made.stderr == (
        "dptrees: --region: is missing; Dataflow needs it, as --region=europe-west1\n"
    )
    made = launched(f"--config={root}/none.yaml", "--project=test")
    assert made.returncode == 2
    assert made.stderr.startswith(f"dptrees: {root}/none.yaml cannot be read: ")
    assert len(made.stderr.splitlines()) == 1


def test_the_image_has_what_the_launcher_needs() -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    steps = [line for line in text.splitlines() if line and not line.startswith("#")]
    program = "/opt/google/dataflow/python_template_launcher"
    assert f'ENTRYPOINT ["{program}"]' in steps
    assert f"COPY --from=starter {program} {program}" in steps
    (copied,) = (line for line in steps if line.startswith("COPY ") and "--from=" not in line)
    source, target = copied.split()[1:]
    assert (FOLDER / source).is_file()
    assert f"FLEX_TEMPLATE_PYTHON_PY_FILE={target}" in text


def test_folder_is_whole() -> None:
    names = {path.name for path in Path(FOLDER).iterdir() if path.is_file()}
    assert names == {"Dockerfile", "main.py", "metadata.json", "spec.py"}
