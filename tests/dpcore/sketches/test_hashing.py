"""Hash functions against the formula in Python's integers, and their pairwise independence.

A statistical test has a false-alarm probability of at most 1e-6 over all its cases. The streams are
fixed, so a test that passes keeps passing.
"""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.noise.randomness import ReleaseKey, public_stream
from dptrees.dpcore.sketches.sketch import MultiplyShift, SketchHashes

FALSE_ALARM = 1e-6
DRAWS = 40_000
EDGES = [0, 1, 2, 3, 2**16, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63, 2**63 + 1, 2**64 - 1]


def make_codes(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint64)


def test_the_formula_in_whole_numbers() -> None:
    for bits in (1, 2, 20, 33):
        stream, pieces = public_stream("formula", bits), 1 if bits == 1 else 2
        multipliers = stream.uint64(2 * pieces).reshape(2, pieces).tolist()
        addends = stream.uint64(2).tolist()
        hashing = MultiplyShift(public_stream("formula", bits), functions=2, bits=bits)
        for number, (factors, addend) in enumerate(zip(multipliers, addends, strict=True)):
            for code, found in zip(EDGES, hashing(number, make_codes(EDGES)).tolist(), strict=True):
                parts = [code, code >> 32][:pieces]
                total = sum(a * x for a, x in zip(factors, parts, strict=True)) + addend
                assert found == (total % 2**64) >> (64 - bits)


def test_scrambling_in_whole_numbers_is_one_to_one() -> None:
    first, second = (public_stream("scramble").uint64(2) | np.uint64(1)).tolist()
    hashes = SketchHashes(public_stream("scramble"), rows=1, bits=8, signed=False)
    found = hashes._scrambled(make_codes(EDGES)).tolist()
    for code, scrambled in zip(EDGES, found, strict=True):
        once = code * first % 2**64
        twice = (once ^ once >> 32) * second % 2**64
        assert scrambled == twice ^ twice >> 29
        # Undone: the last shift by itself (29 + 29 < 64 < 3 * 29), the factors by their inverses.
        once = ((scrambled ^ scrambled >> 29 ^ scrambled >> 58) * pow(second, -1, 2**64)) % 2**64
        assert (once ^ once >> 32) * pow(first, -1, 2**64) % 2**64 == code


def pair_p_values(hashing: MultiplyShift, functions: int, bits: int, codes: np.ndarray) -> float:
    """The least chi-squared p-value of (h(x), h(y)) against uniform, over pairs of codes."""
    found = np.array([hashing(number, codes) for number in range(functions)])
    size, least = 4**bits, 1.0
    for x, y in itertools.combinations(range(codes.size), 2):
        observed = np.bincount((found[:, x] << bits) + found[:, y], minlength=size)
        least = min(least, float(stats.chisquare(observed).pvalue))
    return least


PAIRS = len(EDGES) * (len(EDGES) - 1) // 2


@pytest.mark.parametrize("bits", [1, 3])
def test_every_pair_of_codes_is_uniform(bits: int) -> None:
    hashing = MultiplyShift(public_stream("pairs", bits), functions=DRAWS, bits=bits)
    found = pair_p_values(hashing, DRAWS, bits, make_codes(EDGES))
    assert found > FALSE_ALARM / (2 * PAIRS)


def bad_hashes() -> dict[str, MultiplyShift]:
    """Functions that are not strongly universal, each for a reason of its own."""
    without_addend, one_piece = (
        MultiplyShift(public_stream("bad"), functions=DRAWS, bits=3) for _ in range(2)
    )
    without_addend._addends[:] = 0  # h(0) = 0 always
    one_piece._multipliers = one_piece._multipliers[:, :1]  # 2^63 can change the first bit alone
    return {"no addend": without_addend, "one piece": one_piece}


@pytest.mark.parametrize("kind", bad_hashes())
def test_planted_bad_hashes_are_found(kind: str) -> None:
    found = pair_p_values(bad_hashes()[kind], DRAWS, 3, make_codes(EDGES))
    assert found < FALSE_ALARM / (2 * PAIRS)


def signed_columns(hashes: SketchHashes, codes: np.ndarray) -> np.ndarray:
    """(rows, n): columns and signs as one number."""
    return np.array(
        [
            columns * 2 + (0 if signs is None else signs > 0)
            for columns, signs in hashes.cells(codes)
        ]
    )


def test_columns_and_signs_are_uniform_together() -> None:
    codes = make_codes([5, 2**63 + 5])
    hashes = SketchHashes(public_stream("together"), rows=DRAWS, bits=2, signed=True)
    cells = signed_columns(hashes, codes)
    for one, other in ((cells[:, 0], cells[:, 1]), (cells[::2, 0], cells[1::2, 0])):
        observed = np.bincount(one * 8 + other, minlength=64)
        assert stats.chisquare(observed).pvalue > FALSE_ALARM


SEQUENCES = {
    "in a row": list(range(1000)),
    "evenly spaced": [k << 20 for k in range(1000)],
    "high bits": [k << 52 for k in range(1000)],
    "a box of two columns": [k % 32 | k // 32 << 20 for k in range(1000)],
    "multiples of a golden ratio": [k * 0x9E3779B97F4A7C15 % 2**64 for k in range(1000)],
}


class Unscrambled(SketchHashes):
    """Multiply-shift of the codes as they are."""

    def _scrambled(self, codes: np.ndarray) -> np.ndarray:
        return codes


def squares_of_cells(codes: np.ndarray, kind: type[SketchHashes]) -> np.ndarray:
    """The sum of squared cells over its mean, in 400 draws of functions."""
    found = []
    for draw in range(400):
        hashes = kind(public_stream("squares", draw), rows=1, bits=6, signed=True)
        ((columns, signs),) = hashes.cells(codes)
        table = np.bincount(columns, weights=signs, minlength=64)
        found.append((table**2).sum() / codes.size)
    return np.array(found)


@pytest.mark.parametrize("kind", SEQUENCES)
def test_sequences_collide_as_random_columns_do(kind: str) -> None:
    """Their squares have mean 1, and the variance 2 / 64 of random columns and signs."""
    codes = make_codes(SEQUENCES[kind])
    found = squares_of_cells(codes, SketchHashes)
    assert abs(found.mean() - 1) <= 4.9 * np.sqrt(2 / 64 / 400)
    # About chi-squared: 400 draws show the deviation to 5 %.
    assert 0.13 < found.std() < 0.23


def test_a_sequence_that_is_not_scrambled_does_not() -> None:
    assert squares_of_cells(make_codes(list(range(1000))), Unscrambled).std() > 1


def test_without_signs() -> None:
    hashes = SketchHashes(public_stream("plus"), rows=2, bits=4, signed=False)
    assert not hashes.signed
    assert [signs for _, signs in hashes.cells(make_codes(EDGES))] == [None, None]


def test_functions_follow_from_the_name_of_the_stream() -> None:
    key, codes = ReleaseKey(bytes(32)), np.arange(1000, dtype=np.uint64)

    def columns(*name: str) -> list[list[int]]:
        hashes = SketchHashes(key.stream("sketch", *name), rows=1, bits=10, signed=False)
        return signed_columns(hashes, codes).tolist()

    assert columns("a") == columns("a")
    assert columns("a") != columns("b")


def test_the_numbers_do_not_show_or_travel() -> None:
    for secret in (
        MultiplyShift(public_stream("secret"), functions=1, bits=1),
        SketchHashes(public_stream("secret"), rows=2, bits=3, signed=True),
    ):
        assert "<secret>" in repr(secret) and not hasattr(secret, "__dict__")
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                attempt(secret)


def test_numbers_out_of_range() -> None:
    out = [("rows", 0), ("bits", 0), ("bits", 34), ("code_bits", 0), ("code_bits", 65)]
    for name, value in out:
        given = {"rows": 1, "bits": 1, "code_bits": 64} | {name: value}
        said = "functions" if name == "rows" else name
        with pytest.raises(ValueError, match=f"{said}: {value} must be"):
            SketchHashes(public_stream("range"), signed=True, **given)


def test_what_are_no_codes() -> None:
    hashes = SketchHashes(public_stream("check"), rows=1, bits=3, signed=False, code_bits=7)
    hashes.check(np.array([0, 127], np.uint64))
    hashes.check(np.array([], np.uint64))
    with pytest.raises(ValueError, match="codes: one has more than 7 bits"):
        hashes.check(np.array([0, 128], np.uint64))
    with pytest.raises(TypeError, match="codes: int64 is not uint64"):
        hashes.check(np.array([1]))
