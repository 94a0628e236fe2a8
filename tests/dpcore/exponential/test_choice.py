from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.exponential.choice import chosen_by_weight, permuted_and_flipped, uniform_below
from dpcore.noise.randomness import RandomStream, public_stream
from tests.dpcore.exponential.enumerated_law import flip_law, weight_law

WEIGHTS = np.array([0.5, 1.0, 2.0**-60, 0.125, 1.0, 0.7])
DRAWS = 20_000
# Of each test here, over all cells.
FALSE_ALARM = 1e-6
LAWS = {chosen_by_weight: weight_law, permuted_and_flipped: flip_law}


def p_value(found: Counter[int], law: list[float]) -> float:
    expected = np.array(law) * sum(found.values())
    seen = np.array([found[each] for each in range(len(law))])
    likely = expected > 5
    assert seen[~likely].sum() <= 5
    scale = seen[likely].sum() / expected[likely].sum()
    return float(stats.chisquare(seen[likely], expected[likely] * scale).pvalue)


@pytest.mark.parametrize("choose", LAWS)
def test_the_law_is_that_of_the_weights(choose: Callable[..., int]) -> None:
    stream = public_stream("choices", choose.__name__)
    found = Counter(choose(WEIGHTS, stream) for _ in range(DRAWS))
    law = [float(each) for each in LAWS[choose]([Fraction(each) for each in WEIGHTS.tolist()])]
    assert p_value(found, law) > FALSE_ALARM
    # Weights of another rate are seen.
    other = LAWS[choose]([Fraction(each) for each in (WEIGHTS**1.3).tolist()])
    assert p_value(found, [float(each) for each in other]) < FALSE_ALARM


class Prescribed(RandomStream):
    """Bits that are given."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = list(numbers)

    def bytes(self, n: int) -> bytes:
        return self._numbers.pop(0).to_bytes(n, "little")


def test_a_choice_by_weight_is_decided_by_the_last_bit() -> None:
    """Units of 2^-124: a number below the first weight is the first, the weight itself the next."""
    weights = np.array([2.0**-60 * (1 + 2.0**-52), 0.25, 1.0])
    first = int(Fraction(weights[0]) * 2**124)
    total = sum(int(Fraction(each) * 2**124) for each in weights.tolist())
    size = (total - 1).bit_length()
    shift = 8 * ((size + 7) // 8) - size
    for drawn, wanted in ((first - 1, 0), (first, 1), (first + 2**122, 2), (total - 1, 2)):
        assert chosen_by_weight(weights, Prescribed(drawn << shift)) == wanted


def test_sums_of_many_weights_are_exact() -> None:
    weights = np.full(2**17, 1.0 - 2.0**-53)
    assert chosen_by_weight(weights, RandomStream(bytes(32))) < 2**17
    total = 2**17 * int(Fraction(1.0 - 2.0**-53) * 2**124)
    shift = 8 * ((total.bit_length() + 7) // 8) - (total - 1).bit_length()
    assert chosen_by_weight(weights, Prescribed((total - 1) << shift)) == 2**17 - 1


def test_uniform_numbers_reject_what_is_beyond() -> None:
    assert uniform_below(1, RandomStream(bytes(32))) == 0
    assert uniform_below(5, Prescribed(7 << 5, 5 << 5, 4 << 5)) == 4
