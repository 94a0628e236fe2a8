"""The measure of the packages' size, on planted modules and commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import size

TREES = '''"""Trees.

Two lines of a docstring.
"""

# A comment.
from dptrees.dpcore.noise import (
    draw,
)


class Tree:
    """A tree."""

    def grow(self):
        """Grow."""
        from dptrees.transforms.files import x
        text = """
        no docstring"""
        return text, draw, x
'''
MODULES = {
    "dpcore/__init__.py": "",
    "dpcore/trees/__init__.py": TREES,
    "dpcore/noise/__init__.py": "import dptrees.dpcore.levels.level\n",
    "dpcore/levels/__init__.py": "",
    "dpcore/levels/level.py": "import os\nfrom dptrees.dpcore import trees\n",
    "transforms/files.py": "from dptrees.dpcore.trees import Tree\n",
}


def test_what_is_measured() -> None:
    found = size.measure(MODULES)
    assert found.files == {"dpcore": 5, "transforms": 1, "pipelines": 0}
    assert found.code == {"dpcore": 12, "transforms": 1, "pipelines": 0}
    assert found.imports == 3 + 1 + 1 + 2 + 1
    assert found.inside == 1
    assert found.circles == [4]
    text = MODULES["dpcore/levels/level.py"].replace("import trees", "import __version__")
    assert size.measure(MODULES | {"dpcore/levels/level.py": text}).circles == [2]


def commit(project: Path, lines: int) -> str:
    """Commit a module of so many lines; return the commit."""
    for each in size.PACKAGES:
        (project / each).mkdir(exist_ok=True)
        (project / each / "__init__.py").touch()
    (project / "dpcore" / "lines.py").write_text("x = 1\n" * lines)
    run(project, "add", "--all")
    run(project, "commit", "--quiet", "-m", f"{lines} lines")
    return run(project, "rev-parse", "HEAD")


def run(project: Path, *arguments: str) -> str:
    """Run git, and return what it prints."""
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    command = ["git", *identity, *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_commit_before_the_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    origin, clone, shallow = (tmp_path / each for each in ("origin", "clone", "shallow"))
    origin.mkdir()
    run(origin, "init", "--quiet")
    commit(origin, 10)
    landed = commit(origin, 20)
    run(tmp_path, "clone", "--quiet", str(origin), str(clone))
    run(tmp_path, "clone", "--quiet", "--no-local", "--depth", "1", str(origin), str(shallow))

    def compared(project: Path, *arguments: str, code: int = 0) -> list[str]:
        assert size.main(list(arguments), project) == code
        lines = capsys.readouterr().out.splitlines()
        return [*lines[1].split()[:4], lines[-1].rpartition(" ")[0].rpartition(" ")[2]]

    # Of a clone without a change the last commit, then a change of two commits.
    assert compared(clone) == ["dpcore", "20", "10", "+10", "10"]
    (clone / "dpcore" / "lines.py").write_text("x = 1\n" * 50)
    assert compared(clone) == ["dpcore", "50", "20", "+30", "20"]
    commit(clone, 30)
    commit(clone, 15)
    assert compared(clone) == ["dpcore", "15", "20", "-5", "20"]
    assert compared(clone, "--since", "HEAD~1") == ["dpcore", "15", "30", "-15", "30"]
    assert run(clone, "rev-parse", size.last_landing(clone)) == landed
    assert compared(shallow)[:4] == ["dpcore", "20", "-", "-"]
    assert compared(shallow, "--since", "HEAD~1", code=2)[:4] == ["dpcore", "20", "-", "-"]
