"""docs/python.md says what comes out, but for the noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.python.pages import PROJECT, blocks, run, shape

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("pandas")
pytest.importorskip("polars")


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
