"""The command of the CronJob, run here with its configuration, against a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import postgresql
from tests.deploy.days import Days
from tests.deploy.manifests import KUBERNETES, manifest, manifests, pods
from tests.pipelines.ledger.conftest import server  # noqa: F401

TOTAL = [
    *("--dataset", "flights-by-day", "--epsilon", "2", "--delta", "1e-6"),
    *("--unit", "tailnum"),
]


@pytest.fixture
def days(tmp_path: Path, server: postgresql.Server) -> Days:  # noqa: F811
    """With a key and a ledger; the server stands for the one that the URL names."""
    for statement in ("CREATE ROLE dptrees LOGIN", "CREATE DATABASE budgets OWNER dptrees"):
        server.execute(statement)
    key = tmp_path / "release.key"
    made = Days(folder=tmp_path)
    assert made.run(["keygen", str(key)]).returncode == 0
    environment = {
        "DPTREES_KEY": key.read_text(),
        "PGPASSWORD": "of the Secret",
        "PGHOSTADDR": "127.0.0.1",
        "PGPORT": str(server.port),
    }
    made.environment.update(environment)
    url = "postgresql://dptrees@postgresql/budgets"
    opened = made.run(["ledger", "init", url, *TOTAL])
    assert opened.returncode == 0, opened.stderr
    return made


def test_command(days: Days) -> None:
    (container,) = next(pods(manifest("daily/cronjob.yaml", "CronJob")))["spec"]["containers"]
    named = {each["name"] for each in container["env"]}
    assert {"DPTREES_KEY", "PGPASSWORD", "DPTREES_RUN_ID"} <= named
    metrics = days.folder / "metrics"  # a mount of the volume, below the working directory
    metrics.mkdir()
    configuration = days.configure(KUBERNETES / "daily" / "daily.yaml")
    mounted = f"/etc/dptrees/{configuration.name}"
    assert mounted in container["args"]
    arguments = [str(configuration) if each == mounted else each for each in container["args"]]
    days.check_nights(arguments)
    assert "dptrees_run_made" in (metrics / "dptrees-daily.prom").read_text()
    (ledger,) = next(pods(manifest("daily/metrics.yaml", "CronJob")))["spec"]["containers"]
    assert days.run(ledger["args"]).returncode == 0
    assert "dptrees_ledger_left" in (metrics / "dptrees-ledger.prom").read_text()


@pytest.mark.parametrize("folder", ["daily", "daily-on-flink"])
def test_options_are_known(tmp_path: Path, folder: str) -> None:
    """Check the options of the command and of Beam: an unknown one would be the first error."""
    path = {"daily": "cronjob.yaml", "daily-on-flink": "engine.yaml"}[folder]
    (value,) = manifests(KUBERNETES / folder / path)
    (container,) = next(pods(value))["spec"]["containers"]
    # Kubernetes puts the value of a container's variable into its arguments.
    arguments = [each.replace("$(PARALLELISM)", "4") for each in container["args"]]
    ended = Days(folder=tmp_path).run(arguments)
    assert ended.returncode == 2
    assert "/etc/dptrees/daily.yaml: there is no such file" in ended.stderr
