"""benchmarks/synthetic/classifier.py: stored scores, their section, and rows of wide tables."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.synthetic import __main__ as command
from benchmarks.synthetic import classifier
from benchmarks.synthetic.classifier import ALL, SIX, Measured, by_table, pure_budget, stated_budget
from dptrees.dpcore.marginals.shape import TableShape
from dptrees.dpcore.privacy.budget import Budget

SCORE = Measured(
    columns=SIX,
    epsilon=1.0,
    name="dptrees table",
    split=0,
    accuracy=0.75,
    area=0.5,
    seconds=1.0,
)
LATE = replace(SCORE, columns=ALL, name="AIM, delta 1e-5", accuracy=None, area=None, seconds=1200.0)


def test_scores_are_read_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    assert classifier.read_scores(path) == []
    for each in (SCORE, LATE, replace(SCORE, accuracy=0.5), replace(SCORE, split=1)):
        classifier.add_score(path, each)
    found = classifier.read_scores(path)
    assert sorted(found, key=str) == sorted(
        [LATE, replace(SCORE, accuracy=0.5), replace(SCORE, split=1)], key=str
    )


def test_the_section_has_means_over_splits_and_what_has_not_finished() -> None:
    section = classifier.section([SCORE, replace(SCORE, split=1, accuracy=0.25), LATE])
    assert "| 1, dptrees table | 0.500 | 0.500 | 2 |" in section
    assert "| 1, AIM, delta 1e-5 | not finished in 20 minutes |  | 0 |" in section
    assert section.index("Six columns") < section.index("All 14 columns")


@pytest.mark.parametrize("budget", [pure_budget(1e3), stated_budget(1e3)])
def test_rows_of_a_wide_table_are_like_the_data(budget: Budget) -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, (4, 3), (3000, 2))
    rows = np.column_stack((codes, codes[:, 0] > 1))
    made = by_table(TableShape(sizes=(4, 3, 2)), budget)(rows, rng)
    assert made.shape == rows.shape and made.dtype == np.int64
    assert np.mean((made[:, 0] > 1) == made[:, 2]) > 0.98


def test_peers_are_among_the_generators_only_where_a_python_is_named() -> None:
    sizes = {name: 2 for name in classifier.COLUMNS}
    options = Namespace(peers=None, limit=1.0)
    ours = classifier.synthesizers(classifier.COLUMNS, sizes, 1.0, options)
    assert set(classifier.TABLES) < set(ours)
    options.peers = Path("python")
    more = classifier.synthesizers(classifier.COLUMNS, sizes, 1.0, options)
    assert set(more) - set(ours) == set(classifier.PEER_NAMES.values())
    assert not set(classifier.PEER_NAMES) - set(classifier.PEERS)


def test_the_committed_section_was_drawn_from_the_scores() -> None:
    path = Path(__file__).parents[2] / "docs" / "synthetic-accuracy.md"
    page = path.read_text(encoding="utf-8")
    heading, tables = command.SECTIONS["classifier"]
    assert f"{heading}\n\n{tables(command.SHORT)}\n{command.END}" in page
