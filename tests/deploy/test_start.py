"""What `make start` gives its processes, and says; tests/engines/test_start.py runs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.cluster.flink import FlinkCluster
from deploy.cluster.processes import PROJECT, Servers
from deploy.cluster.start import USUAL, WARNING, environment, told


def test_no_secrets_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DPTREES_KEY", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "ANY"):
        monkeypatch.setenv(name, "planted-secret")
    given = environment(tmp_path)
    assert "planted-secret" not in given.values()
    assert given["PATH"].endswith(os.environ["PATH"]) and str(PROJECT) in given["PYTHONPATH"]


def test_says_who_must_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "grpc-context-1.0.jar").touch()  # the engines' jars are not fetched yet
    monkeypatch.setattr(FlinkCluster, "lib", tmp_path)
    cluster = FlinkCluster(servers=Servers(tmp_path, {}), ports=USUAL, workers=1)
    warning = "\n".join(WARNING)
    assert warning in told(cluster)
    assert warning in (PROJECT / "docs" / "deploy" / "flink.md").read_text(encoding="utf-8")
