"""A release as one jar, run by clusters that know nothing of it or of Beam: the same bytes."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.transforms.folder.names import INPUT_LIST_NAMES
from tests.deploy.manifests import manifest
from tests.deploy.plain_cluster import (
    ENGINES,
    PlainCluster,
    parallelism,
    plain,
    start_flink,
)
from tests.engines.conftest import (  # noqa: F401
    SECRET,
    Workspace,
    make_workspace,
    once,
    release_files,
    undisturbed,
)
from tests.engines.servers import engine

pytestmark = pytest.mark.engines
RUNNERS = {"flink": "FlinkRunner", "spark": "SparkRunner"}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """With rows, a key and a configuration."""
    (tmp_path / "local").mkdir()
    with engine("local", tmp_path / "local") as started:
        return make_workspace(tmp_path, started)


@pytest.fixture(params=list(RUNNERS))
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PlainCluster]:
    """Each engine, its jars alone."""
    with plain(request.param, tmp_path / "cluster") as made:
        yield made


def run_jar(cluster: PlainCluster, jar: Path) -> str:
    """Runs a job jar as a person would; returns the end of what is printed."""
    if cluster.engine == "flink":
        rest = start_flink(cluster)
        entry = manifest("application/flink.yaml", "FlinkDeployment")["spec"]["job"]["entryClass"]
        command = cluster.java("org.apache.flink.client.cli.CliFrontend", "run", "-c", entry)
        ended = cluster.run([*command, str(jar)], FLINK_CONF_DIR=str(cluster.folder / "conf"))
        # The jar names none, so the job has that of the cluster.
        assert parallelism(rest) == {2}
    else:
        entry = manifest("spark/application.yaml", "SparkApplication")["spec"]["mainClass"]
        submit = ("org.apache.spark.deploy.SparkSubmit", "--master=local[2,4]", "--class", entry)
        ended = cluster.run([*cluster.java(*submit, memory="1g"), str(jar)])
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout + ended.stderr


def test_jar(
    cluster: PlainCluster,
    workspace: Workspace,
    undisturbed: dict[str, bytes],  # noqa: F811
    tmp_path: Path,
) -> None:
    jar = tmp_path / "job.jar"
    options = (
        f"--runner={RUNNERS[cluster.engine]}",
        f"--{cluster.engine}_job_server_jar={ENGINES / f'{cluster.engine}-job' / 'job-server.jar'}",
        f"--output_executable_path={jar}",
        "--environment_type=EXTERNAL",
        f"--environment_config=localhost:{cluster.start_pool()}",
        "--environment_cache_millis=30000",
    )
    assert workspace.finish(workspace.start(options)) == 0, workspace.log()
    assert "contains the job, which has not run" in workspace.log()
    assert "manifest.json" not in release_files(workspace.output)
    _check_holds_no_key(jar)
    run_jar(cluster, jar)
    # No launcher is there to delete the list of the input's files, which the job read.
    made = release_files(workspace.output)
    lists = {name for name in made if INPUT_LIST_NAMES.fullmatch(name)}
    assert len(lists) == 1
    assert {name: data for name, data in made.items() if name not in lists} == undisturbed
    # The same command, whatever its engine, finds what the cluster made, clears up and writes the
    # page.
    assert workspace.finish(workspace.start(())) == 0, workspace.log()
    assert "no rows were read" in workspace.log()
    assert (workspace.output / "report.html").exists()
    assert release_files(workspace.output) == undisturbed


def _check_holds_no_key(jar: Path) -> None:
    """The job within the jar names the key's place alone."""
    with zipfile.ZipFile(jar) as files:
        names = [name for name in files.namelist() if name.startswith("BEAM-PIPELINE/")]
        assert any(name.endswith("pipeline.json") for name in names)
        for name in names:
            for form in (SECRET, SECRET.hex().encode(), ReleaseKey(SECRET).to_text().encode()):
                assert form.strip() not in files.read(name)
