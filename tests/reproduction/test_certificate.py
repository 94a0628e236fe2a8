"""benchmarks/certificate.py: the certified delta is never below the exact one, and little above."""

from __future__ import annotations

from fractions import Fraction

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
from dptrees.dpcore.noise.laws import DiscreteGaussian

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


def test_the_table_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.certificate.cases", lambda: [("a case", gaussians(2))])
    main([])
    _, line = capsys.readouterr().out.splitlines()
    low, high, at_low, at_high = map(float, line.removeprefix("a case").split())
    assert 0 <= low <= high - 1 + 1e-6 and 0 <= at_low <= at_high - 1 + 1e-6
