"""Data in the unit cube to measure generators on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from dptrees.dpcore.arrays import Floats

Source = Callable[[np.random.Generator, int, int], Floats]
ADULT_COLUMNS = (
    "age",
    "education-num",
    "marital-status",
    "occupation",
    "capital-gain",
    "hours-per-week",
)
BITS = 53


def uniform(rng: np.random.Generator, rows: int, dimensions: int) -> Floats:
    """(rows, d) uniform points: the flattest data, where a tree has nothing to find."""
    return rng.random((rows, dimensions))


def beta(rng: np.random.Generator, rows: int, dimensions: int) -> Floats:
    """(rows, d) points with independent columns of the law Beta(2, 8)."""
    return rng.beta(2, 8, (rows, dimensions))


def multifractal(
    rng: np.random.Generator, rows: int, dimensions: int, *, skew: float = 0.8, bits: int = BITS
) -> Floats:
    """(rows, d) points of the multifractal of Holland et al., Section 3.3.

    Every node of the binary hierarchy gives its left half the fraction B = `skew`; so all bits of
    all columns are independent. Below the given bits a column is uniform.

    Args:
        rng: where the bits come from.
        rows: n.
        dimensions: d.
        skew: B, in [1/2, 1].
        bits: a column's depth, up to the 62 that a code can have; a float keeps the first 53
            or, near zero, more.

    Raises:
        ValueError: the skew or the bits are out of range.
    """
    if not 0.5 <= skew <= 1 or not 0 <= bits <= 62:
        raise ValueError(f"the skew {skew} is not in [1/2, 1] or {bits} bits are not in [0, 62]")
    points = rng.random((rows, dimensions)) * 2.0**-bits
    for bit in range(bits, 0, -1):
        points += (rng.random(points.shape) >= skew) * 2.0**-bit
    return np.minimum(points, np.nextafter(1.0, 0.0))


def gaussians(rng: np.random.Generator, rows: int, dimensions: int) -> Floats:
    """(rows, d) points of five narrow Gaussians with centers of the rng's, clipped to the cube."""
    centres = rng.uniform(0.1, 0.9, (5, dimensions))
    widths = np.array([0.005, 0.01, 0.02, 0.05, 0.1])
    part = rng.integers(5, size=rows)
    points = centres[part] + widths[part, None] * rng.standard_normal((rows, dimensions))
    return np.clip(points, 0, 1)


def atoms(rng: np.random.Generator, rows: int, dimensions: int) -> Floats:
    """(rows, d) points, half of them on twenty places with Zipf's frequencies, others uniform."""
    centres = rng.random((20, dimensions))
    frequency = 1 / np.arange(1.0, 21.0)
    part = rng.choice(20, size=rows, p=frequency / frequency.sum())
    background = rng.random((rows, dimensions))
    return np.where(rng.random((rows, 1)) < 0.5, centres[part], background)


def adult(path: Path, sizes: dict[str, int], columns: tuple[str, ...] = ADULT_COLUMNS) -> Floats:
    """(rows, d) the people of a file like adult.csv: each code in the middle of its cell.

    Args:
        path: of a CSV file of coded columns.
        sizes: the number of codes of each column.
        columns: which.
    """
    with path.open(encoding="utf-8") as lines:
        names = lines.readline().strip().split(",")
    table = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.int64)
    chosen = table[:, [names.index(each) for each in columns]]
    return (chosen + 0.5) / np.array([sizes[each] for each in columns])


SOURCES: dict[str, Source] = {
    "Beta(2, 8)": beta,
    "multifractal, B = .8": multifractal,
    "uniform": uniform,
    "Gaussians": gaussians,
    "atoms": atoms,
}
