"""Every file below deploy/ is in this table, with the tests that build, run or check it."""

from __future__ import annotations

import subprocess
from fnmatch import fnmatch

from tests.deploy.manifests import DEPLOY

PROJECT = DEPLOY.parent

# Patterns of paths below deploy/, and the tests that cover them: a line each.
COVERED: dict[str, tuple[str, ...]] = {
    "airflow/*": ("tests/deploy/test_airflow.py",),
    "beam/*": ("tests/pipelines/beam_yaml/test_transform.py",),
    "cluster/*": ("tests/engines/servers.py", "tests/engines/test_start.py"),
    "container/Dockerfile": ("tests/container/test_dockerfile.py",),
    "container/*.sh": ("tests/container/test_images.py",),
    "container/licences.*": ("tests/container/test_licences.py",),
    "container/locks/*": ("tests/container/test_locks.py",),
    "container/divide_lock.py": ("tests/container/test_divide_lock.py",),
    "container/pin.py": ("tests/deploy/test_sizes.py",),
    "container/slim.py": ("tests/container/test_slim.py",),
    "dataflow/*": ("tests/dataflow/test_template.py",),
    "flink/*": ("tests/engines/servers.py",),
    "prometheus/*": ("tests/pipelines/operations/test_alerts.py",),
    "spark/*": ("tests/engines/servers.py",),
    "kubernetes/job-jar/spark/pom.xml": ("tests/deploy/test_job_jar.py",),
    "kubernetes/job-jar/flink/pom.xml": ("tests/deploy/test_job_jar.py",),
    "kubernetes/base/*": ("tests/deploy/test_kubernetes.py",),
    "kubernetes/session/*": (
        "tests/deploy/test_kubernetes.py",
        "tests/deploy/test_job_server.py",
        "tests/deploy/test_probes.py",
    ),
    "kubernetes/application/*": ("tests/deploy/test_kubernetes.py", "tests/deploy/test_flink.py"),
    "kubernetes/spark/*": ("tests/deploy/test_kubernetes.py",),
    "kubernetes/images/*": ("tests/deploy/test_sizes.py",),
    "kubernetes/overlays/*": ("tests/deploy/test_kubernetes.py", "tests/deploy/test_sizes.py"),
    "kubernetes/sizes/*": ("tests/deploy/test_sizes.py",),
    "kubernetes/daily/metrics.yaml": (
        "tests/deploy/test_kubernetes.py",
        "tests/deploy/test_daily.py",
    ),
    "kubernetes/daily/*": ("tests/deploy/test_kubernetes.py", "tests/deploy/test_daily.py"),
    "kubernetes/daily-on-flink/*": (
        "tests/deploy/test_kubernetes.py",
        "tests/deploy/test_daily.py",
    ),
    "systemd/*": ("tests/deploy/test_systemd.py",),
}


def test_every_file_is_covered() -> None:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "deploy"]
    known = subprocess.run(listed, cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    paths = [line.removeprefix("deploy/") for line in known.splitlines()]
    paths = [path for path in paths if (DEPLOY / path).exists()]
    assert paths
    assert [path for path in paths if not any(fnmatch(path, each) for each in COVERED)] == []
    # And nothing is listed that is gone.
    assert [each for each in COVERED if not any(fnmatch(path, each) for path in paths)] == []
    for tests in COVERED.values():
        assert [test for test in tests if not (PROJECT / test).is_file()] == []
