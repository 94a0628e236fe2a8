"""Functions of one number: their errors, and that numbers and arrays have the same bits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import special

from dptrees.dpcore.arithmetic.elementary import (
    cos,
    cube_root,
    exp,
    exp2,
    expm1,
    log,
    log1p,
    log2,
    log_add_exp,
    power,
    sin,
    sinc,
    sinh,
    tanh,
)
from dptrees.dpcore.arithmetic.normal import (
    erfc,
    erfcx,
    log_normal_cdf,
    normal_cdf,
    normal_quantile,
    normal_quantiles,
)
from dptrees.dpcore.arrays import Floats
from tests.dpcore.cases import for_each

Exact = Callable[[Decimal], Decimal]


def _grid(low: float, high: float, number: int = 400) -> Floats:
    """Numbers with all their bits set somehow, from low to high."""
    return low + (high - low) * ((np.arange(number) * math.sqrt(2)) % 1.0)


def _sine(x: Decimal) -> Decimal:
    """By its series, at the precision of the context."""
    term = total = x
    n = 1
    while abs(term) > Decimal(10) ** -70:
        n += 2
        term *= -x * x / (n * (n - 1))
        total += term
    return total


def _cosine(x: Decimal) -> Decimal:
    term = total = Decimal(1)
    n = 0
    while abs(term) > Decimal(10) ** -70:
        n += 2
        term *= -x * x / (n * (n - 1))
        total += term
    return total


CASES: dict[str, tuple[Callable[[Floats], Floats], Exact, float, float, float]] = {
    "exp": (exp, Decimal.exp, -740.0, 709.0, 1.0),
    "exp near 0": (exp, Decimal.exp, -1.0, 1.0, 1.0),
    "expm1": (expm1, lambda x: x.exp() - 1, -2.0, 2.0, 2.0),
    "expm1 near 0": (expm1, lambda x: x.exp() - 1, -1e-9, 1e-9, 1.0),
    "expm1 far": (expm1, lambda x: x.exp() - 1, -60.0, 700.0, 1.5),
    "exp2": (exp2, lambda x: Decimal(2) ** x, -1020.0, 1020.0, 1.5),
    "log": (log, Decimal.ln, 1e-300, 1e300, 1.0),
    "log near 1": (log, Decimal.ln, 0.5, 2.0, 1.0),
    "log1p": (log1p, lambda x: (1 + x).ln(), -0.999, 5.0, 1.0),
    "log1p near 0": (log1p, lambda x: (1 + x).ln(), -1e-9, 1e-9, 1.0),
    "sinh": (sinh, lambda x: (x.exp() - (-x).exp()) / 2, -700.0, 700.0, 3.0),
    "tanh": (tanh, lambda x: 1 - 2 / ((2 * x).exp() + 1), -5.0, 25.0, 2.0),
    "sin": (sin, _sine, -40.0, 40.0, 2.0),
    "cos": (cos, _cosine, -40.0, 40.0, 2.0),
}


@pytest.mark.parametrize("name", CASES)
def test_errors_in_units_of_the_last_place(name: str) -> None:
    function, exact, low, high, units = CASES[name]
    x = _grid(low, high)
    with localcontext() as context:
        context.prec = 90
        for at, value in zip(x.tolist(), function(x).tolist(), strict=True):
            true = exact(Decimal(at))
            assert abs(Decimal(value) - true) <= Decimal(units * math.ulp(float(true))), at


@for_each("function", [exp, exp2, expm1, log, log1p, sinh, tanh, sin, cos, erfc, erfcx, normal_cdf])
def test_a_number_has_the_bits_of_an_array(function: Callable[[Floats], Floats]) -> None:
    ends = [0.0, -0.0, 1.0, -1.0, 710.0, -800.0, 1e300, 5e-324, math.inf, -math.inf, math.nan]
    x = np.concatenate([_grid(-30.0, 30.0), _grid(-1e9, 1e9, 50), ends])
    numbers = np.array([function(each) for each in x.tolist()])  # type: ignore[arg-type]
    assert np.array_equal(function(x), numbers, equal_nan=True)
    assert function(np.ones((0, 2))).shape == (0, 2)


@for_each("x", [1e6, 123456789.125, 1e22, 2.0**1000, -(3.0**200)])
def test_large_angles_are_reduced_exactly(x: float) -> None:
    # sin and cos of the exact remainder, by pi to 400 digits (Machin).
    with localcontext() as context:
        context.prec = 420
        quarter = _half_pi()
        k = (Decimal(x) / quarter).to_integral_value()
        rest = Decimal(x) - k * quarter
        turned = int(k) % 4
        true = [_sine(rest), _cosine(rest)]
        sine = true[turned % 2] * (1 if turned < 2 else -1)
        cosine = true[(turned + 1) % 2] * (1 if turned in (0, 3) else -1)
    assert math.isclose(sin(x), float(sine), rel_tol=4e-16)
    assert math.isclose(cos(x), float(cosine), rel_tol=4e-16)


def _half_pi() -> Decimal:
    def arctangent(inverse: int) -> Decimal:
        power_, n, total = Decimal(1) / inverse, 1, Decimal(0)
        while abs(power_) > Decimal(10) ** -419:
            total += power_ / n * (-1) ** (n // 2)
            power_ /= inverse * inverse
            n += 2
        return total

    return 8 * arctangent(5) - 2 * arctangent(239)


def test_the_normal_law_beside_scipy() -> None:
    x = np.concatenate([_grid(-6.0, 26.0), _grid(-0.6, 0.6), _grid(0.3, 5.0)])
    # SciPy errs by 1e-14 itself in the far tail.
    assert np.allclose(erfc(x), special.erfc(x), rtol=1e-13, atol=0)
    assert np.allclose(erfcx(x), special.erfcx(x), rtol=1e-14, atol=0)
    assert np.allclose(normal_cdf(-x), special.ndtr(-x), rtol=1e-12, atol=0)
    far = _grid(-300.0, 8.0)
    logs = [log_normal_cdf(each) for each in far.tolist()]
    assert np.allclose(logs, special.log_ndtr(far), rtol=2e-14, atol=0)
    p = np.concatenate([10.0 ** -_grid(0.31, 300.0), _grid(1e-3, 1.0)])
    quantiles = [normal_quantile(each) for each in p.tolist()]
    assert np.allclose(quantiles, special.ndtri(p), rtol=1e-11, atol=1e-15)


@for_each("probability", [0.0, 1.0, -1.0, math.nan])
def test_no_quantile_of_what_is_no_probability(probability: float) -> None:
    with pytest.raises(ValueError, match="probability"):
        normal_quantile(probability)


def test_powers() -> None:
    x, y = _grid(1e-3, 50.0), _grid(-7.0, 7.0)[::-1]
    assert np.allclose(power(x, y), np.power(x, y), rtol=1e-14, atol=0)
    assert power(0.0, 0.0) == 1.0 and power(0.0, 2.0) == 0.0 and power(0.0, -1.0) == math.inf


def test_powers_of_2_are_exact() -> None:
    exponents = range(-1074, 1024)
    assert [exp2(float(each)) for each in exponents] == [math.ldexp(1.0, e) for e in exponents]
    assert [log2(math.ldexp(1.0, each)) for each in exponents] == list(map(float, exponents))
    assert all(math.isclose(log2(x), math.log2(x), rel_tol=1e-15) for x in _grid(2.0, 1e9).tolist())


def test_cube_roots() -> None:
    assert [cube_root(float(n**3)) for n in range(200)] == [float(n) for n in range(200)]
    for x in (10.0 ** _grid(-300.0, 300.0)).tolist():
        root = Fraction(cube_root(x))
        assert abs(root**3 / Fraction(x) - 1) < Fraction(1, 10**15)


def test_quantiles_of_an_array_are_those_of_its_numbers() -> None:
    p = np.concatenate([_grid(1e-3, 0.999, 60), 10.0 ** -_grid(0.31, 300.0, 60), [0.5]])
    assert normal_quantiles(p).tolist() == [normal_quantile(each) for each in p.tolist()]


def test_sums_of_exponentials_never_overflow() -> None:
    values = np.array([-1e5, 3.0, 3.5])
    assert math.isclose(log_add_exp(values), math.log(math.exp(3.0) + math.exp(3.5)))
    assert log_add_exp(np.array([-1e6, -1e6])) == pytest.approx(-1e6 + math.log(2), rel=1e-15)


def test_sinc_at_0() -> None:
    assert sinc(np.array([0.0, math.pi / 2])).tolist() == pytest.approx([1.0, 2 / math.pi])


# SHA-256 of the bits below: one for all processors.
BITS = "b0d6c7cae9517cec36cdb56bbc5e0e8d548472eebf1c55dcf9dc7d614ce0765b"


def test_the_bits_are_those_of_every_machine() -> None:
    x = _grid(-20.0, 20.0, 5000)
    functions = (exp, expm1, sinh, tanh, sin, cos, erfc, erfcx, normal_cdf)
    values = [function(x) for function in functions]
    values += [log(np.abs(x)), log1p(np.abs(x)), power(np.abs(x), 1.7)]
    values.append(np.array([normal_quantile(each) for each in (0.975, 0.9, 1e-9)]))
    assert hashlib.sha256(b"".join(each.tobytes() for each in values)).hexdigest() == BITS


def test_a_fraction_is_a_number() -> None:
    assert exp(Fraction(1, 2)) == exp(0.5)  # type: ignore[call-overload]
