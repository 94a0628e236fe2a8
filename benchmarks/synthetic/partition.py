"""A released generator as arrays: boxes of the unit cube, each with a mass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arrays import Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition:
    """Boxes with disjoint interiors; a point is uniform in a box drawn by its mass.

    Attributes:
        lower: (m, d) corners in [0, 1]^d.
        upper: (m, d) the opposite corners, above `lower` in every column.
        mass: (m,) nonnegative, not normalized; one that is all zero means equal densities.
    """

    lower: Floats
    upper: Floats
    mass: Floats

    def __post_init__(self) -> None:
        if self.lower.ndim != 2 or self.lower.shape != self.upper.shape:
            raise ValueError(f"corners have shapes {self.lower.shape} and {self.upper.shape}")
        if self.mass.shape != (len(self.lower),):
            raise ValueError(f"{len(self.lower)} boxes have masses of shape {self.mass.shape}")
        if not (self.lower < self.upper).all():
            raise ValueError("a box is empty")
        if not (self.mass >= 0).all():
            raise ValueError("a mass is negative or no number")

    @property
    def dimensions(self) -> int:
        """The number of columns, d."""
        return self.lower.shape[1]

    @property
    def probability(self) -> Floats:
        """(m,) the masses over their sum; the volumes where all masses are zero."""
        weight = self.mass if self.mass.any() else np.prod(self.upper - self.lower, axis=1)
        return weight / weight.sum()

    def sample(self, rng: np.random.Generator, rows: int) -> Floats:
        """(rows, d) independent points.

        >>> half = Partition(lower=np.zeros((1, 2)), upper=np.full((1, 2), 0.5), mass=np.ones(1))
        >>> bool((half.sample(np.random.default_rng(0), 100) < 0.5).all())
        True
        """
        box = rng.choice(len(self.mass), size=rows, p=self.probability)
        low, high = self.lower[box], self.upper[box]
        return low + rng.random(low.shape) * (high - low)


def whole_cube(dimensions: int) -> Partition:
    """The uniform distribution: what is known without data."""
    shape = (1, dimensions)
    return Partition(lower=np.zeros(shape), upper=np.ones(shape), mass=np.ones(1))
