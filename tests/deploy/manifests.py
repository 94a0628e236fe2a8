"""Manifests of Kubernetes, and what is wrong with one: by the schemas of Kubernetes itself, with no
unknown field, and for the operators' kinds by schemas of the fields that are used here."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.deploy.operators import FLINK_DEPLOYMENT, SPARK_APPLICATION

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
KUSTOMIZE = DEPLOY.parent / "build" / "engines" / "bin" / "kustomize"
# The oldest of the versions in use that starts a sidecar before its pod's containers by default,
# and the newest one whose schema is there.
VERSIONS = ("1.29", kubernetes_validate.latest_version())
Manifest = dict[str, Any]


def manifests(path: Path) -> list[Manifest]:
    """The manifests of a file."""
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def manifest_files() -> list[Path]:
    """All files that hold manifests: neither kustomize's own nor a configuration of dptrees."""
    found = sorted(KUBERNETES.rglob("*.yaml"))
    others = {KUBERNETES / "daily" / "daily.yaml"}
    return [path for path in found if not path.name.startswith("kustomiz") and path not in others]


def names(paths: list[Path]) -> list[str]:
    """The paths below deploy/kubernetes."""
    return [path.relative_to(KUBERNETES).as_posix() for path in paths]


def gib(size: str) -> float:
    """Return a size of Kubernetes in GiB.

    >>> gib("512Mi")
    0.5
    """
    return int(size[:-2]) / {"Gi": 1, "Mi": 1024}[size[-2:]]


def kustomizations(kind: str = "Kustomization") -> list[Path]:
    """Folders that kustomize builds; with the kind Component, the parts that several share."""
    found = sorted(KUBERNETES.rglob("kustomization.yaml"))
    return [path.parent for path in found if yaml.safe_load(path.read_text())["kind"] == kind]


def rendered(folder: Path) -> list[Manifest]:
    """The manifests that kustomize makes of a folder; without kustomize the test is skipped."""
    return [each for each in yaml.safe_load_all(_built(folder)) if each]


@cache
def _built(folder: Path) -> str:
    program = str(KUSTOMIZE) if KUSTOMIZE.exists() else shutil.which("kubectl")
    if program is None:
        reason = "no kustomize: make kubernetes"
        assert not os.environ.get("DPTREES_REQUIRE_KUBERNETES"), reason
        pytest.skip(reason)
    command = [program, "build" if program == str(KUSTOMIZE) else "kustomize", str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def manifest(path: str, kind: str) -> Manifest:
    """The one manifest of a kind in a file below deploy/kubernetes."""
    (found,) = (each for each in manifests(KUBERNETES / path) if each["kind"] == kind)
    return found


def faults(value: Manifest) -> list[str]:
    """What is wrong with a manifest; empty where nothing is."""
    kind = value.get("kind")
    own = {"FlinkDeployment": FLINK_DEPLOYMENT, "SparkApplication": SPARK_APPLICATION}.get(
        str(kind)
    )
    if own is None:
        return _faults_of_kubernetes(value)
    found = [
        f"{error.json_path}: {error.message}"
        for error in jsonschema.Draft202012Validator(own).iter_errors(value)
    ]
    for pod in pods(value):
        found += _faults_of_kubernetes(_as_pod(pod))
    return found


def _as_pod(template: Manifest) -> Manifest:
    """A template as a pod: containers that the operator completes have no more than a name."""
    spec = {"containers": [{"name": "completed-by-the-operator"}]} | template.get("spec", {})
    rest = {name: value for name, value in template.items() if name != "spec"}
    return {"apiVersion": "v1", "kind": "Pod", **rest, "spec": spec}


def _faults_of_kubernetes(value: Manifest) -> list[str]:
    found: list[str] = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(value, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            place = ".".join(map(str, error.absolute_path))
            found.append(f"{version}: {place}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError as error:
            found.append(f"{version}: {error.message}")
    return found


def pods(value: Manifest) -> Iterator[Manifest]:
    """The pods of a manifest, or their templates."""
    kind, spec = value["kind"], value.get("spec", {})
    if kind == "Pod":
        yield value
    elif kind == "Deployment":
        yield spec["template"]
    elif kind == "CronJob":
        yield spec["jobTemplate"]["spec"]["template"]
    elif kind == "FlinkDeployment":
        for each in (spec, spec["jobManager"], spec["taskManager"]):
            yield from [each["podTemplate"]] if "podTemplate" in each else []
    elif kind == "SparkApplication":
        yield spec["driver"]["template"]
        yield spec["executor"]["template"]
