"""benchmarks/certificate.py: the certified delta is never below the exact one, and little above."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.certificate import (
    Moved,
    between,
    cases,
    composed,
    gaussians,
    main,
    on_atoms,
    ratios,
)
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace

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


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5, 4.0])
def test_the_exact_delta_is_that_of_the_definition(epsilon: float) -> None:
    """sum (P - e^epsilon Q)_+ over all pairs of outputs of a Gaussian and a Laplace count."""
    at = np.arange(-60, 61.0)
    p, q = np.ones((1, 1)), np.ones((1, 1))
    for turn, weight in enumerate((lambda x: np.exp(-(x**2) / 8), lambda x: np.exp(-abs(x) / 3))):
        norm = math.fsum(weight(np.arange(-400, 401.0)))
        shape = (-1, 1) if turn else (1, -1)
        p = p * (weight(at) / norm).reshape(shape)
        q = q * (weight(at - 1) / norm).reshape(shape)
    expected = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
    laplace = DiscreteLaplace(scale=Fraction(3))
    found = composed([*gaussians(4), (laplace, 1)]).delta(epsilon)
    assert found == pytest.approx(expected, rel=1e-6)


def test_epsilon_at_an_atom_counts_it_not() -> None:
    """sigma^2 = 1/3, one count: at 10.5 = 3/2 + 3 * 3 only the atoms from 4 on count."""
    law = composed(gaussians("1/3"))
    weights = np.exp(-1.5 * np.arange(-30, 31.0) ** 2)
    beyond = np.arange(4, 31)
    expected = float(weights[34:] / weights.sum() @ -np.expm1(-3.0 * (beyond - 3)))
    assert law.delta(10.5) == pytest.approx(expected, rel=1e-12)
    assert ratios(gaussians("1/3"), law, [10.5])[0] > 2


def test_the_table_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.certificate.cases", lambda: [("a case", gaussians(2))])
    main([])
    _, line = capsys.readouterr().out.splitlines()
    low, high, at_low, at_high = map(float, line.removeprefix("a case").split())
    assert 0 <= low <= high - 1 + 1e-6 and 0 <= at_low <= at_high - 1 + 1e-6
