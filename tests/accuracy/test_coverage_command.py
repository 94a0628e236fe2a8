"""benchmarks/coverage: how often its test errs, and errors that it must find."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks import coverage
from benchmarks.coverage import Line, Queried

BRIEF = ["--shapes", "skewed", "--trees", "distinct"]


def test_intervals_that_hold_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert coverage.main([*BRIEF, "nodes"]) == 0
    assert " (" not in capsys.readouterr().out


@pytest.mark.parametrize(("factor", "fault"), [(0.6, "too low"), (1.5, "too high")])
def test_an_error_that_is_planted_is_found(
    factor: float,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Intervals as wide as another noise needs."""
    whole = coverage.answers

    def scaled(name: str, tree: Any, rows: dict[str, Any], draw: int) -> Iterator[Queried]:
        for what, error, low, high in whole(name, tree, rows, draw):
            yield Queried(
                what, error, error + factor * (low - error), error + factor * (high - error)
            )

    monkeypatch.setattr(coverage, "answers", scaled)
    assert coverage.main(BRIEF) == 1
    assert capsys.readouterr().out.count(fault) == 1


def decided(coverages: Callable[[int], float], *, exact: bool, seed: int) -> str:
    """What is said of a line whose draws hold with these probabilities."""
    rng, line, draw = np.random.default_rng(seed), Line(exact), 0
    while line.waits:
        side = 0.0 if rng.random() < coverages(draw) else 1.0
        line.add(Queried("", 0.5, side, side + 1.0) if side else Queried("", 0.5, -1.0, 1.0))
        draw += 1
    return line.fault


# Probabilities of a fault are at most 1e-8, and of a miss at most 1e-4: of 50 lines at most one is
# missed but for a probability of 50 * 49 / 2 * 1e-8 = 1.3e-5, and three but for 2e-8.
@pytest.mark.parametrize(
    ("coverages", "exact", "fault"),
    [
        (lambda draw: 0.95, False, ""),
        (lambda draw: 0.95, True, ""),
        (lambda draw: 0.98, False, ""),
        (lambda draw: 0.90, False, "too low"),
        (lambda draw: 0.985, True, "too high"),
        # Half of the queries of a line hold too rarely.
        (lambda draw: (1.0, 0.80)[draw % 2], False, "too low"),
    ],
)
def test_faults_are_found_and_no_others(
    coverages: Callable[[int], float], exact: bool, fault: str
) -> None:
    found = [decided(coverages, exact=exact, seed=seed) for seed in range(50)]
    assert found.count(fault) >= (48 if fault else 50)


def test_the_evidence_is_that_of_the_likelihoods() -> None:
    """After 7 of 9 draws that hold: the logarithm of the ratio of both binomial laws."""
    line = Line(exact=True)
    for draw in range(9):
        line.add(Queried("", 0.0, -1.0, 1.0) if draw < 7 else Queried("", 0.0, 1.0, 2.0))

    def law(p: float) -> float:
        return math.comb(9, 7) * p**7 * (1 - p) ** 2

    expected = [
        math.log(law(other) / law(stated)) for stated, other in (coverage.LOW, coverage.HIGH)
    ]
    assert line.evidence == pytest.approx(expected)
