"""Formulas of Ghazi et al. against dense algebra, exact programs and known mechanisms."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize

from dptrees.dpcore.papers.ghazi import Classification, is_accurate, smallest_threshold
from dptrees.dpcore.papers.ghazi_bounds import (
    baseline_mrmse,
    factorization_norm,
    failure_probability,
    least_mrmse,
    least_shift,
    least_threshold,
    published_threshold,
    relative_error_bound,
)


def tree_matrix(depth: int) -> tuple[np.ndarray, np.ndarray]:
    """W of the complete binary tree of so many levels, and the level of each of its nodes."""
    leaves = 2 ** (depth - 1)
    rows = [
        np.kron(np.eye(2**level), np.ones(leaves // 2**level)).reshape(2**level, leaves)
        for level in range(depth)
    ]
    return np.concatenate(rows), np.concatenate(
        [np.full(2**level, level) for level in range(depth)]
    )


@pytest.mark.parametrize("depth", [1, 2, 3, 6, 8])
def test_the_factorization_norm_is_the_nuclear_norm(depth: int) -> None:
    matrix, levels = tree_matrix(depth)
    u, v = np.full(matrix.shape[1], matrix.shape[1] ** -0.5), (2.0**levels * depth) ** -0.5
    assert np.linalg.norm(u) == pytest.approx(1) and np.linalg.norm(v) == pytest.approx(1)
    dense = np.linalg.svd(matrix * np.outer(v, u), compute_uv=False).sum()
    assert factorization_norm(depth) == pytest.approx(dense)
    # Both sides of gamma_2: the identity times the tree has the norm sqrt(d).
    assert dense <= math.sqrt(np.abs(matrix).sum(axis=0).max()) + 1e-9


def test_baselines_are_their_sensitivities() -> None:
    matrix, _ = tree_matrix(6)
    one, two = np.abs(matrix).sum(axis=0).max(), np.linalg.norm(matrix, axis=0).max()
    assert baseline_mrmse(6, 0.3) == pytest.approx(math.sqrt(2) * one / 0.3)
    assert baseline_mrmse(6, 0.3, 1e-5) == pytest.approx(
        two * math.sqrt(2 * math.log(1.25e5)) / 0.3
    )


@pytest.mark.parametrize("steps", [1, 4, 9])
@pytest.mark.parametrize("eta", [0.01, 0.05, 0.125])
def test_the_decoder_finds_its_leaf_as_often_as_the_proof_says(steps: int, eta: float) -> None:
    """The least E 2^-A kappa^B (1 - kappa)^C over all laws of (A, B, C) that accuracy allows."""
    kappa = 1 - 4 * eta
    cases = np.array([(b, c) for b in range(steps + 1) for c in range(steps + 1 - b)], float)
    b, c = cases.T
    found = 2.0 ** -(steps - b - c) * kappa**b * (1 - kappa) ** c
    solved = optimize.linprog(
        found,
        A_ub=np.stack((steps - b, c)),
        b_ub=[2 * eta * steps, eta * steps],
        A_eq=np.ones((1, len(b))),
        b_eq=[1],
    )
    entropy = -(4 * eta * math.log2(4 * eta) + kappa * math.log2(kappa))
    assert solved.fun >= 2 ** (-steps * entropy) / 4
    # Of one choice among two leaves the least shift follows from the same sentence by hand.
    shift = least_shift(steps + 1, epsilon=0.5, delta=0.0, kappa=4 * eta)
    assert shift == pytest.approx(max(0, (steps * (1 - entropy) - 2) * math.log(2) / 0.5))


@pytest.mark.parametrize("delta", [0.0, 1e-30, 1e-40])
def test_the_least_shift_solves_the_proofs_inequality(delta: float) -> None:
    depth, epsilon, kappa = 200, 0.2, 0.1
    entropy = -(kappa * math.log2(kappa) + (1 - kappa) * math.log2(1 - kappa))

    def gap(shift: float) -> float:
        left = Fraction(2 ** (-(depth - 1) * entropy)) / 4
        grown = Fraction(math.exp(epsilon * shift))
        right = grown / 2 ** (depth - 1) + Fraction(delta) * (grown - 1) / Fraction(
            math.expm1(epsilon)
        )
        return float((right - left) / left)

    shift = least_shift(depth, epsilon=epsilon, delta=delta, kappa=kappa)
    assert gap(shift * 1.001) > 0 > gap(shift * 0.999)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("depth", [10, 1000, 10**5])
def test_no_known_mechanism_is_below_the_lower_bounds(depth: int, alpha: float) -> None:
    """Laplace noise of scale d / epsilon; a lower bound 300 times as large would be refuted."""
    epsilon, eta = 0.1, 0.25
    scale = depth / epsilon
    assert least_mrmse(depth, alpha=alpha, epsilon=epsilon) <= baseline_mrmse(depth, epsilon)
    if alpha:
        reached = scale * math.log(1 / eta) / alpha  # P(|noise| > alpha tau) = eta
        bound = least_threshold(depth, alpha=alpha, eta=eta, epsilon=epsilon)
        assert bound <= reached
        assert depth < 1000 or 30_000 * bound > reached
    if depth >= 1000:
        assert least_threshold(depth, alpha=alpha, eta=eta, epsilon=epsilon) > 0


def test_accuracy_follows_from_a_small_mrmse_and_not_from_a_larger_one() -> None:
    """A law that reaches Chebyshev's inequality: 0, or just beyond what is allowed."""
    tau, alpha, prime, eta = 40.0, 0.1, 0.5, 0.01
    error = (prime - alpha) * tau * (1 + 1e-9)
    mrmse = math.sqrt(eta) * error
    assert failure_probability(mrmse, alpha=alpha, alpha_prime=prime, tau_min=tau) >= eta
    # At a count of 0 an error of alpha' tau is allowed, and alpha forgives nothing.
    allowed = is_accurate([prime * tau, prime * tau + 1], [0, 0], [tau, tau], alpha=prime)
    assert allowed.tolist() == [True, False]


def test_relative_errors_stay_below_lemma_b_1() -> None:
    values = itertools.product([0.0, 5.0, 200.0], [0.0, 3.0, 90.0], [0.05, 0.6], [10.0, 50.0])
    for count, error, alpha, kappa in values:
        rmse = max(error - alpha * count, 0)
        relative = error / max(count, kappa)
        assert relative <= relative_error_bound(rmse, alpha=alpha, kappa=kappa) + 1e-12


def test_the_published_constants_are_enough() -> None:
    """Corrected, above what accuracy needs; as printed, below what its own proof needs."""
    for alpha, epsilon in itertools.product([Fraction(1, 10), Fraction(1, 2)], [1, 4]):
        given = {"depth": 20, "delta": Fraction(1, 10**6), "eta": Fraction(1, 400)}
        least = smallest_threshold(alpha=alpha, epsilon=Fraction(epsilon), **given)
        found = published_threshold(
            alpha=float(alpha), epsilon=epsilon, depth=20, delta=1e-6, eta=1 / 400
        )
        assert least <= found <= 5 * least


def test_lemma_4_3_holds_where_c_is_an_integer_already() -> None:
    for bound in (Fraction(6000), Fraction(90_000)):
        made = Classification(
            depth=12,
            root_bound=bound,
            eta=Fraction(1, 100),
            alpha=Fraction(1, 2),
            tau=Fraction(1),
            epsilon=Fraction(2),
            delta=Fraction(1, 10**6),
        )
        # The next tau at which c = 2 M / tau is an integer.
        cutoff = math.floor(2 * bound / Fraction(made.published_threshold))
        if cutoff >= 2:
            tau = 2 * bound / cutoff
            Classification(**{**fields_by_name(made), "tau": tau}).check_accuracy()


def fields_by_name(made: Classification) -> dict[str, object]:
    names = ("depth", "root_bound", "eta", "alpha", "tau", "epsilon", "delta")
    return {name: getattr(made, name) for name in names}
