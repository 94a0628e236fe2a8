"""benchmarks/synthetic: references that are exact without noise, distances by brute force, the
study in its smallest form, and the page."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from benchmarks.synthetic import __main__ as study
from benchmarks.synthetic.__main__ import Case, Extent, line_distance, tree_bound
from benchmarks.synthetic.generators import (
    GENERATORS,
    Partition,
    depth,
    encode_points,
    make_partition,
    privtree_release,
    real,
    walk,
)
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.boxes.plan import Holding
from dptrees.dpcore.papers.holland import multifractal

NO_NOISE = 1e11
TINY = Extent(sizes=((200, 1.0), (300, 0.5)), runs=3)


def beta(seed: int, rows: int, columns: int) -> Floats:
    """Points of the law Beta(2, 8)."""
    return study.beta(np.random.default_rng(seed), rows, columns)


def random_nodes(rng: np.random.Generator, dimensions: int, splits: int) -> Partition:
    """A partition into nodes of the hierarchy, by splitting random leaves."""
    leaves = [(0, 0)]
    for _ in range(splits):
        code, level = leaves.pop(rng.integers(len(leaves)))
        leaves += [(2 * code, level + 1), (2 * code + 1, level + 1)]
    codes, levels = np.array(leaves).T
    mass = rng.exponential(size=len(leaves)) * (rng.random(len(leaves)) < 0.7)
    return make_partition(codes, levels, mass, dimensions)


@pytest.mark.parametrize("dimensions", [1, 2, 5])
def test_codes_one_point_at_a_time(dimensions: int) -> None:
    rng = np.random.default_rng(dimensions)
    points = np.concatenate((rng.random((20, dimensions)), np.ones((1, dimensions))))
    expected = []
    for point in points:
        lower, upper, code = np.zeros(dimensions), np.ones(dimensions), 0
        for level in range(depth(dimensions)):
            column = level % dimensions
            middle = (lower[column] + upper[column]) / 2
            right = bool(point[column] >= middle)
            (lower if right else upper)[column] = middle
            code = 2 * code + right
        expected.append(code)
    assert encode_points(points).tolist() == expected


@pytest.mark.parametrize("seed", range(4))
def test_distances_of_a_partition(seed: int) -> None:
    """On a line by a fine grid; the tree bound is above it, and its resolution for the data."""
    rng = np.random.default_rng(seed)
    partition, parts = random_nodes(rng, 1, 30), 20_000
    sample = np.round(rng.beta(2, 8, (60, 1)), 2)  # with ties
    inside = (np.arange(parts) + 0.5) / parts
    atoms = (partition.lower + inside * (partition.upper - partition.lower)).ravel()
    weights = np.repeat(partition.probability, parts)
    expected = wasserstein_distance(sample[:, 0], atoms, v_weights=weights)
    assert line_distance(sample, partition) == pytest.approx(expected, abs=1 / parts)
    assert line_distance(sample, partition) <= tree_bound(sample, partition)
    points = rng.random((64, 2))
    codes, counts = np.unique(encode_points(points) >> depth(2) - 8, return_counts=True)
    same = make_partition(codes, np.full(codes.size, 8), counts.astype(float), 2)
    assert tree_bound(points, same, rounds=4) == pytest.approx(2.0**-4)


def test_every_node_gives_its_left_half_the_skew() -> None:
    rows, skew = 40_000, 0.8
    points = multifractal(np.random.default_rng(0).random, rows, 2, skew=skew)
    bits = (points[:, :, None] * 2.0 ** np.arange(1, 11)).astype(np.int64) & 1
    # 20 frequencies at once: a false alarm has a probability below 1e-6 at 5.5 standard errors.
    limit = 5.5 * math.sqrt(skew * (1 - skew) / rows)
    assert np.abs(1 - bits.mean(axis=0) - skew).max() < limit


# --- the published mechanisms ---


@pytest.mark.parametrize("dimensions", [1, 2, 5])
def test_without_noise_and_pruning_trees_are_the_data(dimensions: int) -> None:
    points, rng = beta(0, 300, dimensions), np.random.default_rng(0)
    pmm = real("PMM", "pmm", depth=4 * dimensions, holding=Holding.SPARSE)
    for partition in (
        pmm.release(points, NO_NOISE, rng),
        privtree_release(points, NO_NOISE, rng),
    ):
        assert tree_bound(points, partition, rounds=4) == pytest.approx(2.0**-4)


def test_pmm_has_its_known_distance() -> None:
    """Beta(2, 8), epsilon 1, n = 1000: .0113 by an independent run; here 60 runs, an sd of 40 %."""
    rng, pmm = np.random.default_rng(5), real("PMM", "pmm", holding=Holding.SPARSE)
    found = []
    for _ in range(60):
        points = study.beta(rng, 1000, 1)
        found.append(line_distance(points, pmm.release(points, 1.0, rng)))
    assert 0.0085 < np.mean(found) < 0.0125


def coefficients(values: Floats) -> list[float]:
    """The coefficients of Schauder's tents and the line, of values at equal distances."""
    found = [values[-1] - values[0]]
    while values.size > 2:
        found += list(values[1::2] - (values[:-1:2] + values[2::2]) / 2)
        values = values[::2]
    return [float(each) for each in found]


def test_the_random_walk_pays_for_a_row_and_has_laplace_coefficients() -> None:
    edges = np.arange(2**5 + 1)
    moved = [np.abs(coefficients((edges > cell) * 1.0)).sum() for cell in range(2**5)]
    assert moved == [1 + 5 / 2] * 2**5
    rng = np.random.default_rng(0)
    drawn = np.concatenate([coefficients(walk(6, 3.0, rng)) for _ in range(300)])
    # The mean of 19,200 absolute values, each exponential with mean and sd 3.
    assert abs(np.abs(drawn).mean() - 3) < 5.2 * 3 / math.sqrt(300 * 64)


# --- the study and its page ---


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_a_case_repeats_and_has_every_generator_that_can(columns: int) -> None:
    case = Case(source="Beta(2, 8)", rows=300, epsilon=1.0, columns=columns, runs=3)
    found = study.run_case(case)
    assert found == study.run_case(case)
    assert set(found) == {each.name for each in GENERATORS if each.columns >= columns}
    assert found["planned"].value < found["uniform"].value


def test_the_page_has_a_row_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "mapped", lambda function, cases: [*map(function, cases)])
    monkeypatch.setattr(study, "LONG", TINY)
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- w1: begin -->\nold\n<!-- w1: end -->\nbelow\n")
    assert study.main(["--write", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("above\n<!-- w1: begin -->\n| columns; n, epsilon | planned |")
    assert [line[:3] for line in text.splitlines() if "; 200, 1 |" in line] == ["| 1", "| 2", "| 5"]
    assert "old" not in text and text.endswith("<!-- w1: end -->\nbelow\n")


def test_a_prediction_is_compared_with_each_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "mapped", lambda function, places: [*map(function, places)])
    monkeypatch.setattr(study, "PREDICTED", ("planned",))
    monkeypatch.setattr(study, "COLUMNS", (1,))
    lines = study.predicted_table(replace(TINY, sizes=((400, 1.0),))).splitlines()
    mechanism, cases, *numbers = [each.strip() for each in lines[2].strip("|").split("|")]
    assert (mechanism, cases) == ("planned", str(len(study.SOURCES)))
    mean, smallest, largest, within = map(float, numbers)
    assert 0.2 < smallest <= mean <= largest < 5 and 0 <= within <= 3
    assert lines[3].replace("all", "planned") == lines[2]
