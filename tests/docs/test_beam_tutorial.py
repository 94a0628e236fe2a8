"""docs/tutorials/beam.md works in an empty folder, exactly as it is written."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import agrees, read_blocks
from tests.docs.pages import DOCS

PROJECT = DOCS.parent
PAGE = DOCS / "tutorials" / "beam.md"
MOST_LINES = 40


def run_line(line: str, folder: Path) -> str:
    """Run a command of the page in a process of its own; return what it prints."""
    program, *arguments = shlex.split(line)
    start = {"python": [sys.executable], "dptrees": [sys.executable, "-m", "dptrees"]}[program]
    done = subprocess.run(
        [*start, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{line}: {done.stderr[-3000:]}"
    return done.stdout


def test_the_tutorial_runs_as_written(tmp_path: Path) -> None:
    printed, shown = "", list[str]()
    for block in read_blocks(PAGE.read_text(encoding="utf-8")):
        if block.title:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            printed = "".join(run_line(line, tmp_path) for line in block.text.splitlines())
        elif block.language == "text":
            shown.append(printed)
            assert agrees(block.text, printed), printed
    assert len(shown) == 2
    # The release exists, so it is neither counted nor drawn again: refused, or used.
    with pytest.raises(AssertionError, match="contains the finished release of this plan"):
        run_line("python first.py", tmp_path)
    script = (tmp_path / "first.py").read_text(encoding="utf-8")
    assert script.count("schema=SCHEMA)") == 1
    again = script.replace("schema=SCHEMA)", 'schema=SCHEMA, if_exists="use")')
    (tmp_path / "again.py").write_text(again, encoding="utf-8")
    assert run_line("python again.py", tmp_path) == shown[0]
    for folder in ("visits", "by-person", "two-workers"):
        run_line(f"dptrees verify out/{folder}", tmp_path)


def test_the_first_script_is_short() -> None:
    scripts = {block.title: block.text for block in read_blocks(PAGE.read_text(encoding="utf-8"))}
    assert len(scripts["first.py"].splitlines()) <= MOST_LINES
