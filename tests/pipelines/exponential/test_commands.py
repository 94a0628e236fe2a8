"""Quantiles alone by the commands: refused choices, the plan, a release and its questions."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        ("objective: cdf", "objective"),
        ("fanouts: [10, 10]", "fanouts"),
        ("level_budgets: equal", "level_budgets"),
        ("noise: laplace", "noise"),
        ("optimize_for: counts", "optimize_for"),
        ("guess: {rows: 10}", "guess"),
        ("consistency: l1", "consistency"),
        ("quantiles: [0, 0.5]", "quantiles"),
        ("weight: 2", "quantiles"),
        ("quantiles: [0.5]\n    intervals: {fraction: 1}", "intervals.fraction"),
        ("quantiles: [0.1234567]\n    intervals: {fraction: 0.5}", "intervals"),
    ],
)
def test_a_choice_that_it_does_not_have_is_refused_at_its_key(
    tree: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", write(tree=tree)]) == 2
    assert f"trees[0].{key}: " in capsys.readouterr().err


@pytest.mark.parametrize("budget", ["epsilon: 5", "rho: 1", "epsilon: 2, delta: 1.0e-6"])
def test_a_release_from_plan_to_questions(budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    configuration = write(budget)
    assert main(["keygen", "release.key"]) == main(["plan", configuration]) == 0
    assert "no CDF" in capsys.readouterr().out
    assert main(["release", configuration]) == 0
    assert "its rank within" in capsys.readouterr().out
    assert main(["query", "out", "quantile", "0.5"]) == 0
    heading, row, held = capsys.readouterr().out.splitlines()
    assert abs(float(row.split()[1]) - 50) < 10
    assert "rank within" in heading and "interval" not in heading and " rows" in row
    assert held.startswith("Ranks are off by no more than their margins with 95 % confidence")
    assert main(["query", "out", "quantile", "0.5", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert answer["rank_rows"] > 0 and answer["rank_share"] == 0 and answer["ci_low"] is None
    assert main(["query", "out", "cdf", "5"]) == 2
    assert "which give no CDF" in capsys.readouterr().err
    assert main(["verify", "out", "--key", "release.key", "--data", configuration]) == 0
    page = Path("out", "report.html").read_text()
    assert "Rank off by at most" in page and "No CDF and no counts are released" in page


@pytest.mark.parametrize("mechanism", ["planned", "binary", "adaptive", "factorised"])
def test_other_mechanisms_have_intervals_without_a_share(
    mechanism: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = "intervals: {fraction: 0.3}"
    path = Path(write(budget="rho: 1", tree=tree))
    path.write_text(path.read_text().replace("exponential", mechanism))
    assert main(["plan", str(path)]) == 2
    assert "trees[0].intervals: goes with the mechanism exponential" in capsys.readouterr().err


@pytest.mark.parametrize("by", ["", "\n    group_by: {column: sex, keys: [f, m]}"])
def test_intervals_from_plan_to_questions(by: str, capsys: pytest.CaptureFixture[str]) -> None:
    sexes = pa.array(["f", "m"] * 2500)
    pq.write_table(pq.read_table("rows.parquet").append_column("sex", sexes), "rows.parquet")
    configuration = write(tree=f"quantiles: [0.5, 0.25]\n    intervals: {{fraction: 0.3}}{by}")
    assert main(["keygen", "release.key"]) == main(["plan", configuration]) == 0
    said = capsys.readouterr().out
    assert "intervals: 30 % of the budget, epsilon 0.75 each; with 95 % they" in said
    assert main(["release", configuration]) == 0
    assert "intervals hold with 95 %" in capsys.readouterr().out
    key = ["--key", "m"] if by else []
    assert main(["query", "out", "quantile", "0.5", *key]) == 0
    heading, _, held = capsys.readouterr().out.splitlines()
    assert "95 % interval" in heading and "rank" not in heading
    assert held.startswith("Intervals hold with 95 % confidence")
    assert main(["query", "out", "quantile", "0.5", *key, "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert answer["ci_low"] <= 51 and answer["ci_high"] >= 48 and answer["rank_rows"] > 0
    entry = json.loads(Path("out", "manifest.json").read_text())["trees"][0]
    assert entry["intervals"]["share"] == "3/10" and len(entry["intervals"]["rows"]) == 2
    assert main(["verify", "out", "--key", "release.key", "--data", configuration]) == 0
    page = Path("out", "report.html").read_text()
    assert "it holds the quantile of the rows" in page and "Rank off by at most" in page
    assert "Interval reaches, rows" in page


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


def test_python_returns_the_quantiles_that_were_released() -> None:
    made()
    tree = dptrees.open("out")["age"]
    assert tree.quantiles().table["q"].to_pylist() == [0.5, 0.25, 0.75]
    for asking in (tree.cdf, tree.nodes, lambda: tree.cdf(5)):
        with pytest.raises(dptrees.Error, match="which give no CDF"):
            asking()
