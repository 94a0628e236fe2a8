"""The corrected Theorem 3 of Holland et al. is above W1 everywhere, the printed one is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.synthetic import sketches
from benchmarks.synthetic.generators import ExactCounts
from benchmarks.synthetic.sketches import LAWS, Cell, candidate_sums, run_cell
from dptrees.dpcore.sketches.sketch import SketchKind

SKEWED = Cell(source="multifractal, B = .8", noise="no noise", k=256, w=64, runs=3, rows=20_000)


@pytest.mark.parametrize("noise", ["no noise", "epsilon 1"])
@pytest.mark.parametrize(("k", "w"), [(1, 16), (16, 64), (256, 64), (100, 1024)])
@pytest.mark.parametrize("source", LAWS)
def test_the_corrected_bound_holds(source: str, noise: str, k: int, w: int) -> None:
    found = run_cell(replace(SKEWED, source=source, noise=noise, k=k, w=w))
    assert found.distance <= found.bound
    assert found.bound < 1 + 10 * w  # not infinite


def test_the_printed_theorem_is_refuted_without_noise() -> None:
    """Its sketch has 1 / w where k / w is needed: with k = w = 1024 W1 is 7 times above it."""
    found = run_cell(replace(SKEWED, source="256 atoms", k=1024, w=1024, rows=100_000))
    assert found.distance > 4 * found.printed
    assert found.distance <= found.bound


def test_candidates_by_exact_pruning() -> None:
    points = np.array([0.1, 0.1, 0.1, 0.6, 0.6, 0.8, 0.3])[:, None]
    # Level 1: 4 and 3 rows, one is split; level 2: 3 and 1 of the first half.
    assert candidate_sums(ExactCounts(points), 1, 2).tolist() == [0, 3, 1]


def test_the_page_has_both_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "mapped", lambda function, cells: [*map(function, cells)])
    monkeypatch.setattr(sketches, "SPLIT", (4, 16))
    monkeypatch.setattr(sketches, "WIDTHS", (16, 64))
    made: list[Cell] = []

    def quick(cell: Cell) -> sketches.Found:
        made.append(cell)
        return sketches.Found(distance=1.0 * cell.j, bound=2.0, printed=0.5)

    monkeypatch.setattr(sketches, "run_cell", quick)
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- sketches: begin -->\n<!-- sketches: end -->\nbelow\n")
    assert sketches.main(["--runs", "2", "--write", str(page)]) == 0
    text = page.read_text()
    assert text.count("k 16 | 1 (2) | 1 (2) |") == 4 and "up to 2.0 times Theorem 3" in text
    assert {cell.kind for cell in made} == set(SketchKind) and {cell.runs for cell in made} == {2}
