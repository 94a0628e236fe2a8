"""The notebooks of examples/ in real kernels: with the newest pandas, and without pandas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.python.pages import PROJECT, shape

for package in ("ipykernel", "matplotlib", "polars", "pandas"):
    pytest.importorskip(package)
nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")

EXAMPLES = PROJECT / "examples"
# What keeps a process from finding pandas, as if it were not installed.
NO_PANDAS = """
import sys

class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

sys.meta_path.insert(0, NoPandas())
"""


@pytest.fixture
def without_pandas(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that finds no pandas."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(NO_PANDAS)
    return environment(hooks)


def environment(*folders: Path) -> dict[str, str]:
    """The environment of a kernel that finds this project, and modules of some folders before."""
    paths = os.pathsep.join(map(str, (*folders, PROJECT)))
    return os.environ | {"PYTHONPATH": paths, "MPLCONFIGDIR": os.environ.get("HOME", "/tmp")}


def run(notebook: Any, folder: Path, env: dict[str, str], **more: Any) -> list[Any]:
    """Run the cells of a notebook in a kernel of its own; return the cells of code."""
    given = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources=given, **more
    )
    client.execute(env=env)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(cells: list[Any]) -> list[list[str]]:
    """What cells show, without numbers, which noise changes."""
    shown = []
    for cell in cells:
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" not in data:
                shown += shape(output.get("text") or data.get("text/plain", ""))
    return shown


@pytest.mark.parametrize("name", [each.name for each in sorted(EXAMPLES.glob("*.ipynb"))])
def test_a_notebook_shows_what_it_says(name: str, tmp_path: Path) -> None:
    notebook = nbformat.read(EXAMPLES / name, 4)
    stored = texts([cell for cell in notebook.cells if cell.cell_type == "code"])
    assert texts(run(notebook, tmp_path, environment())) == stored != []
    assert (EXAMPLES / name).stat().st_size < 200_000


def test_a_notebook_without_pandas(tmp_path: Path, without_pandas: dict[str, str]) -> None:
    notebook = nbformat.read(EXAMPLES / "first-minutes.ipynb", 4)
    absent = "import importlib.util\n\nimportlib.util.find_spec('pandas')"
    notebook.cells.append(
        nbformat.v4.new_code_cell(absent, metadata={"tags": ["raises-exception"]})
    )
    *cells, last = run(notebook, tmp_path, without_pandas)
    assert last.outputs[0].ename == "ModuleNotFoundError"
    assert sum(bool(cell.outputs) for cell in cells) > 8


FAULTS = {
    "a function": "dptrees.release({'x': [1]}, {'privacy': {'epsilon': -1}, 'trees': []})",
    "a request": "dptrees.of({'x': [1]}, epsilon=1).by('x')",
    "a plan": "dptrees.of({'x': [1]}, epsilon=1).mean('x', (0, -1)).plan()",
    "a session": "dptrees.Session(epsilon=1).release({'x': [1]}, {'trees': []})",
    "a release": "dptrees.of({'x': [1]}, epsilon=1).mean('x', (0, 9)).release()['y']",
}


def test_errors_show_the_lines_of_the_caller_alone(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook()
    code = ["import dptrees", *FAULTS.values()]
    notebook.cells = [nbformat.v4.new_code_cell(each) for each in code]
    for cell in run(notebook, tmp_path, environment(), allow_errors=True)[1:]:
        *_, error = cell.outputs  # after warnings
        assert error.ename == "Error"
        shown = "\n".join(error.traceback)
        assert "pipelines" not in shown and "----> " in shown and error.evalue in shown


def test_tracebacks_of_scripts_are_short(tmp_path: Path) -> None:
    for code in FAULTS.values():
        script = tmp_path / "script.py"
        script.write_text(f"import dptrees\n\n{code}\n")
        done = subprocess.run(
            [sys.executable, str(script)], env=environment(), capture_output=True, text=True
        )
        assert done.stderr.count('  File "') == 2, done.stderr
        assert done.stderr.splitlines()[-1].startswith("dptrees.Error: ")
