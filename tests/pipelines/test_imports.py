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
from dptrees.pipelines.cli.command import main
assert main(sys.argv[1:]) == 0
print("modules", *sys.modules, file=sys.stderr)
"""
ENGINES = {"apache_beam", "sqlalchemy", "alembic", "matplotlib", "scipy.stats"}
# Packages of kinds of trees that the release does not have, by a module of each.
OTHER_KINDS = {
    *(
        "dptrees.dpcore.sparse.question",
        "dptrees.dpcore.boxes.question",
        "dptrees.dpcore.tables.question",
    ),
    *(
        "dptrees.dpcore.distinct",
        "dptrees.dpcore.mean",
        "dptrees.dpcore.exponential.question",
    ),
    *("dptrees.dpcore.factorised.mechanism", "dptrees.dpcore.levels.irregular"),
}
# The same for a plan, whose tree may be measured by any mechanism of an ordered domain.
OTHER_SECTIONS = {
    *(
        "dptrees.pipelines.kinds.hierarchies",
        "dptrees.pipelines.kinds.boxes",
        "dptrees.pipelines.kinds.boxes",
    ),
    *(
        "dptrees.pipelines.kinds.numbers",
        "dptrees.pipelines.kinds.hierarchies",
        "dptrees.pipelines.kind_pages.hierarchy_page",
    ),
    *(
        "dptrees.pipelines.kinds.numbers",
        "dptrees.pipelines.kinds.numbers",
        "dptrees.pipelines.show.levels",
    ),
    *("dptrees.pipelines.show.mechanisms", "dptrees.pipelines.show.levels"),
    *(
        "dptrees.dpcore.sparse.question",
        "dptrees.dpcore.boxes.question",
        "dptrees.dpcore.tables.question",
    ),
    *(
        "dptrees.dpcore.distinct",
        "dptrees.dpcore.hierarchy.question",
        "dptrees.dpcore.hierarchy.domain",
    ),
    *(
        "dptrees.dpcore.levels.irregular",
        "dptrees.dpcore.levels.irregular",
        "dptrees.dpcore.adaptive.hierarchy_planner",
    ),
    *("dptrees.dpcore.irregular.plan", "dptrees.dpcore.thresholds.plan"),
}
SERIES = {"dptrees.dpcore.series.question", "dptrees.pipelines.query.series_folder"}
CONFIGURATION = {
    "pydantic",
    "yaml",
    "jsonschema",
    "dptrees.pipelines.config.configuration",
    "dptrees.pipelines.config.registry",
}
PAGES = {
    "dptrees.pipelines.kind_pages.ordered_page",
    "dptrees.pipelines.kind_pages.box_pages",
}
# What reads released folders.
FOLDERS = {"pyarrow.parquet", "dptrees.pipelines.query.release_folder"}


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
    assert {"modules", "dptrees.dpcore.ordered.question"} <= loaded
    assert not kept_out & loaded
