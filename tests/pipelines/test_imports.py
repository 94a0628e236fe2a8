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
# What the release and its plan have no use for: other kinds and mechanisms, of dpcore and here.
OTHER_KINDS = {
    *("dptrees.dpcore.sparse.question", "dptrees.dpcore.boxes.question"),
    *("dptrees.dpcore.tables.question", "dptrees.dpcore.exponential.question"),
    *("dptrees.dpcore.distinct", "dptrees.dpcore.mean", "dptrees.dpcore.levels.irregular"),
    "dptrees.dpcore.factorised.mechanism",
}
# The same for a plan, whose tree may be measured by any mechanism of an ordered domain.
OTHER_SECTIONS = {
    *(f"dptrees.pipelines.kinds.{name}" for name in ("boxes", "hierarchies", "numbers")),
    *(f"dptrees.pipelines.show.{name}" for name in ("irregular", "adaptive")),
    *("dptrees.dpcore.sparse.question", "dptrees.dpcore.boxes.question"),
    *("dptrees.dpcore.tables.question", "dptrees.dpcore.hierarchy.question"),
    *("dptrees.dpcore.hierarchy.domain", "dptrees.dpcore.levels.irregular"),
    *("dptrees.dpcore.distinct", "dptrees.dpcore.thresholds.plan"),
    "dptrees.dpcore.adaptive.hierarchy_planner",
}
CONFIGURATION = {
    "pydantic",
    "yaml",
    "jsonschema",
    "dptrees.pipelines.config.configuration",
    "dptrees.pipelines.config.registry",
}
PAGES = {
    f"dptrees.pipelines.kind_pages.{name}"
    for name in ("ordered_page", "hierarchy_page", "box_pages")
}


@pytest.mark.parametrize(
    ("command", "kept_out"),
    [
        (
            "query {output} cdf 0 15 --tree all",
            ENGINES | OTHER_KINDS | CONFIGURATION | PAGES,
        ),
        ("plan {config}", ENGINES | OTHER_SECTIONS | PAGES),
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
