"""Errors that forgive a multiple of the true count: alpha-RMSE, alpha-mRMSE and REL_kappa.

With z~ an estimate of the true count z >= 0,

    RMSE_alpha(z~, z) = sqrt(E max(|z~ - z| - alpha z, 0)^2),
    REL_kappa(z~, z)  = E|z~ - z| / max(z, kappa),
    mRMSE_alpha       = the largest RMSE_alpha over the queries and over all data sets.

Measured ones take the mean over releases. Predicted ones are expectations under a noise law, and
no data enter them. Unbiased noise that does not depend on the data has its worst RMSE_alpha at z
= 0, where alpha forgives nothing: its alpha-mRMSE is its standard deviation. Sources: Ghazi,
Kamath, Kumar, Manurangsi, Wu, Definition 1.4 (which prints the maximum over integer vectors of
any sign; counts are not negative) and Lemma B.1. The closed forms are derived here.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.elementary import exp, expm1, sinh
from dptrees.dpcore.arithmetic.normal import erfcx, normal_cdf
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.noise.laws import DiscreteLaplace, NoiseLaw

# A law is summed over so many standard deviations beyond what is forgiven: less than 1e-15 is left.
_REACH = 60
_LONGEST_SUM = 2**22


def alpha_rmse(estimates: npt.ArrayLike, truth: npt.ArrayLike, alpha: float) -> Floats:
    """Return the measured RMSE_alpha of every query.

    Args:
        estimates: (releases, ...) estimates.
        truth: (...) true counts, at least 0.
        alpha: the forgiven multiple of the count, at least 0.

    Returns:
        (...), in the unit of the counts.

    Raises:
        ValueError: a negative alpha or count, or no releases.

    Source: Ghazi et al., Definition 1.4.

    >>> alpha_rmse([[9, 100], [13, 140]], [10, 120], 0.1).round(3)
    array([1.414, 8.   ])
    """
    errors, counts = _errors(estimates, truth)
    _check_not_negative("alpha", alpha)
    excess = np.maximum(errors - alpha * counts, 0.0)
    return np.asarray(np.sqrt(np.mean(excess**2, axis=0)), dtype=np.float64)


def smoothed_relative_error(estimates: npt.ArrayLike, truth: npt.ArrayLike, kappa: float) -> Floats:
    """Return the measured REL_kappa of every query.

    Args:
        estimates: (releases, ...) estimates.
        truth: (...) true counts, at least 0.
        kappa: the smoothing factor, above 0.

    Returns:
        (...), a ratio.

    Raises:
        ValueError: a kappa that is not positive, a negative count, or no releases.

    Source: Ghazi et al., Appendix B.

    >>> smoothed_relative_error([[9, 1], [13, 3]], [10, 0], 5.0)
    array([0.2, 0.4])
    """
    errors, counts = _errors(estimates, truth)
    _check_kappa(kappa)
    return np.asarray(np.mean(errors, axis=0) / np.maximum(counts, kappa), dtype=np.float64)


def rms_relative_error(estimates: npt.ArrayLike, truth: npt.ArrayLike, kappa: float) -> Floats:
    """Return the measured root mean square relative error of every query, with a floor.

    Args:
        estimates: (releases, ...) estimates.
        truth: (...) true counts, at least 0.
        kappa: the floor of what errors are divided by, above 0.

    Returns:
        (...), a ratio: the root of E (z~ - z)^2, divided by max(z, kappa).

    Raises:
        ValueError: as of `smoothed_relative_error`.

    Source: Dawson, Ghazi, Kamath, Kumar et al., AdKDD 2023.

    >>> rms_relative_error([[9, 1], [13, 7]], [10, 0], 5.0).round(4)
    array([0.2236, 1.    ])
    """
    _check_kappa(kappa)
    return np.asarray(alpha_rmse(estimates, truth, 0.0) / np.maximum(_counts(truth), kappa))


def law_alpha_rmse(law: NoiseLaw, truth: npt.ArrayLike, alpha: float) -> Floats:
    """Return the RMSE_alpha of counts plus noise of a law.

    For discrete Laplace noise, with t = alpha z, k = floor(t) + 1, a = k - t and e = 1 - q,

        E max(|X| - t, 0)^2 = 2 q^k / (1 + q) (a^2 + 2 a q / e + q (1 + q) / e^2);

    other laws are summed term by term.

    Args:
        law: of the noise.
        truth: (...) true counts or guesses of them, at least 0.
        alpha: at least 0.

    Returns:
        (...), in the unit of the counts.

    Raises:
        ValueError: an argument out of range, or a law too wide to be summed (use
            `gaussian_alpha_rmse`).

    Source: Ghazi et al., Definition 1.4; the closed form is derived here.

    >>> from fractions import Fraction
    >>> law_alpha_rmse(DiscreteLaplace(scale=Fraction(10)), [0, 100, 1000], 0.1).round(4)
    array([14.1362,  8.5741,  0.0952])
    """
    counts = _counts(truth)
    _check_not_negative("alpha", alpha)
    forgiven = alpha * counts
    if isinstance(law, DiscreteLaplace):
        return _laplace_excess(float(law.scale), forgiven)
    flat = [math.sqrt(_summed_excess(law, t)) for t in forgiven.ravel().tolist()]
    return np.asarray(flat, dtype=np.float64).reshape(forgiven.shape)


def law_smoothed_relative_error(law: NoiseLaw, truth: npt.ArrayLike, kappa: float) -> Floats:
    """Return the REL_kappa of counts plus noise of a law: E|X| / max(z, kappa).

    Args:
        law: of the noise; E|X| = 2 q / (1 - q^2) for discrete Laplace noise, else summed.
        truth: (...) true counts or guesses of them, at least 0.
        kappa: above 0.

    Returns:
        (...), a ratio.

    Raises:
        ValueError: as in `law_alpha_rmse`.

    Source: Ghazi et al., Appendix B.

    >>> from fractions import Fraction
    >>> law_smoothed_relative_error(DiscreteLaplace(scale=Fraction(10)), [0, 100], 20.0).round(4)
    array([0.4992, 0.0998])
    """
    counts = _counts(truth)
    _check_kappa(kappa)
    if isinstance(law, DiscreteLaplace):
        mean = 1 / sinh(1 / float(law.scale))
    else:
        k = _reached(law, 1)
        mean = 2 * math.fsum(law.pmf(k) * k)
    return np.asarray(mean / np.maximum(counts, kappa), dtype=np.float64)


def gaussian_alpha_rmse(std_error: npt.ArrayLike, truth: npt.ArrayLike, alpha: float) -> Floats:
    """Return the RMSE_alpha of estimates with normal errors, as after least squares.

    With t = alpha z / s and phi, Q the normal density and upper tail,
    E max(|X| - t s, 0)^2 = 2 s^2 ((1 + t^2) Q(t) - t phi(t)).

    Args:
        std_error: (...) standard errors s, at least 0.
        truth: (...) true counts or guesses of them, at least 0.
        alpha: at least 0.

    Returns:
        (...), in the unit of the counts.

    Raises:
        ValueError: an argument out of range.

    Source: Ghazi et al., Definition 1.4; the closed form is derived here.

    >>> gaussian_alpha_rmse([10.0, 10.0], [0.0, 100.0], 0.1).round(4)
    array([10.    ,  3.8817])
    """
    spread, counts = np.asarray(std_error, dtype=np.float64), _counts(truth)
    _check_not_negative("alpha", alpha)
    if np.any(spread < 0):
        raise ValueError("std_error: a standard error is negative")
    t = np.divide(
        alpha * counts,
        spread,
        out=np.full(np.broadcast(spread, counts).shape, np.inf),
        where=np.broadcast_to(spread > 0, np.broadcast(spread, counts).shape),
    )
    # exp(-t^2 / 2) times a scaled tail: beyond t = 30 the bracket loses its digits and is below
    # 1e-195, so it counts as 0.
    near = np.minimum(t, 30.0)
    bracket = (1 + near * near) * erfcx(near / math.sqrt(2)) - near * math.sqrt(2 / math.pi)
    square = np.where(t < 30, np.maximum(bracket, 0.0) * exp(-(near * near) / 2), 0.0)
    return np.asarray(spread * np.sqrt(square), dtype=np.float64)


def gaussian_smoothed_relative_error(
    std_error: npt.ArrayLike, truth: npt.ArrayLike, kappa: float
) -> Floats:
    """Return the REL_kappa of estimates with normal errors: sqrt(2 / pi) s / max(z, kappa).

    Args:
        std_error: (...) standard errors s, at least 0.
        truth: (...) true counts or guesses of them, at least 0.
        kappa: above 0.

    Raises:
        ValueError: a kappa that is not positive or a negative count.

    Source: Ghazi et al., Appendix B.

    >>> gaussian_smoothed_relative_error([10.0], [100.0], 20.0).round(4)
    array([0.0798])
    """
    counts = _counts(truth)
    _check_kappa(kappa)
    spread = np.asarray(std_error, dtype=np.float64)
    return math.sqrt(2 / math.pi) * spread / np.maximum(counts, kappa)


def mixed_alpha_rmse(
    variance: npt.ArrayLike, fourth: npt.ArrayLike, truth: npt.ArrayLike, alpha: float
) -> Floats:
    """Return the RMSE_alpha of errors that are sums of normal and Laplace noise, by two cumulants.

    The law is that of G + L, normal of variance g^2 and Laplace of scale b, with the given variance
    and fourth cumulant: 2 b^2 + g^2 and 12 b^4. With t = alpha z, Q the upper tail of G,

        E max(|X| - t, 0)^2 = 2 (E max(G - t, 0)^2 + 2 b^2 P(X > t)).

    Exact for one Laplace or any normal errors; near for the sums that least squares make.

    Args:
        variance, fourth: (...) cumulants in rows^2 and rows^4; fourth from 0 to 3 variance^2.
        truth: (...) true counts or guesses of them, at least 0.
        alpha: at least 0.

    Returns:
        (...), in the unit of the counts.

    Raises:
        ValueError: an argument out of range.

    Source: Ghazi et al., Definition 1.4; the closed form is derived here.

    >>> mixed_alpha_rmse([200.0, 200.0], [0.0, 120000.0], [100.0, 100.0], 0.1).round(4)
    array([7.4814, 8.5776])
    """
    counts = _counts(truth)
    _check_not_negative("alpha", alpha)
    forgiven = alpha * counts
    g, b = _normal_and_laplace(variance, fourth)
    x, ratio = forgiven / g, g / b
    # exp(-x^2 / 2) is 0 beyond, and the tails of G with it.
    density = exp(-(np.minimum(x, 38.0) ** 2) / 2)
    tail = density * erfcx(x / math.sqrt(2)) / 2
    below = density * erfcx(np.maximum(ratio - x, 0.0) / math.sqrt(2)) / 2
    beyond = exp(np.minimum(ratio * (ratio / 2 - x), 0.0)) * normal_cdf(x - ratio)
    right = np.where(x < ratio, below, beyond)
    left = density * erfcx((x + ratio) / math.sqrt(2)) / 2
    normal = g**2 * ((1 + x**2) * tail - x * density / math.sqrt(2 * math.pi))
    square = 2 * (np.maximum(normal, 0.0) + 2 * b**2 * (tail + (right - left) / 2))
    return np.asarray(np.sqrt(square), dtype=np.float64)


def mixed_smoothed_relative_error(
    variance: npt.ArrayLike, fourth: npt.ArrayLike, truth: npt.ArrayLike, kappa: float
) -> Floats:
    """Return the REL_kappa of errors that are sums of normal and Laplace noise, by two cumulants.

    E|X| = g sqrt(2 / pi) + b erfcx(g / (b sqrt(2))), for the law of `mixed_alpha_rmse`.

    Args:
        variance, fourth, truth: as for `mixed_alpha_rmse`.
        kappa: above 0.

    Raises:
        ValueError: as `gaussian_smoothed_relative_error`.

    Source: Ghazi et al., Appendix B; the closed form is derived here.

    >>> mixed_smoothed_relative_error([200.0, 200.0], [0.0, 120000.0], [100.0, 0.0], 10.0).round(4)
    array([0.1128, 1.    ])
    """
    counts = _counts(truth)
    _check_kappa(kappa)
    g, b = _normal_and_laplace(variance, fourth)
    mean = g * math.sqrt(2 / math.pi) + b * erfcx(g / (b * math.sqrt(2)))
    return np.asarray(mean / np.maximum(counts, kappa), dtype=np.float64)


def _normal_and_laplace(variance: npt.ArrayLike, fourth: npt.ArrayLike) -> tuple[Floats, Floats]:
    """g and b, neither of them 0, so that ratios are finite."""
    whole = np.maximum(np.asarray(variance, dtype=np.float64), 1e-140)
    excess = np.asarray(fourth, dtype=np.float64) / whole**2
    laplace = np.clip(np.sqrt(np.maximum(excess, 0.0) / 3), 1e-12, 1 - 1e-12)
    return np.sqrt(whole * (1 - laplace)), np.sqrt(whole * laplace / 2)


def _laplace_excess(scale: float, forgiven: Floats) -> Floats:
    q, e = exp(-1 / scale), -expm1(-1 / scale)
    first = np.floor(forgiven) + 1
    a = first - forgiven
    bracket = a * a + 2 * a * q / e + q * (1 + q) / (e * e)
    # The square root of q^k by itself, so that it underflows later.
    return np.asarray(exp(-first / (2 * scale)) * np.sqrt(2 * bracket / (1 + q)), dtype=np.float64)


def _summed_excess(law: NoiseLaw, forgiven: float) -> float:
    k = _reached(law, math.floor(forgiven) + 1)
    return 2 * math.fsum(law.pmf(k) * (k - forgiven) ** 2)


def _reached(law: NoiseLaw, first: int) -> Floats:
    """The integers from `first` on that matter."""
    length = math.ceil(_REACH * math.sqrt(law.variance)) + 2
    if length > _LONGEST_SUM:
        raise ValueError("law: its variance is too large for a sum over its values")
    return first + np.arange(length, dtype=np.float64)


def _errors(estimates: npt.ArrayLike, truth: npt.ArrayLike) -> tuple[Floats, Floats]:
    given, counts = np.asarray(estimates, dtype=np.float64), _counts(truth)
    if given.shape[1:] != counts.shape or given.ndim == 0 or given.shape[0] == 0:
        raise ValueError(
            f"estimates has shape {given.shape}; it must be one or more releases of the shape "
            f"{counts.shape} of truth"
        )
    return np.abs(given - counts), counts


def _counts(truth: npt.ArrayLike) -> Floats:
    counts = np.asarray(truth, dtype=np.float64)
    if not np.all(counts >= 0):
        raise ValueError("truth: a count is negative or not a number")
    return counts


def _check_not_negative(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} is {value}; it must be at least 0 and finite")


def _check_kappa(kappa: float) -> None:
    if not 0 < kappa < math.inf:
        raise ValueError(f"kappa is {kappa}; it must be above 0 and finite")
