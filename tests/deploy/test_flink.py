"""The configuration of Flink in the manifests, read by Flink's own classes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.manifests import KUBERNETES, rendered
from tests.deploy.plain_cluster import ENGINES, PROJECT

pytestmark = pytest.mark.engines
PROGRAM = Path(__file__).with_name("FlinkOptions.java")


def read(name: str, **changed: str) -> list[str]:
    """What Flink says of the configuration of a manifest."""
    fetched = ENGINES / "flink" / "fetched"
    if not fetched.exists() or shutil.which("java") is None:
        reason = f"no {fetched.relative_to(PROJECT)}: make engines"
        assert not os.environ.get("DPTREES_REQUIRE_ENGINES"), reason
        pytest.skip(reason)
    made = rendered(KUBERNETES / name)
    (spec,) = (each["spec"] for each in made if each["kind"] == "FlinkDeployment")
    settings = spec["flinkConfiguration"] | changed
    memory = [spec[role]["resource"]["memory"] for role in ("jobManager", "taskManager")]
    given = [f"{key}={value}" for key, value in settings.items()]
    command = ["java", "-cp", f"{ENGINES}/flink/lib/*", str(PROGRAM), *memory, *given]
    ended = subprocess.run(command, capture_output=True, text=True)
    return (ended.stdout if ended.returncode == 0 else ended.stderr).splitlines()


@pytest.mark.parametrize("name", ["session", "application", "overlays/large/application"])
def test_configuration(name: str) -> None:
    """Every key is one of Flink's, and the heaps that it computes are enough for a job of Beam."""
    found = dict(line.split() for line in read(name))
    assert found.keys() == {"jobmanager", "taskmanager"}
    # Of deploy/flink/config.yaml and of its job manager, with which the engines' tests run.
    assert int(found["taskmanager"]) >= 400
    assert int(found["jobmanager"]) >= 512


def test_planted_faults_are_found() -> None:
    assert "unknown taskmanager.memory.managed.sise" in read(
        "session", **{"taskmanager.memory.managed.sise": "1m"}
    )
    more = read("session", **{"taskmanager.memory.managed.size": "20g"})
    assert any("IllegalConfigurationException" in line for line in more)
