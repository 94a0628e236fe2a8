"""benchmarks/synthetic/sources.py: frequencies as promised, in the unit cube."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.synthetic import sources


@pytest.mark.parametrize("name", sources.SOURCES)
@pytest.mark.parametrize("dimensions", [1, 2, 5])
def test_points_are_in_the_cube_and_repeat(name: str, dimensions: int) -> None:
    source = sources.SOURCES[name]
    points = source(np.random.default_rng(1), 300, dimensions)
    assert points.shape == (300, dimensions)
    assert ((points >= 0) & (points <= 1)).all()
    assert np.array_equal(points, source(np.random.default_rng(1), 300, dimensions))


@pytest.mark.parametrize("skew", [0.5, 0.8, 0.95])
def test_every_node_gives_its_left_half_the_skew(skew: float) -> None:
    rows = 40_000
    points = sources.multifractal(np.random.default_rng(0), rows, 2, skew=skew)
    bits = (points[:, :, None] * 2.0 ** np.arange(1, 11)).astype(np.int64) & 1
    left = 1 - bits.mean(axis=0)
    # 20 frequencies at once: a false alarm has a probability below 1e-6 at 5.5 standard errors.
    assert np.abs(left - skew).max() < 5.5 * math.sqrt(skew * (1 - skew) / rows)


def test_the_most_skewed_data_is_one_cell_at_any_depth() -> None:
    points = sources.multifractal(np.random.default_rng(0), 100, 1, skew=1.0, bits=62)
    assert (points < 2.0**-61).all()


@pytest.mark.parametrize("wrong", [{"skew": 0.4}, {"skew": 1.1}, {"bits": 63}])
def test_skew_and_bits_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="not in"):
        sources.multifractal(np.random.default_rng(0), 1, 1, **wrong)  # type: ignore[arg-type]


def test_half_of_the_atoms_are_on_twenty_places() -> None:
    points = sources.atoms(np.random.default_rng(0), 10_000, 2)
    places, counts = np.unique(points, axis=0, return_counts=True)
    assert (counts > 1).sum() == 20
    assert abs(counts[counts > 1].sum() - 5000) < 5 * 50
    assert len(places) > 4000


def test_adult_is_in_the_middle_of_its_cells(shared_data: Path) -> None:
    sizes = json.loads((shared_data / "adult-domain.json").read_text(encoding="utf-8"))
    points = sources.adult(shared_data / "adult.csv", sizes)
    assert points.shape == (48_842, 6)
    assert ((points > 0) & (points < 1)).all()
    # The first row's age has the code 23 of 85.
    assert points[0, 0] == pytest.approx(23.5 / 85)
