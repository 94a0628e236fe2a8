"""What commands must not import: what they have no use for takes longer than they do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.pipelines.conftest import Workspace, search_path

# A run of a command in its own process, which ends with the names of all modules.
LISTED = """
import sys
from pipelines.command import main
assert main(sys.argv[1:]) == 0
print("modules", *sys.modules, file=sys.stderr)
"""
ENGINES = {"apache_beam", "sqlalchemy", "alembic", "matplotlib", "scipy.stats"}
# Packages of kinds of trees that the release does not have, by a module of each.
OTHER_KINDS = {
    *("dpcore.sparse.question", "dpcore.hypercube.question", "dpcore.table.question"),
    *("dpcore.distinct.question", "dpcore.mean.question", "dpcore.exponential.released"),
    *("dpcore.factorised.mechanism", "dpcore.levels.irregular"),
}
# The same for a plan, whose tree may be measured by any mechanism of an ordered domain.
OTHER_SECTIONS = {
    *("pipelines.sparse.section", "pipelines.hypercube.section", "pipelines.table.section"),
    *("pipelines.distinct.section", "pipelines.hierarchy.section", "pipelines.hierarchy.lines"),
    *("pipelines.mean.lines", "pipelines.exponential.lines", "pipelines.mechanisms.irregular"),
    *("pipelines.mechanisms.thresholds", "pipelines.mechanisms.factorised"),
    *("dpcore.sparse.question", "dpcore.hypercube.question", "dpcore.table.question"),
    *("dpcore.distinct.question", "dpcore.hierarchy.question", "dpcore.hierarchy.domain"),
    *("dpcore.levels.irregular", "dpcore.levels.thresholds", "dpcore.adaptive.hierarchy_planner"),
    *("dpcore.irregular.plan", "dpcore.thresholds.plan"),
}
SERIES = {"dpcore.series.question", "pipelines.series.series_folder"}
CONFIGURATION = {"pydantic", "yaml", "jsonschema", "pipelines.configuration", "pipelines.kinds"}
PAGES = {"pipelines.ordered.page", "pipelines.hypercube.page", "pipelines.table.page"}
# What reads released folders.
FOLDERS = {"pyarrow.parquet", "pipelines.release_folder"}


@pytest.mark.parametrize(
    ("command", "kept_out"),
    [
        (
            "query {output} cdf 0 15 --tree all",
            ENGINES | OTHER_KINDS | SERIES | CONFIGURATION | PAGES,
        ),
        ("plan {config}", ENGINES | OTHER_SECTIONS | SERIES | FOLDERS | PAGES),
    ],
    ids=["query", "plan"],
)
def test_a_command_imports_nothing_that_it_has_no_use_for(
    released: Workspace, command: str, kept_out: set[str]
) -> None:
    arguments = command.format(output=released.output, config=released.configure())
    done = subprocess.run(
        [sys.executable, "-c", LISTED, *arguments.split(" ")],
        env=os.environ | {"PYTHONPATH": search_path()},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.splitlines()[-1].split())
    assert {"modules", "dpcore.ordered.question"} <= loaded
    assert not kept_out & loaded
