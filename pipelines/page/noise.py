"""The laws of noise in the report, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace

PUBLIC = "none: public and exact"
NOT_MEASURED = "not measured"


def law_text(law: NoiseLaw | None, *, exact: bool) -> str:
    """A law of noise in words; ``exact`` says why there is none.

    >>> from fractions import Fraction
    >>> law_text(DiscreteLaplace(scale=Fraction(5, 2)), exact=False), law_text(None, exact=True)
    ('discrete Laplace, scale 2.5', 'none: public and exact')
    """
    if law is None:
        return PUBLIC if exact else NOT_MEASURED
    name, parameter, value = _parts(law)
    return f"{name}, {parameter} {value:,.4g}"


def laws_text(laws: Sequence[NoiseLaw], *, exact: bool) -> str:
    """Several laws of one kind in words, from the least noise to the most.

    Args:
        laws: of the nodes of one level.
        exact: whether some of its nodes are public and exact.

    >>> from fractions import Fraction
    >>> laws_text([DiscreteLaplace(scale=Fraction(n)) for n in (3, 2)], exact=True)
    'discrete Laplace, scale 2 to 3; some nodes are public and exact'
    """
    if not laws:
        return law_text(None, exact=exact)
    parts = sorted({_parts(law) for law in laws}, key=lambda part: part[2])
    name, parameter, least = parts[0]
    text = f"{name}, {parameter} {span_text(least, parts[-1][2])}"
    return f"{text}; some nodes are public and exact" if exact else text


def span_text(least: float, most: float) -> str:
    """A number, or two of them.

    >>> span_text(1.5, 1.5), span_text(1.5, 2.25)
    ('1.5', '1.5 to 2.25')
    """
    low, high = f"{least:,.4g}", f"{most:,.4g}"
    return low if low == high else f"{low} to {high}"


def _parts(law: NoiseLaw) -> tuple[str, str, float]:
    """The name of a law, that of its parameter, and its value in rows."""
    if isinstance(law, DiscreteLaplace):
        return "discrete Laplace", "scale", float(law.scale)
    if isinstance(law, DiscreteGaussian):
        return "discrete Gaussian", "sigma", math.sqrt(float(law.sigma_squared))
    if isinstance(law, TruncatedLaplace):
        return "truncated discrete Laplace", "scale", float(law.scale)
    raise TypeError(f"law: {type(law).__name__} has no name in the report")
