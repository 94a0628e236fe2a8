"""Quantiles alone by the commands: refused choices, the plan, a release and its questions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dptrees
from dptrees.pipelines.cli.command import main

CONFIGURATION = """
release: ages
input: {{format: parquet, path: rows.parquet}}
output: out
key_file: release.key
privacy: {{{budget}, neighbors: add_remove}}
trees:
  - name: age
    domain: {{column: age, type: integer, lower: 0, upper: 100}}
    mechanism: exponential
    {tree}
"""


def write(budget: str = "epsilon: 5", tree: str = "quantiles: [0.5, 0.25, 0.75]") -> str:
    Path("ages.yaml").write_text(CONFIGURATION.format(budget=budget, tree=tree))
    return "ages.yaml"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ages = np.random.default_rng(3).integers(0, 100, 5000)
    pq.write_table(pa.table({"age": ages}), "rows.parquet")


def test_a_choice_that_it_does_not_have_is_refused_at_its_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for tree, key in (
        ("fanouts: [10, 10]", "fanouts"),
        ("level_budgets: equal", "level_budgets"),
        ("noise: laplace", "noise"),
        ("optimize_for: counts", "optimize_for"),
        ("guess: {rows: 10}", "guess"),
        ("consistency: l1", "consistency"),
        ("quantiles: [0, 0.5]", "quantiles"),
        ("quantiles: [0.5]\n    intervals: {fraction: 1}", "intervals.fraction"),
        ("quantiles: [0.1234567]\n    intervals: {fraction: 0.5}", "intervals"),
    ):
        assert main(["plan", write(tree=tree)]) == 2
        assert f"trees[0].{key}: " in capsys.readouterr().err
    for mechanism in ("planned", "binary", "adaptive", "factorised"):
        path = Path(write(budget="rho: 1", tree="intervals: {fraction: 0.3}"))
        path.write_text(path.read_text().replace("exponential", mechanism))
        assert main(["plan", str(path)]) == 2
        words = "trees[0].intervals: goes with the mechanism exponential"
        assert words in capsys.readouterr().err


def test_the_quantiles_of_more_cells_than_a_chunk_holds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In rounds, as the command makes them, and verified."""
    path = Path(write(tree="quantiles: [0.5, 0.25]\n    intervals: {fraction: 0.3}"))
    path.write_text(path.read_text().replace("upper: 100", "upper: 300000"))
    assert main(["keygen", "release.key"]) == main(["release", str(path)]) == 0
    assert main(["query", "out", "quantile", "0.5"]) == 0
    assert abs(float(capsys.readouterr().out.splitlines()[-2].split()[1]) - 50) < 10
    assert main(["verify", "out", "--key", "release.key", "--data", str(path)]) == 0
    assert len(list(Path("out", "nodes").iterdir())) == 1


def made(tree: str = "quantiles: [0.5, 0.25, 0.75]") -> None:
    assert main(["keygen", "release.key"]) == 0
    assert main(["release", write(tree=tree)]) == 0


def test_a_page_of_some_of_many_quantiles_has_no_headline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check a page whose quantiles do not include the median."""
    monkeypatch.setattr("dptrees.pipelines.kinds.numbers.MAX_QUANTILES", 24)
    made(f"quantiles: [{', '.join(f'{each / 100:g}' for each in range(10, 60))}]")
    page = Path("out", "report.html").read_text()
    assert "median of age" not in page and "0.33" in page and "0.34" not in page


def test_python_gives_no_cdf() -> None:
    made()
    tree = dptrees.open("out")["age"]
    for asking in (tree.cdf, tree.nodes, lambda: tree.cdf(5)):
        with pytest.raises(dptrees.Error, match="which give no CDF"):
            asking()
