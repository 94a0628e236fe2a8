"""How far the certified delta of `dpcore.privacy.composition` lies above the exact one.

The exact delta is computed without a grid, a tilt or a Fourier transform: the losses of counts with
rational sigma^2 and scales lie on a common lattice, so that their law is a convolution of positive
numbers, each correct to 1e-11 in relative terms, and delta is a sum of positive terms over it.

Each line is one case of noise, with the smallest (less 1) and the largest of certified / exact over
values of epsilon at which the exact delta is from 1e-12 to 0.5. First for 12 of them between the
possible losses, then for those that are possible losses to the last bit, or off by 1e-9 of
themselves. There the atom at epsilon counts nothing in the exact delta, while the certificate,
which knows losses to a step of its grid, counts some of it: much where the next atom is far
smaller, as it is where sigma is below 1.

    python -m benchmarks.certificate
    python -m benchmarks.certificate --budgets

The second prints, for levels of unequal budgets (10 : 11 : 12 ...) and add_remove, the rho that
conversion from zCDP allows for an (epsilon, delta), and the one that the certificate finds. Then
the seconds of one certificate for many levels, and of one distribution of dp-accounting for a
single level.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.privacy.composition import certified_delta
from dptrees.dpcore.privacy.conversion import calibrated_rho, zcdp_rho

Moved = Sequence[tuple[NoiseLaw, int]]
LARGEST, SMALLEST = 0.5, 1e-12
# Sigma to which the laws are summed: what lies outside is below 1e-80.
WIDTH = 20
BETWEEN, ATOMS = 12, 24
LEVELS = 30


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


def levels_of_rho(rho: Fraction, levels: int) -> list[tuple[NoiseLaw, int]]:
    """The laws of levels that share a rho, each with one count that moves by one."""
    parts = range(10, 10 + levels)
    amounts = [rho * Fraction(part, sum(parts)) for part in parts]
    return [(DiscreteGaussian(sigma_squared=1 / (2 * amount)), 1) for amount in amounts]


def seconds(run: Callable[[], object]) -> float:
    """How long something takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def certify_levels(sigma: float) -> object:
    """Certify delta for 30 levels with laws near one sigma."""
    laws = [
        (DiscreteGaussian(sigma_squared=Fraction(sigma * (1 + level / 100)) ** 2), 1)
        for level in range(LEVELS)
    ]
    return certified_delta(laws, 1.0)


def print_budgets() -> None:
    """Print the rho of releases, and the seconds of certificates."""
    from dp_accounting.pld import privacy_loss_distribution

    print(f"{'epsilon':>8} {'delta':>8} {'levels':>6} {'converted':>10} {'certified':>10}")
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-6), (1.0, 1e-9), (4.0, 1e-6)):
        for levels in (1, 5, 20):

            def certify(rho: Fraction, levels: int = levels, epsilon: float = epsilon) -> float:
                return certified_delta(levels_of_rho(rho, levels), epsilon)

            found = calibrated_rho(epsilon, delta, certify)
            print(
                f"{epsilon:>8} {delta:>8} {levels:>6} "
                f"{float(zcdp_rho(epsilon, delta)):>10.4g} {float(found):>10.4g}"
            )
    print(f"\n{'sigma':>8} {f'{LEVELS} levels, s':>14} {'dp-accounting, 1 level, s':>26}")
    for sigma in (1.0, 1e2, 1e4, 1e5):
        theirs = seconds(
            lambda sigma=sigma: privacy_loss_distribution.from_discrete_gaussian_mechanism(sigma)
        )
        own = seconds(lambda sigma=sigma: certify_levels(sigma))
        print(f"{sigma:>8g} {own:>14.3f} {theirs:>26.3f}")


def print_ratios() -> None:
    """Print certified deltas over exact ones."""
    print(f"{'':<32} {'between losses':>22} {'at losses':>22}")
    for name, moved in cases():
        law, line = composed(moved), f"{name:<32}"
        for epsilons in (between(law), on_atoms(law)):
            found = ratios(moved, law, epsilons)
            line += f" {min(found) - 1:>10.1e} {max(found):>11.6f}" if found else f"{'-':>23}"
        print(line, flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budgets", action="store_true", help="the rho of releases, and seconds")
    if parser.parse_args(arguments).budgets:
        print_budgets()
    else:
        print_ratios()


if __name__ == "__main__":
    main()
