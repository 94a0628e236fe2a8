"""Every benchmark says what it does before it does it: `--help` ends well, and runs nothing."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
PROGRAMS = sorted(
    ".".join(path.relative_to(FOLDER.parent).with_suffix("").parts).removesuffix(".__main__")
    for path in FOLDER.rglob("*.py")
    if path.name == "__main__.py" or "\nif __name__ ==" in path.read_text(encoding="utf-8")
)
# It answers requests of `benchmarks.accuracy`, by a Python that has the packages of peers.
PROGRAMS.remove("benchmarks.accuracy.package_releases")


def test_there_are_benchmarks() -> None:
    assert {"benchmarks.accuracy", "benchmarks.unit_means"} <= set(PROGRAMS)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_help_ends_well(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__")
    assert not ended.value.code
    assert capsys.readouterr().out.startswith("usage: ")
