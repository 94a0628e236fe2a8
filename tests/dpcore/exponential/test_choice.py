from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.exponential.choice import Chosen, flipped, part_by_mass, uniform_below, weighed
from dptrees.dpcore.noise.randomness import RandomStream, public_stream
from tests.dpcore.exponential.enumerated_law import flip_law, weight_law

WEIGHTS = np.array([0.5, 1.0, 2.0**-60, 0.125, 1.0, 0.7])
DRAWS = 20_000
# Of each test here, over all cells.
FALSE_ALARM = 1e-6
LAWS = {weighed: weight_law, flipped: flip_law}


def p_value(found: Counter[int], law: list[float]) -> float:
    expected = np.array(law) * sum(found.values())
    seen = np.array([found[each] for each in range(len(law))])
    likely = expected > 5
    assert seen[~likely].sum() <= 5
    scale = seen[likely].sum() / expected[likely].sum()
    return float(stats.chisquare(seen[likely], expected[likely] * scale).pvalue)


@pytest.mark.parametrize("choose", LAWS)
def test_the_law_is_that_of_the_weights(choose: Callable[..., Chosen]) -> None:
    stream = public_stream("choices", choose.__name__)
    found = Counter(choose(WEIGHTS, stream).number for _ in range(DRAWS))
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
    for drawn, expected in ((first - 1, 0), (first, 1), (first + 2**122, 2), (total - 1, 2)):
        assert weighed(weights, Prescribed(drawn << shift)) == (expected, total)


def test_sums_of_many_weights_are_exact() -> None:
    weights = np.full(2**17, 1.0 - 2.0**-53)
    assert weighed(weights, RandomStream(bytes(32))).number < 2**17
    total = 2**17 * int(Fraction(1.0 - 2.0**-53) * 2**124)
    shift = 8 * ((total.bit_length() + 7) // 8) - (total - 1).bit_length()
    assert weighed(weights, Prescribed((total - 1) << shift)) == (2**17 - 1, total)


@pytest.mark.parametrize("choose", LAWS)
def test_in_parts_the_law_is_the_same(choose: Callable[..., Chosen]) -> None:
    stream, parts = public_stream("parts", choose.__name__), (slice(0, 2), slice(2, 6))

    def chosen(part_of: Callable[..., int]) -> int:
        found = [choose(WEIGHTS[part], stream) for part in parts]
        part = part_of([each.mass for each in found], stream)
        return parts[part].start + found[part].number

    law = [float(each) for each in LAWS[choose]([Fraction(each) for each in WEIGHTS.tolist()])]
    found = Counter(chosen(part_by_mass) for _ in range(DRAWS))
    assert p_value(found, law) > FALSE_ALARM
    # Parts that are taken as equal where they have any mass are seen.
    equal = Counter(
        chosen(lambda masses, own: part_by_mass([min(each, 1) for each in masses], own))
        for _ in range(DRAWS)
    )
    assert p_value(equal, law) < FALSE_ALARM


def test_a_part_without_success_is_not_chosen() -> None:
    assert flipped(np.array([2.0**-60]), public_stream("none")) == (0, 0)
    assert part_by_mass([0, 3, 0], public_stream("part")) == 1


def test_uniform_numbers_reject_what_is_beyond() -> None:
    assert uniform_below(1, RandomStream(bytes(32))) == 0
    assert uniform_below(5, Prescribed(7 << 5, 5 << 5, 4 << 5)) == 4
