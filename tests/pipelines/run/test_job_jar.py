"""Where no job can be written as a jar; tests/deploy/test_job_jar.py writes and runs some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.conftest import Workspace


def test_refused(workspace: Workspace, tmp_path: Path) -> None:
    jar = f"--output_executable_path={tmp_path}/job.jar"
    for options, sentence in (
        ([jar], "needs --runner=FlinkRunner or SparkRunner"),
        ([jar, "--runner=PrismRunner"], "needs --runner=FlinkRunner or SparkRunner"),
        ([jar, "--runner=FlinkRunner", "--repair"], "cannot be used with --repair"),
        (
            [f"--output_executable_path={tmp_path}/absent/job.jar", "--runner=FlinkRunner"],
            "there is no such folder",
        ),
    ):
        outcome = workspace.run("release", workspace.configure(), *options)
        assert outcome.code == 2 and sentence in outcome.err
    assert not workspace.output.exists()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"format": "postgresql", "table": "x"}, "the table x of postgresql"),
        ({"format": "adbc", "driver": "sqlite", "query": "SELECT 1"}, "the query of sqlite"),
    ],
    ids=["postgresql", "adbc"],
)
def test_a_state_that_the_command_holds(
    workspace: Workspace, tmp_path: Path, given: dict[str, str], name: str
) -> None:
    def change(settings: dict[str, Any]) -> None:
        settings["input"] = given | {"connection": "env:NO_URL"}

    jar = f"--output_executable_path={tmp_path}/job.jar"
    outcome = workspace.run("release", workspace.configure(change), "--runner=FlinkRunner", jar)
    assert outcome.code == 2
    assert outcome.err.endswith(
        f"input: the state of {name} lasts as long as this command, and the job runs without it; "
        "write it to files\n"
    )
    assert not workspace.output.exists()
