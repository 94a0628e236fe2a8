"""benchmarks/synthetic/bounds.py: the formulas in cases that can be done by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.synthetic import bounds


@pytest.mark.parametrize("dimensions", [1, 2, 5])
@pytest.mark.parametrize("k", [1, 2, 16, 1000])
def test_budgets_add_up_and_are_best(dimensions: int, k: int) -> None:
    sizes = bounds.level_sizes(dimensions=dimensions, k=k, depth=12)
    sigma = bounds.level_budgets(0.7, dimensions=dimensions, k=k, depth=12)
    assert sigma.sum() == pytest.approx(0.7)
    # Lemma 5: the sum of sizes over budgets is (sum of roots)^2 / epsilon, and no shift lowers it.
    least = (sizes / sigma).sum()
    assert least == pytest.approx(np.sqrt(sizes).sum() ** 2 / 0.7)
    for giver in range(12):
        shifted = sigma.copy()
        shifted[giver] *= 0.99
        shifted[giver + 1] += sigma[giver] * 0.01
        assert (sizes / shifted).sum() > least


def test_sizes_of_one_column() -> None:
    """Gamma_l = 1 down to L_k, then k 2^-(l-1)."""
    sizes = bounds.level_sizes(dimensions=1, k=8, depth=6)
    assert sizes.tolist() == [1, 1, 1, 1, 1, 0.5, 0.25]


def test_theorem_3_of_pmm_in_one_column() -> None:
    """All r + 1 levels have size 1: noise 10 sqrt 2 (r + 1)^2 / (epsilon n), resolution 2^-r."""
    terms = bounds.theorem3(1000, 0.5, dimensions=1, k=2**9, depth=9)
    assert terms.noise == pytest.approx(10 * math.sqrt(2) * 100 / 500)
    assert terms.approximation == 0
    assert terms.resolution == 2.0**-9
    assert terms.total == terms.noise + terms.resolution


def test_terms_of_sketch_and_tails_by_hand() -> None:
    """k = 4, r = 4, d = 1: levels 3 and 4 have diameters above of 1/4 and 1/8."""
    terms = bounds.theorem3(100, 1.0, dimensions=1, k=4, depth=4, width=10, skew=0.8)
    by_hand = (5 / 10 + 0.2) / 4 + (5 / 10 + 0.2 * 0.8) / 8
    assert terms.approximation == pytest.approx(by_hand)


def test_uniform_tails_halve() -> None:
    assert bounds.tail_fractions(k=4, depth=5, skew=0.5).tolist() == [0.5, 0.25, 0.125]


def test_more_hash_rows_cost_noise_below_the_whole_levels_only() -> None:
    one, three = (
        bounds.theorem3(100, 1.0, dimensions=2, k=4, depth=8, hash_rows=rows) for rows in (1, 3)
    )
    assert one.noise < three.noise < 3 * one.noise
    assert one.approximation == three.approximation


def test_rates_of_table_1() -> None:
    assert bounds.pmm_rate(1024, 1.0, dimensions=1) == pytest.approx(100 / 1024)
    assert bounds.pmm_rate(1024, 1.0, dimensions=2) == pytest.approx(1 / 32)
    assert bounds.srrw_rate(1024, 1.0, dimensions=1) == pytest.approx(10**1.5 / 1024)
    assert bounds.smooth_rate(10_000, 0.1, dimensions=1, order=2) == pytest.approx(10 * 10**-2)
    rate = bounds.corollary1(1024, 1.0, dimensions=1, k=16, width=32, skew=0.75)
    assert rate == pytest.approx(16 / 1024 + (1 / 32 + 0.25) / 16)
    flat = bounds.corollary1(1024, 1.0, dimensions=2, k=16, width=32)
    assert flat == pytest.approx(4 / 1024 + (1 / 32 + 1) / 4)
