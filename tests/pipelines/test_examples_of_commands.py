"""Every example in a command's help runs unchanged."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.pipelines.cli.command import command_parser
from dptrees.pipelines.cli.release_commands import EXAMPLES
from dptrees.pipelines.config.draft import SCHEMA
from tests.pipelines.conftest import PROJECT, Outcome, Workspace

DOCUMENT = PROJECT / "docs" / "reading-a-plan.md"
BLOCK = re.compile(r"^```(yaml|text)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
# The configuration of the document is that of the examples, with a box and a sketch.
(AGES,) = (
    text for _, text in BLOCK.findall(DOCUMENT.read_text()) if text.startswith("release: ages")
)
BOX = """\
  - name: both
    domain:
      kind: hypercube
      columns:
        - {column: age, type: integer, lower: 0, upper: 128}
        - {column: hours, type: integer, lower: 0, upper: 64}
    rows: 1000
  - {name: jobs, domain: {kind: sketch, column: work}, rows: 1000, values: 3, memory: 64 KiB}
"""
# In front of it: a series of the same trees.
DAILY = """\
parameters: {period: {type: integer}}
series: {periods: 3, period: "${period}"}
"""


@pytest.fixture
def ages(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """In a folder with rows and a configuration."""
    folder = workspace.folder / "examples"
    (folder / "data").mkdir(parents=True)
    random = np.random.default_rng(0)
    days = np.datetime64("2024-01-01") + random.integers(0, 366, 1000)
    columns = {
        "age": random.integers(0, 100, 1000),
        "hours": random.integers(0, 60, 1000),
        "work": random.choice(["office", "home", "farm"], 1000),
        "day": days.astype("M8[D]"),
    }
    pq.write_table(pa.table(columns), folder / "data" / "ages.parquet")
    monkeypatch.chdir(folder)
    return workspace


def run(workspace: Workspace, line: str) -> Outcome:
    """Run a line of a shell, but for what is behind an arrow."""
    program, *arguments = shlex.split(line.partition(" > ")[0])
    outcome = workspace.succeed(*arguments)
    assert program == "dptrees" and outcome.out, line
    return outcome


def test_every_example_runs(ages: Workspace) -> None:
    Path("ages.yaml").write_text(AGES + BOX)
    daily = AGES.replace("release: ages", "release: daily").replace("out/ages", "out/daily")
    Path("daily.yaml").write_text(DAILY + daily)
    for name, lines in EXAMPLES.items():
        for period in (1, 2, 3) if name == "series" else ():
            run(ages, f"dptrees release daily.yaml --set period={period}")
        for line in lines:
            assert line.split()[1] == name
            run(ages, line)


def test_the_document_runs(ages: Workspace) -> None:
    Path("ages.yaml").write_text(AGES)
    text = DOCUMENT.read_text()
    blocks = [block for kind, block in BLOCK.findall(text) if not kind]
    lines = [line for block in blocks for line in block.splitlines()]
    requested = [line for line in lines if line.startswith("dptrees ")]
    assert len(requested) == 8
    for line in requested:
        run(ages, line)
    refused = ages.run("plan", "first.yaml")
    assert refused.code == 2 and refused.err in text
    plan = run(ages, "dptrees plan ages.yaml").out
    assert f"```\n{plan[plan.index('in all:') :]}```" in text
    excerpts = [block for kind, block in BLOCK.findall(text) if kind == "text"]
    assert excerpts and all(excerpt in plan for excerpt in excerpts)
    assert run(ages, "dptrees schema").out == (DOCUMENT.parent / SCHEMA).read_text()


def test_the_help_of_every_command_ends_with_its_examples(workspace: Workspace) -> None:
    parser: argparse.ArgumentParser = command_parser()
    (found,) = (each for each in parser._actions if isinstance(each.choices, dict))
    assert set(found.choices or {}) == set(EXAMPLES)
    for name, lines in EXAMPLES.items():
        text = workspace.run(name, "--help").out
        assert text.endswith("\nexamples:\n  " + "\n  ".join(lines) + "\n")
