"""The sparse vector technique: its answers' exact law, the guarantee by enumeration, an audit.

The reference below computes the probability of every sequence of answers from the description of
Algorithm 3, by sums over the noise of the threshold. Statistical limits have a false-alarm
probability of at most 1e-6; the streams are fixed.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.thresholds.sparse_vector import SparseVector, SparseVectorParameters
from tests.dpcore.cases import for_each
from tests.dpcore.thresholds.enumerated_law import laplace_grid, laplace_tail, p_value

FALSE_ALARM = 1e-6
RUNS = 200_000


def make_parameters(epsilon: object, cutoff: int, threshold: object) -> SparseVectorParameters:
    return SparseVectorParameters(
        epsilon=Fraction(epsilon), cutoff=cutoff, threshold=Fraction(threshold)
    )


def answers_law(
    values: tuple[int, ...],
    *,
    epsilon: float,
    cutoff: int,
    threshold: int,
    threshold_factor: float = 1.0,
    query_factor: float = 1.0,
) -> dict[tuple[bool, ...], float]:
    """The probability of every sequence of answers, by Algorithm 3."""
    rho, weight = laplace_grid(threshold_factor * 2 * cutoff / epsilon)
    scale = query_factor * 4 * cutoff / epsilon
    law: dict[tuple[bool, ...], float] = {}

    def extend(answers: tuple[bool, ...], joint: np.ndarray) -> None:
        if len(answers) == len(values):
            law[answers] = math.fsum(joint)
        elif sum(answers) >= cutoff:
            extend((*answers, False), joint)
        else:
            top = joint * laplace_tail(threshold + rho - values[len(answers)], scale)
            extend((*answers, False), joint - top)
            extend((*answers, True), math.fsum(top) * weight)

    extend((), weight)
    return law


def worst_ratio(law: dict[tuple[bool, ...], float], other: dict[tuple[bool, ...], float]) -> float:
    return max(law[a] / other[a] for a in law if law[a] > 1e-9)


def run_frequencies(
    values: tuple[int, ...], parameters: SparseVectorParameters, name: str
) -> dict[tuple[bool, ...], int]:
    sparse = SparseVector(parameters, public_stream("sparse", name), runs=RUNS)
    answers = np.array([sparse.answer(np.full(RUNS, value)) for value in values])
    np.testing.assert_array_equal(sparse.found, answers.sum(axis=0))
    rows, counts = np.unique(answers.T, axis=0, return_counts=True)
    return {tuple(map(bool, row)): int(n) for row, n in zip(rows, counts, strict=True)}


VALUES = (3, 9, 0, 7, 6)
SETTINGS = {"epsilon": 1.5, "cutoff": 2, "threshold": 6}


def test_answers_follow_algorithm_3() -> None:
    law = answers_law(VALUES, **SETTINGS)  # type: ignore[arg-type]
    assert math.fsum(law.values()) == pytest.approx(1.0, abs=1e-12)
    observed = run_frequencies(VALUES, make_parameters(Fraction(3, 2), 2, 6), "law")
    assert max(sum(a) for a in observed) == 2
    assert p_value(observed, law) > FALSE_ALARM


def test_an_audit_finds_planted_errors() -> None:
    observed = run_frequencies(VALUES, make_parameters(Fraction(3, 2), 2, 6), "audit")
    for planted in (
        {"threshold_factor": 0.7},
        {"query_factor": 0.7},
        {"threshold": 7},
        {"cutoff": 3},
        {"epsilon": 3.0},
    ):
        law = answers_law(VALUES, **{**SETTINGS, **planted})  # type: ignore[arg-type]
        assert p_value(observed, law) < FALSE_ALARM, planted


def test_a_threshold_between_integers_is_rounded_up() -> None:
    law = answers_law(VALUES, **{**SETTINGS, "threshold": 7})  # type: ignore[arg-type]
    observed = run_frequencies(VALUES, make_parameters(Fraction(3, 2), 2, Fraction(13, 2)), "half")
    assert p_value(observed, law) > FALSE_ALARM


@pytest.mark.parametrize("cutoff", [1, 2])
@for_each("threshold", [-3, 0, 2, 9])
def test_every_output_of_neighbours_keeps_epsilon(cutoff: int, threshold: int) -> None:
    base = (1, 2, 0, 3)
    law = answers_law(base, epsilon=1.0, cutoff=cutoff, threshold=threshold)
    for code in range(3**4):
        change = [(code // 3**i) % 3 - 1 for i in range(4)]
        moved = tuple(v + d for v, d in zip(base, change, strict=True))
        other = answers_law(moved, epsilon=1.0, cutoff=cutoff, threshold=threshold)
        assert worst_ratio(law, other) <= math.exp(1.0) * (1 + 1e-6)


# Many queries that fall while one rises: the neighbors nearest to the whole epsilon.
WORST = ((0,) * 400 + (1,), (1,) * 400 + (0,))


def last_top_ratio(**factors: float) -> float:
    """P(BOTTOM, ..., BOTTOM, TOP) for one neighbor over the other, c = 1 and threshold 0."""
    rho, weight = laplace_grid(factors.get("threshold_factor", 1.0) * 2 / 1.0)
    scale = factors.get("query_factor", 1.0) * 4 / 1.0
    chance = []
    for values in WORST:
        bottom = (1 - laplace_tail(rho - values[0], scale)) ** (len(values) - 1)
        chance.append(math.fsum(weight * bottom * laplace_tail(rho - values[-1], scale)))
    return chance[0] / chance[1]


def test_the_guarantee_is_nearly_used_up_and_planted_errors_break_it() -> None:
    # It reaches e to the last digits, which depend on the processor.
    assert math.exp(0.9) < last_top_ratio() <= math.exp(1.0) * (1 + 1e-12)
    assert last_top_ratio(threshold_factor=0.7, query_factor=0.7) > math.exp(1.0)
    assert last_top_ratio(threshold_factor=0.5, query_factor=0.5) > math.exp(1.8)


def test_runs_are_independent_and_may_query_in_part() -> None:
    sparse = SparseVector(make_parameters(50, 1, 100), public_stream("part"), runs=4)
    assert sparse.answer(np.array([200, 0]), np.array([1, 3])).tolist() == [True, False]
    assert sparse.answer(np.array([200] * 4)).tolist() == [True, False, True, True]
    assert sparse.answer(np.array([200] * 4)).tolist() == [False] * 4
    assert sparse.found.tolist() == [1, 1, 1, 1]
    assert sparse.answer(np.array([], dtype=np.int64), np.array([], dtype=np.int64)).size == 0


def test_the_noise_laws_are_the_papers() -> None:
    parameters = make_parameters(Fraction(2, 3), 4, 0)
    assert parameters.threshold_law == DiscreteLaplace(scale=Fraction(12))
    assert parameters.query_law == DiscreteLaplace(scale=Fraction(24))


@for_each(
    ("make", "message"),
    [
        (lambda: make_parameters(0, 1, 0), "epsilon is 0"),
        (lambda: make_parameters(1, 0, 0), "cutoff is 0"),
        (
            lambda: SparseVectorParameters(
                epsilon=Fraction(1),
                cutoff=Fraction(3, 2),  # type: ignore[arg-type]
                threshold=Fraction(0),
            ),
            "cutoff is .*paid for",
        ),
        (lambda: make_parameters(1, 1, 2**61), "threshold"),
    ],
)
def test_bad_arguments_are_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_a_fractional_cutoff_would_overspend() -> None:
    """With c = 1.01, two answers TOP are given (t >= c ends it) at the noise of 1.01."""
    stage = last_top_ratio(threshold_factor=1.01, query_factor=1.01)
    assert stage**2 > math.exp(1.7)
    assert last_top_ratio(threshold_factor=2.0, query_factor=2.0) ** 2 <= math.exp(1.0)


def test_monotone_queries_need_half_of_the_noise() -> None:
    parameters = SparseVectorParameters(
        epsilon=Fraction(2, 3), cutoff=4, threshold=Fraction(0), is_monotone=True
    )
    assert parameters.threshold_law == parameters.query_law == DiscreteLaplace(scale=Fraction(12))
    law = answers_law(VALUES, **SETTINGS, query_factor=0.5)  # type: ignore[arg-type]
    monotone = SparseVectorParameters(
        epsilon=Fraction(3, 2), cutoff=2, threshold=Fraction(6), is_monotone=True
    )
    observed = run_frequencies(VALUES, monotone, "monotone")
    assert p_value(observed, law) > FALSE_ALARM
    assert p_value(observed, answers_law(VALUES, **SETTINGS)) < FALSE_ALARM  # type: ignore[arg-type]


@pytest.mark.parametrize("cutoff", [1, 2])
@for_each("threshold", [-3, 0, 2, 9])
def test_every_output_of_monotone_neighbours_keeps_epsilon(cutoff: int, threshold: int) -> None:
    base, settings = (1, 2, 0, 3, 2), {"epsilon": 1.0, "cutoff": cutoff, "threshold": threshold}
    law = answers_law(base, **settings, query_factor=0.5)  # type: ignore[arg-type]
    for code in range(2**5):
        moved = tuple(value + (code >> i & 1) for i, value in enumerate(base))
        other = answers_law(moved, **settings, query_factor=0.5)  # type: ignore[arg-type]
        for ratio in (worst_ratio(law, other), worst_ratio(other, law)):
            assert ratio <= math.exp(1.0) * (1 + 1e-6)


def test_half_of_the_noise_breaks_the_guarantee_of_other_queries() -> None:
    assert last_top_ratio(query_factor=0.5) > math.exp(1.2)
