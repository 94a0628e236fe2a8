"""Ghazi et al., "On Differentially Private Counting on Trees": baselines, constants, lower bounds.

What of the paper is a formula alone; `dpcore.papers.ghazi` has the algorithms. Corrected: Lemma 5.3
(a complete binary tree of d levels has 2^(d-1) leaves, not 2^d, so d - 3 becomes d - 4, as Remark
5.5 has it), and with it Corollary 5.4 and Theorem 5.1; the constant of Theorem A.1.
"""

from __future__ import annotations

import math

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp2, expm1, log, log1p, log2, log_add_exp

# Section 2: the baselines.


def baseline_mrmse(depth: int, epsilon: float, delta: float | None = None) -> float:
    """Corollary 2.7: the mRMSE of Laplace noise, or of Gaussian noise where a delta is given.

    The l1 and l2 sensitivities of a tree are d and sqrt(d): sqrt(2) d / epsilon, and
    sqrt(2 d ln(1.25 / delta)) / epsilon for epsilon below 1.

    >>> round(baseline_mrmse(20, 1.0), 2), round(baseline_mrmse(20, 0.5, 1e-6), 2)
    (28.28, 47.39)
    """
    if delta is None:
        return math.sqrt(2) * depth / epsilon
    return math.sqrt(2 * depth * log(1.25 / delta)) / epsilon


# Section 3: thresholds.


def failure_probability(mrmse: float, *, alpha: float, alpha_prime: float, tau_min: float) -> float:
    """Lemma 3.2: the eta at which an alpha-mRMSE makes estimates (alpha', eta)-accurate.

    Returns:
        (mrmse / ((alpha' - alpha) tau_min))^2.

    >>> failure_probability(2.0, alpha=0.0, alpha_prime=0.5, tau_min=40.0)
    0.010000000000000002
    """
    ratio = mrmse / ((alpha_prime - alpha) * tau_min)
    return ratio * ratio


# Section 4: constants.


def published_threshold(
    *, depth: int, alpha: float, epsilon: float, delta: float, eta: float, corrected: bool = True
) -> float:
    """Corollary 4.7: tau_min in closed form, with the corrected C, or as printed.

    324 (1 + alpha)^2 (1 + 2 alpha / 3)^2 / (alpha^4 epsilon) max(8 ln(4 d / eta),
    ln(1 + 2 (e^(epsilon / 4) - 1) / delta)); as printed without the factor r^2.

    >>> values = dict(depth=20, alpha=0.5, epsilon=1.0, delta=1e-6, eta=1 / 400)
    >>> [round(published_threshold(**values, corrected=each)) for each in (False, True)]
    [967971, 1720838]
    """
    growth = (1 + alpha) * (1 + 2 * alpha / 3 if corrected else 1)
    terms = 8 * log(4 * depth / eta), log1p(2 * expm1(epsilon / 4) / delta)
    return 324 * growth * growth / (alpha * alpha * alpha * alpha * epsilon) * max(terms)


# Section 5 and Appendix A: lower bounds.


def least_shift(depth: int, *, epsilon: float, delta: float, kappa: float) -> float:
    """Lemma 5.3 (corrected): a lower bound of D = 2 ceil(tau_max / (1 - alpha)).

    For (epsilon, delta)-DP and (alpha, kappa / 4)-accurate estimates of the complete binary tree
    of d levels. Its proof gives, with a = delta / (e^epsilon - 1),

        2^-(d-1)H(kappa) / 4 <= e^(epsilon D) 2^-(d-1) + a (e^(epsilon D) - 1),

    which is solved for D; Equation (7) is not supposed. H is the binary entropy.

    Args:
        depth: d, at least 1.
        epsilon, delta: positive; delta may be 0.
        kappa: 4 eta, above 0 and at most 1/2.

    >>> round(least_shift(100, epsilon=0.1, delta=0.0, kappa=0.05), 1)  # ln 2 (96 - 28.4 + 1) / .1
    475.8
    """
    entropy = -kappa * log2(kappa) - (1 - kappa) * log2(1 - kappa)
    steps = (depth - 1) * log(2.0)
    lost = [log(delta / expm1(epsilon))] if delta else []
    above, below = (
        log_add_exp(np.array([each, *lost])) for each in (-steps * entropy - log(4.0), -steps)
    )
    return max(0.0, (above - below) / epsilon)


def least_threshold(
    depth: int, *, alpha: float, eta: float, epsilon: float, delta: float = 0.0, kappa: float = 0.25
) -> float:
    """Corollary 5.4 (corrected): a lower bound of tau_max of (alpha, eta)-accurate estimates.

    The median of s = ceil(ln(4 / kappa) / (2 (1/2 - eta)^2)) copies errs with kappa / 4 at most,
    and costs (s epsilon, s delta). From D the bound is (1 - alpha)(D / 2 - 1).

    >>> round(least_threshold(1000, alpha=0.5, eta=0.25, epsilon=0.1), 2)
    13.55
    """
    copies = math.ceil(log(4 / kappa) / (2 * (0.5 - eta) * (0.5 - eta)))
    shift = least_shift(depth, epsilon=copies * epsilon, delta=copies * delta, kappa=kappa)
    return max(0.0, (1 - alpha) * (shift / 2 - 1))


def least_mrmse(depth: int, *, alpha: float, epsilon: float) -> float:
    """Theorem 5.1 (corrected): a lower bound of the alpha-mRMSE under pure epsilon-DP.

    Lemma 3.2 at alpha' = (1 + alpha) / 2 and eta = 1/4, with Corollary 5.4.

    >>> round(least_mrmse(1000, alpha=0.0, epsilon=0.1), 2)
    3.39
    """
    prime = (1 + alpha) / 2
    return (prime - alpha) / 2 * least_threshold(depth, alpha=prime, eta=0.25, epsilon=epsilon)


def factorization_norm(depth: int) -> float:
    """Theorem 5.2, Appendix A.7: a lower bound of gamma_2 of the complete binary tree of d levels.

    The nuclear norm of W o v u^T with u_j = n^(-1/2) and v_i = (2^depth(i) d)^(-1/2), n = 2^(d-1):
    (U^T U) has, with S(l) = sum_{m >= l} 2^(d-1-2m) up to d - 1, the eigenvalue S(0) / (n d) once
    and S(l + 1) / (n d) for each of the 2^l nodes of levels l = 0, ..., d - 2. By Theorem A.2 no
    (epsilon, delta)-DP mechanism has an mRMSE below this times a constant of epsilon and delta; the
    Laplace and Gaussian trees have a gamma_2 of sqrt(d) at most.

    >>> round(factorization_norm(9), 4), round(factorization_norm(36) / factorization_norm(9), 2)
    (1.8906, 1.87)
    """
    # S(l) / n, by the sum of a geometric series.
    sums = [(exp2(-2.0 * level) - exp2(-2.0 * depth)) * 4 / 3 for level in range(depth)]
    singular = math.sqrt(sums[0]) + math.fsum(
        exp2(float(level)) * math.sqrt(sums[level + 1]) for level in range(depth - 1)
    )
    return singular / math.sqrt(depth)


def relative_error_bound(alpha_rmse: float, *, alpha: float, kappa: float) -> float:
    """Lemma B.1: REL_kappa is at most sqrt(2) (RMSE_alpha / kappa + alpha).

    >>> round(relative_error_bound(3.0, alpha=0.1, kappa=30.0), 4)
    0.2828
    """
    return math.sqrt(2) * (alpha_rmse / kappa + alpha)
