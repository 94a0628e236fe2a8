"""The example of docs/transform.md: what it leaves is a release to all other commands."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.pipelines.conftest import PROJECT, search_path

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.pipelines.conftest import Workspace

EXAMPLES = re.compile(r"<!-- example: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)


def written_examples(page: Path, folder: Path) -> list[str]:
    """Write the examples of a page into a folder; return their names."""
    found = dict(EXAMPLES.findall(page.read_text()))
    for name, text in found.items():
        (folder / name).write_text(text)
    return list(found)


def test_example(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = workspace.folder
    assert written_examples(PROJECT / "docs" / "transform.md", folder) == [
        "visits.yaml",
        "visits.py",
    ]
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", search_path())
    done = subprocess.run(
        [sys.executable, "visits.py"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert workspace.run("query", "out/visits", "cdf", "60", "--tree", "minutes").code == 0
    verified = workspace.run("verify", "out/visits")
    assert verified.code == 0 and "FAILED" not in verified.out, verified
    assert workspace.run("report", "out/visits").out == "out/visits/report.html\n"
