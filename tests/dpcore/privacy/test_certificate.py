"""The certified delta of `dpcore.privacy` is never below the exact one, and little above.

The exact delta is computed without a grid, a tilt or a Fourier transform: the losses of counts with
rational sigma^2 and scales lie on a common lattice, so that their law is a convolution of positive
numbers, each correct to 1e-11 in relative terms, and delta is a sum of positive terms over it. An
atom at epsilon counts nothing in the exact delta, while the certificate, which knows losses to a
step of its grid, counts some of it: much where the next atom is far smaller (sigma below 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.privacy.composition import certified_delta

Moved = Sequence[tuple[NoiseLaw, int]]
LARGEST, SMALLEST = 0.5, 1e-12
# Sigma to which the laws are summed: what lies outside is below 1e-80.
WIDTH = 20
BETWEEN, ATOMS = 12, 24


@dataclass(frozen=True, kw_only=True)
class LossLaw:
    """The law of a privacy loss: the probability of (first + place) / parts + offset."""

    probabilities: npt.NDArray[np.float64]
    first: int
    parts: int
    offset: Fraction

    def delta(self, epsilon: float) -> float:
        """E max(0, 1 - exp(epsilon - loss)); epsilon counts as the rational that the float is."""
        below = (Fraction(epsilon) - self.offset) * self.parts
        start = max(math.floor(below) + 1, self.first)
        above = np.arange(self.first + self.probabilities.size - start, dtype=np.float64)
        excess = float((start - below) / self.parts) + above / self.parts
        return float(self.probabilities[start - self.first :] @ -np.expm1(-excess))

    def atoms(self) -> list[float]:
        """The possible losses at which delta is within the limits, at most ATOMS of them."""
        places = np.flatnonzero(self.probabilities)
        losses = [Fraction(self.first + int(place), self.parts) + self.offset for place in places]
        found = [float(loss) for loss in losses if 0.01 < loss < 60 and self.counts(float(loss))]
        return found[:: -(-len(found) // ATOMS)] if found else []

    def counts(self, epsilon: float) -> bool:
        """Whether delta is within the limits."""
        return SMALLEST <= self.delta(epsilon) <= LARGEST


def loss_distribution(law: NoiseLaw) -> tuple[npt.NDArray[np.float64], int, Fraction, Fraction]:
    """The loss of one count: probabilities of (first + place) * unit + offset."""
    if isinstance(law, DiscreteLaplace):
        up = 1 / (1 + math.exp(-float(1 / law.scale)))
        return np.array([1 - up, 0.0, up]), -1, 1 / law.scale, Fraction(0)
    assert isinstance(law, DiscreteGaussian)
    reach = math.ceil(WIDTH * math.sqrt(law.sigma_squared)) + 2
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / float(2 * law.sigma_squared))
    return weights / math.fsum(weights), -reach, 1 / law.sigma_squared, 1 / (2 * law.sigma_squared)


def composed(moved: Moved) -> LossLaw:
    """The law of the sum of the losses of all counts."""
    losses = [loss_distribution(law) for law, n in moved for _ in range(n)]
    parts = math.lcm(*(unit.denominator for _, _, unit, _ in losses))
    whole, first = np.ones(1), 0
    for probabilities, start, unit, _ in losses:
        stride = int(unit * parts)
        spread = np.zeros((probabilities.size - 1) * stride + 1)
        spread[::stride] = probabilities
        whole, first = np.convolve(whole, spread), first + start * stride
    offset = sum((offset for *_, offset in losses), Fraction(0))
    return LossLaw(probabilities=whole, first=first, parts=parts, offset=offset)


def ratios(moved: Moved, law: LossLaw, epsilons: Sequence[float]) -> list[float]:
    """Certified by exact delta, where the exact one is within the limits."""
    counted = [epsilon for epsilon in epsilons if law.counts(epsilon)]
    return [certified_delta(moved, epsilon) / law.delta(epsilon) for epsilon in counted]


def between(law: LossLaw) -> list[float]:
    """Values of epsilon in even steps over the limits, of no relation to the lattice."""
    grid = [value for value in np.geomspace(0.01, 60, 400).tolist() if law.counts(value)]
    return grid[:: -(-len(grid) // BETWEEN)] if grid else []


def on_atoms(law: LossLaw) -> list[float]:
    """Values of epsilon that are possible losses, and some right beside them."""
    return [atom * factor for atom in law.atoms() for factor in (1.0, 1 - 1e-9, 1 + 1e-9)]


def gaussians(*sigma_squared: str | int, counts: int = 1) -> Moved:
    """Counts with discrete Gaussian noise, so many of each variance."""
    return [(DiscreteGaussian(sigma_squared=Fraction(each)), counts) for each in sigma_squared]


def cases() -> Iterator[tuple[str, Moved]]:
    """Noise of one level, of several, of other laws: of one count, of substitute, of many."""
    for variance in ("1/9", "1/3", "1/2", "2/3", "7/8", 1, "8/7", "3/2", 2, 3, 6, 12, 25, 50, 400):
        for counts in (1, 2, 10):
            yield f"sigma^2 {variance}, counts {counts}", gaussians(variance, counts=counts)
    for variances in ((4, 8, 12), (3, 5, 6), ("3/2", 6, 10), (40, 60, 120)):
        for counts in (1, 2):
            text = ", ".join(map(str, variances))
            yield f"sigma^2 {text}, counts {counts}", gaussians(*variances, counts=counts)
    laplace = DiscreteLaplace(scale=Fraction(3))
    yield "Laplace 3, counts 4; sigma^2 9", [(laplace, 4), *gaussians(9)]


# One of four, with those where most is measured.
CASES = {
    name: moved
    for place, (name, moved) in enumerate(cases())
    if place % 4 == 0 or "1/3, counts 1" in name or "8/7, counts 1" in name or "Laplace" in name
}


def smallest_variance(moved: Moved) -> Fraction:
    return min(law.sigma_squared for law, _ in moved if isinstance(law, DiscreteGaussian))


@pytest.mark.parametrize("moved", CASES.values(), ids=CASES.keys())
def test_never_below_the_exact_delta_and_little_above(moved: Moved) -> None:
    law = composed(moved)
    anywhere, at_losses = (ratios(moved, law, each) for each in (between(law), on_atoms(law)))
    assert len(anywhere) >= 4 and at_losses
    assert min(anywhere) >= 1 and min(at_losses) >= 1
    assert max(anywhere) <= 1.001
    assert max(at_losses) <= (1.3 if smallest_variance(moved) >= 1 else 12)


@pytest.mark.parametrize("moved", [gaussians(3, 5), gaussians(2, counts=2)])
def test_noise_one_percent_too_small_is_seen(moved: Moved) -> None:
    """Planted: the exact delta of what is drawn exceeds what is certified for what is said."""
    drawn = [
        (DiscreteGaussian(sigma_squared=law.sigma_squared * Fraction(99, 100)), n)
        for law, n in moved
        if isinstance(law, DiscreteGaussian)
    ]
    law = composed(drawn)
    assert min(ratios(moved, law, between(law))) < 0.996
