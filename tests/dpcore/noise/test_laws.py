"""The noise laws as values, and their samples against their exact laws.

Statistical limits have a false-alarm probability of at most 1e-6 each (4.9 standard deviations of
a normal, two-sided). The streams are fixed, so a test that passes keeps passing.
"""

from __future__ import annotations

import hashlib
import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dptrees.dpcore.noise.exact_sampling import DigitTable
from dptrees.dpcore.noise.laws import (
    SAMPLER_VERSION,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseLaw,
    ZeroNoise,
)
from dptrees.dpcore.noise.randomness import RandomStream, ReleaseKey, public_stream
from tests.dpcore.cases import for_each

FALSE_ALARM = 1e-6
Z = 4.9
SIZE = 2_000_000


def laplace(scale: object) -> DiscreteLaplace:
    return DiscreteLaplace(scale=Fraction(scale))


def gaussian(sigma: object) -> DiscreteGaussian:
    return DiscreteGaussian(sigma_squared=Fraction(sigma) ** 2)


def stream(*parts: object) -> RandomStream:
    return public_stream("test", *map(repr, parts))


def chi_squared(observed: np.ndarray, expected: np.ndarray) -> float:
    """The p-value of counts against their expectations, both over all outcomes."""
    enough = expected >= 10
    observed = np.append(observed[enough], observed[~enough].sum())
    expected = np.append(expected[enough], expected[~enough].sum())
    statistic = ((observed - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    return float(stats.chi2.sf(statistic, expected.size - 1))


def p_value(sample: np.ndarray, law: NoiseLaw) -> float:
    """Chi-squared of a sample against a law, the tails beyond 1e-4 being one outcome each."""
    end = law.bound(1e-4)
    k = np.arange(-end, end + 1)
    tail = law.survival(end)
    expected = np.concatenate([[tail], law.pmf(k), [tail]]) * sample.size
    clipped = np.clip(sample, -end - 1, end + 1) + end + 1
    return chi_squared(np.bincount(clipped, minlength=k.size + 2), expected)


LAWS = [
    (laplace(Fraction(1, 3)), laplace(Fraction(7, 20))),
    (laplace(1), laplace(Fraction(21, 20))),
    (laplace(10), laplace(Fraction(21, 2))),
    (laplace(Fraction(200, 3)), laplace(70)),
    (laplace(1000), laplace(1050)),
    (gaussian(Fraction(1, 2)), gaussian(Fraction(21, 40))),
    (gaussian(1), gaussian(Fraction(21, 20))),
    (gaussian(10), gaussian(Fraction(21, 2))),
    (gaussian(Fraction(200, 3)), gaussian(70)),
    (gaussian(1000), gaussian(1050)),
]


@pytest.mark.parametrize(("law", "wrong"), LAWS, ids=str)
def test_samples_follow_the_law_and_no_scale_5_percent_off(law: NoiseLaw, wrong: NoiseLaw) -> None:
    sample = law.sample(stream(law), SIZE)
    assert sample.dtype == np.int64 and sample.shape == (SIZE,)
    assert p_value(sample, law) > FALSE_ALARM
    assert p_value(sample, wrong) < FALSE_ALARM / 1000


@pytest.mark.parametrize(
    ("law", "kurtosis"),
    [
        (laplace(10**4), 6),
        (laplace(10**9), 6),
        (laplace(2**40), 6),
        (gaussian(10**4), 3),
        (gaussian(10**9), 3),
        (gaussian(2**40), 3),
    ],
    ids=str,
)
def test_moments_at_large_scales(law: NoiseLaw, kurtosis: int) -> None:
    size = 1_000_000
    sample = law.sample(stream(law), size).astype(np.float64) / math.sqrt(law.variance)
    assert abs(sample.mean()) < Z / math.sqrt(size)
    limit = Z * math.sqrt((kurtosis - 1) / size)
    assert abs((sample**2).mean() - 1) < limit
    assert abs(((1.05 * sample) ** 2).mean() - 1) > limit
    # The distribution function at 99 points, as counts between them.
    edges = np.sort(np.concatenate([-np.geomspace(0.01, 5, 49), [0.0], np.geomspace(0.01, 5, 49)]))
    whole = np.floor(edges * math.sqrt(law.variance))
    mass = -np.diff(law.survival(whole), prepend=1.0, append=0.0) * size
    bins = np.searchsorted(whole, sample * math.sqrt(law.variance), side="left")
    assert chi_squared(np.bincount(bins, minlength=mass.size), mass) > FALSE_ALARM
    bins = np.searchsorted(whole, sample * math.sqrt(law.variance) * 1.05, side="left")
    assert chi_squared(np.bincount(bins, minlength=mass.size), mass) < FALSE_ALARM


@pytest.mark.parametrize("scale", [10**4, 2**40 - 1])
def test_laplace_digits_are_independent_and_geometric(scale: int) -> None:
    """Folded at -1/2 the Laplace variable is geometric: its digits have truncated laws, apart."""
    sample = laplace(scale).sample(stream("digits", scale), SIZE)
    folded = sample ^ (sample >> 63)
    bits = scale.bit_length() - 3
    low, high = folded & ((1 << bits) - 1), np.minimum(folded >> bits, 20)
    q_low, q_high = math.exp(-(2.0 ** (bits - 6)) / scale), math.exp(-(2.0**bits) / scale)
    low_law = q_low ** np.arange(64) * (1 - q_low) / (1 - q_low**64)
    high_law = q_high ** np.arange(21) * (1 - q_high)
    high_law[20] = q_high**20
    table = np.bincount((low >> (bits - 6)) * 21 + high, minlength=64 * 21)
    assert chi_squared(table, np.outer(low_law, high_law).ravel() * SIZE) > FALSE_ALARM
    uniform = np.outer(np.full(64, 1 / 64), high_law).ravel() * SIZE
    assert chi_squared(table, uniform) < FALSE_ALARM
    lowest = np.bincount(low & 63, minlength=64)
    q = math.exp(-1 / scale)
    last_law = q ** np.arange(64) * (1 - q) / (1 - q**64) if scale < 10**6 else np.full(64, 1 / 64)
    assert chi_squared(lowest, last_law * SIZE) > FALSE_ALARM


@for_each("law", [laplace(1), laplace(77), laplace(10**9), gaussian(1), gaussian(77)])
def test_signs_are_fair_and_neighbours_uncorrelated(law: NoiseLaw) -> None:
    sample = law.sample(stream("signs", law), SIZE)
    positive, negative = int((sample > 0).sum()), int((sample < 0).sum())
    assert abs(positive - negative) < Z * math.sqrt(positive + negative)
    # -X - 1 in place of X: what a wrong treatment of the sign would give.
    flipped = -sample[: SIZE // 2] - 1
    if law.variance < 10:
        wrong = int((flipped > 0).sum()) - int((flipped < 0).sum())
        assert abs(wrong) > Z * math.sqrt(SIZE)
    unit = sample / math.sqrt(law.variance)
    for lag in (1, 2, 4, 1 << 15):
        assert abs((unit[lag:] * unit[:-lag]).mean()) < Z * 1.02 / math.sqrt(SIZE)


@pytest.mark.parametrize("law", [laplace(3), laplace(300), gaussian(3), gaussian(300)], ids=str)
def test_small_draws_follow_the_law(law: NoiseLaw) -> None:
    """Many draws of few values, as the levels near a root make them."""
    sample = np.concatenate([law.sample(stream("small", i), 11) for i in range(4000)])
    assert p_value(sample, law) > FALSE_ALARM
    assert abs((sample.astype(float) ** 2).mean() / law.variance - 1) < Z * math.sqrt(5 / 44000)


def test_samples_are_a_function_of_law_stream_and_size() -> None:
    for law in (laplace(5), laplace(500), gaussian(5), gaussian(500)):
        first = law.sample(stream("same"), 100_000)
        np.testing.assert_array_equal(first, law.sample(stream("same"), 100_000))
        assert (first != law.sample(stream("other"), 100_000)).any()
        one = stream("same")
        np.testing.assert_array_equal(law.sample(one, 100_000), first)
        assert (law.sample(one, 100_000) != first).any()
        assert law.sample(one, 0).shape == (0,)


GOLDEN = [
    (laplace(Fraction(1, 3)), "e7b5fb8ede2e07f2", [0, 0, 0, 1, 0]),
    (laplace(10), "82d570dcf978e775", [-2, 4, 0, 39, 6]),
    (laplace(10**4), "b12c6b3d82e15a43", [-1747, 6393, 15616, -7771, 7669]),
    (
        laplace(2**40),
        "f28045c66d4e8540",
        [201803736018, -662302304250, 1743443443968, 860533743962, 383758867388],
    ),
    (gaussian(Fraction(1, 2)), "798b8f8f803cb2e2", [0, 0, 0, 1, 0]),
    (gaussian(10), "282cff5b6a277682", [-2, -5, 0, 23, 6]),
    (gaussian(10**4), "a23c094a806d2a28", [-2003, 6393, 12544, 7514, 7413]),
    (
        gaussian(2**40),
        "8d913b581c4b5ea7",
        [236163474386, -662302304250, -1399846060289, 826174005594, 821051134197],
    ),
]


@pytest.mark.parametrize("scale", [Fraction(1, 7), 63, 64, 127, 128, 10**9, 2**40], ids=str)
def test_laws_are_drawn_from_their_own_exponent(
    scale: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly, and with 32 to 64 high digits to a scale wherever there is a low digit."""
    tables: list[DigitTable] = []
    monkeypatch.setattr(
        "dptrees.dpcore.noise.laws.draw",
        lambda table, _, size: tables.append(table) or np.empty(size),
    )
    laplace(scale).sample(stream("n"), 1)
    gaussian(scale).sample(stream("n"), 1)
    for k in (0, 1, 2, 1000):
        assert tables[0].exponent(k) == k / Fraction(scale)
        assert tables[1].exponent(k) == Fraction(k * k) / (2 * Fraction(scale) ** 2)
    for table in tables:
        assert table.low_bits == 0 or Fraction(scale, 2**table.low_bits) >= 32
        assert Fraction(scale, 2**table.low_bits) <= 64


@for_each(("law", "digest", "first"), GOLDEN)
def test_golden_values(law: NoiseLaw, digest: str, first: list[int]) -> None:
    """Fails when the bits drawn change: then SAMPLER_VERSION must change too."""
    assert SAMPLER_VERSION == 1
    sample = law.sample(public_stream("golden"), 100_000)
    assert sample[:5].tolist() == first
    assert hashlib.sha256(sample.astype("<i8").tobytes()).hexdigest()[:16] == digest


def test_zero_noise() -> None:
    law = ZeroNoise()
    assert not law.sample(stream("zero"), 7).any() and law.sample(stream("zero"), 7).shape == (7,)
    assert (law.variance, law.bound(0.01)) == (0.0, 0)
    assert law.pmf([-1, 0, 1]).tolist() == [0, 1, 0]
    assert law.survival([-1, 0, 1]).tolist() == [1, 0, 0]
    assert law.characteristic_function([0.0, 2.0]).tolist() == [1, 1]
    assert isinstance(law, NoiseLaw)


@for_each("value", [1.0, "1", None, True])
def test_parameters_that_are_not_rational_are_refused(value: Fraction) -> None:
    with pytest.raises(ValueError, match=r"scale is a .*; it must be a Fraction"):
        DiscreteLaplace(scale=value)
    with pytest.raises(ValueError, match=r"sigma_squared is a .*; it must be a Fraction"):
        DiscreteGaussian(sigma_squared=value)


@for_each(
    ("scale", "message"),
    [
        (Fraction(0), "is 0; it must be positive"),
        (Fraction(-1, 2), "is -1/2; it must be positive"),
        (Fraction(2**40) + Fraction(1, 10), "at most 2.40, so that sums"),
        (Fraction(1, 2**41), "gives no privacy"),
    ],
)
def test_parameters_out_of_range_are_refused(scale: Fraction, message: str) -> None:
    with pytest.raises(ValueError, match=f"scale .*{message}"):
        DiscreteLaplace(scale=scale)
    squared = scale * abs(scale)
    message = message.replace("-1/2", "-1/4").replace("2.40", "2.80")
    with pytest.raises(ValueError, match=f"sigma_squared .*{message}"):
        DiscreteGaussian(sigma_squared=squared)


def test_laws_at_the_ends_of_their_range() -> None:
    for scale in (Fraction(1, 2**40), Fraction(2**40)):
        for law in (laplace(scale), gaussian(scale)):
            assert law.sample(stream("ends"), 1000).shape == (1000,)
            assert np.isfinite([law.variance, law.survival(3), law.pmf(0)]).all()
    assert not gaussian(Fraction(1, 2**40)).sample(stream("ends"), 200_000).any()


def test_negative_sizes_are_refused() -> None:
    for law in (laplace(1), gaussian(1), ZeroNoise()):
        with pytest.raises(ValueError, match="size is -1"):
            law.sample(stream("n"), -1)


@for_each(
    "law",
    [
        DiscreteLaplace(scale=Fraction(1, 3)),
        DiscreteLaplace(scale=Fraction(1000, 3)),
        DiscreteGaussian(sigma_squared=Fraction(10**4)),
    ],
)
def test_a_place_has_its_noise_whichever_others_are_drawn(law: NoiseLaw) -> None:
    key, places = ReleaseKey(bytes(32)), np.arange(70_000, dtype=np.uint64)
    every = law.sample(key.placed_streams(places, "noise"), places.size)
    some = places[3::7][::-1]
    drawn = law.sample(key.placed_streams(some, "noise"), some.size)
    assert np.array_equal(drawn, every[some.astype(np.int64)])
    assert p_value(every, law) > 1e-6


def decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


SCALES = [Fraction(1, 1000), Fraction(1, 20), Fraction(1), Fraction(77, 3), Fraction(10**6)]
LARGE = [Fraction(10**9), Fraction(10**12)]


@for_each("scale", SCALES + LARGE)
def test_laplace_functions(scale: Fraction) -> None:
    law = DiscreteLaplace(scale=scale)
    with localcontext(Context(prec=80)):
        q = (-1 / decimal(scale)).exp()
        assert law.variance == pytest.approx(float(2 * q / (1 - q) ** 2), rel=1e-13)
        for k in (0, 1, 5, int(scale), int(20 * scale), int(300 * scale)):
            tail, mass = q ** (k + 1) / (1 + q), (1 - q) / (1 + q) * q**k
            assert float(law.survival(k)) == pytest.approx(float(tail), rel=1e-12)
            assert float(law.survival(-k - 1)) == pytest.approx(float(1 - tail), rel=1e-12)
            assert float(law.pmf(k)) == float(law.pmf(-k)) == pytest.approx(float(mass), rel=1e-12)


@for_each("t", [0.0, 1e-13, 1e-9, 1e-3, 0.5, math.pi, 10.0, 9999.5])
@for_each("scale", SCALES + LARGE)
def test_laplace_characteristic_function(scale: Fraction, t: float) -> None:
    with localcontext(Context(prec=80)):
        q = (-1 / decimal(scale)).exp()
        # 1 - cos t by its series at small t, where a float64 cosine is 1.
        versine = (
            Decimal(t) ** 2 / 2 - Decimal(t) ** 4 / 24 if t < 1e-2 else 1 - Decimal(math.cos(t))
        )
        truth = (1 - q) ** 2 / ((1 - q) ** 2 + 2 * q * versine)
    value = float(DiscreteLaplace(scale=scale).characteristic_function(t))
    assert value == pytest.approx(float(truth), rel=1e-9)


SIGMAS = [Fraction(1, 20), Fraction(1, 3), Fraction(9, 10), Fraction(3), Fraction(60)]


@for_each("sigma", SIGMAS)
def test_gaussian_functions(sigma: Fraction) -> None:
    law = gaussian(sigma)
    with localcontext(Context(prec=60)):
        # 1e-800 is beyond what float64 holds.
        count = int(61 * sigma) + 3
        two_variances = 2 * decimal(sigma) ** 2
        weights = [(-Decimal(k * k) / two_variances).exp() for k in range(count)]
        tails = list(accumulate(reversed(weights)))[::-1]
        total = weights[0] + 2 * tails[1]
        second = 2 * sum(k * k * weight for k, weight in enumerate(weights)) / total
        assert law.variance == pytest.approx(float(second), rel=1e-12)
        for k in sorted({0, 1, 2, int(sigma), int(5 * sigma), int(30 * sigma), int(36 * sigma)}):
            tail = float(tails[k + 1] / total) if k + 1 < count else 0.0
            assert float(law.pmf(k)) == pytest.approx(float(weights[k] / total), rel=1e-12)
            assert float(law.survival(k)) == pytest.approx(tail, rel=1e-12)
            assert float(law.survival(-k - 1)) == pytest.approx(1 - tail, rel=1e-12)


def test_gaussian_survival_where_the_formula_changes() -> None:
    """At sigma = 1000 the integral with corrections equals the sum of the terms."""
    sigma = 1000
    terms = np.exp(-0.5 * (np.arange(40 * sigma) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
    tails = np.cumsum(terms[::-1])[::-1]
    k = np.array([0, 1, 10, 500, 1000, 5000, 20_000, 30_000])
    np.testing.assert_allclose(gaussian(sigma).survival(k), tails[k + 1], rtol=2e-11)
    just_below = DiscreteGaussian(sigma_squared=Fraction(sigma**2) - Fraction(1, 10**9))
    np.testing.assert_allclose(just_below.survival(k), tails[k + 1], rtol=2e-11)
    assert just_below.variance == pytest.approx(sigma**2, rel=1e-12)


@for_each("sigma", [Fraction(10**4), Fraction(10**9), Fraction(2**40)])
def test_gaussian_at_large_sigma_is_nearly_normal(sigma: Fraction) -> None:
    law, z = gaussian(sigma), np.array([0.0, 0.1, 1.0, 5.0, 30.0])
    k = np.floor(z * float(sigma))
    np.testing.assert_allclose(law.survival(k), stats.norm.sf((k + 0.5) / float(sigma)), rtol=1e-5)
    assert law.variance == float(sigma) ** 2
    t = z / float(sigma)
    np.testing.assert_allclose(law.characteristic_function(t), np.exp(-(z**2) / 2), rtol=1e-11)


ENUMERABLE = [laplace(Fraction(1, 20)), laplace(2), laplace(30)] + [
    gaussian(sigma) for sigma in (*SIGMAS, Fraction(499, 1000), Fraction(1, 2))
]


@for_each("law", ENUMERABLE)
def test_characteristic_function_is_the_cosine_sum(law: NoiseLaw) -> None:
    k = np.arange(-1500, 1501)
    t = np.array([[0.0, 1e-6, 0.01, 0.3, 1.0], [2.0, math.pi, 6.0, 100.0, 10_000.0]])
    value = law.characteristic_function(t)
    np.testing.assert_allclose(value, np.cos(t[..., None] * k) @ law.pmf(k), atol=1e-9)
    assert value.shape == t.shape and value[0, 0] == pytest.approx(1, abs=1e-15)


@for_each("law", [*ENUMERABLE, laplace(10**6), gaussian(5000)])
def test_functions_agree(law: NoiseLaw) -> None:
    k = np.arange(-1500, 1501)
    np.testing.assert_allclose(law.survival(k - 1) - law.survival(k), law.pmf(k), atol=2e-15)
    np.testing.assert_allclose(law.survival(-k - 1), 1 - law.survival(k), atol=1e-15)
    assert isinstance(law, NoiseLaw)


@given(
    st.fractions(min_value=Fraction(1, 100), max_value=10**6),
    st.floats(min_value=1e-12, max_value=1.0),
    st.sampled_from([laplace, gaussian]),
)
def test_bound_is_the_least(scale: Fraction, probability: float, make: object) -> None:
    law = make(scale)  # type: ignore[operator]
    bound = law.bound(probability)
    assert 2 * float(law.survival(bound)) <= probability
    assert bound == 0 or 2 * float(law.survival(bound - 1)) > probability


@for_each("law", [laplace(10), gaussian(10), gaussian(2000)])
def test_bound_by_hand(law: NoiseLaw) -> None:
    beyond = float(law.survival(30)) * 2
    assert law.bound(beyond) == 30 and law.bound(beyond * (1 - 1e-9)) == 31
    assert law.bound(1.0) == 0


@for_each("probability", [0.0, -0.1, 1.1, math.nan])
def test_wrong_probabilities_are_refused(probability: float) -> None:
    for law in (laplace(1), gaussian(1), ZeroNoise()):
        with pytest.raises(ValueError, match="probability is"):
            law.bound(probability)
