"""docs/python.md and the notebook say what comes out, but for the noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.python.pages import PROJECT, blocks, run, shape

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("pandas")
pytest.importorskip("polars")
NOTEBOOK = PROJECT / "examples" / "people.ipynb"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from matplotlib import pyplot

    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    yield
    pyplot.close("all")


def test_page() -> None:
    names: dict[str, Any] = {}
    outputs = 0
    for code, expected in blocks((PROJECT / "docs" / "python.md").read_text()):
        printed, _ = run(code, names)
        if expected is not None:
            outputs += 1
            assert shape(printed) == shape(expected), code
    assert outputs >= 7 and Path("ages.png").stat().st_size > 10_000


def test_notebook() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    names: dict[str, Any] = {}
    for cell in (each for each in cells if each["cell_type"] == "code"):
        printed, value = run("".join(cell["source"]), names)
        for output in cell["outputs"]:
            stored = output.get("data", {})
            if "text/html" in stored:
                assert value._repr_html_().count("<tr>") == "".join(stored["text/html"]).count(
                    "<tr>"
                )
            elif "text/plain" in stored and "image/png" not in stored:
                assert shape(printed) == shape("".join(stored["text/plain"]))
    assert NOTEBOOK.stat().st_size < 200_000
