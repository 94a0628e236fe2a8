"""The rho that a release at (epsilon, delta) gets, and what certifying it costs.

First, for levels of unequal budgets (10 : 11 : 12 ...) and add_remove: the rho that conversion
from zCDP allows, and the one that the certificate of `dpcore.privacy.loss` finds. Then the seconds
of one certificate for many levels, and of one distribution of dp-accounting for a single level.

    python -m benchmarks.accounting
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

from dp_accounting.pld import privacy_loss_distribution

from dptrees.dpcore.noise.laws import DiscreteGaussian, NoiseLaw
from dptrees.dpcore.privacy.conversion import calibrated_rho, zcdp_rho
from dptrees.dpcore.privacy.loss import certified_delta

LEVELS = 30


def moved(rho: Fraction, levels: int) -> list[tuple[NoiseLaw, int]]:
    """The laws of levels that share a rho, each with one count that moves by one."""
    parts = range(10, 10 + levels)
    amounts = [rho * Fraction(part, sum(parts)) for part in parts]
    return [(DiscreteGaussian(sigma_squared=1 / (2 * amount)), 1) for amount in amounts]


def seconds(run: Callable[[], object]) -> float:
    """How long something takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def certificate(sigma: float) -> object:
    """Certify delta for 30 levels with laws near one sigma."""
    laws = [
        (DiscreteGaussian(sigma_squared=Fraction(sigma * (1 + level / 100)) ** 2), 1)
        for level in range(LEVELS)
    ]
    return certified_delta(laws, 1.0)


def main() -> None:
    """Prints the two tables."""
    print(f"{'epsilon':>8} {'delta':>8} {'levels':>6} {'converted':>10} {'certified':>10}")
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-6), (1.0, 1e-9), (4.0, 1e-6)):
        for levels in (1, 5, 20):

            def certify(rho: Fraction, levels: int = levels, epsilon: float = epsilon) -> float:
                return certified_delta(moved(rho, levels), epsilon)

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
        print(
            f"{sigma:>8g} {seconds(lambda sigma=sigma: certificate(sigma)):>14.3f} {theirs:>26.3f}"
        )


if __name__ == "__main__":
    main()
