"""Powers and sums of floats are seen where releases are made (test_releases)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.processors import operators


@pytest.mark.parametrize(
    ("base", "exponent"),
    [(2, 20), (10, 9), (2.0, -53), (2.0, np.arange(-3.0, 4.0)), (np.array([1.5, 2.5]), 2)],
)
def test_exact_powers_pass(base: object, exponent: object) -> None:
    assert operators.is_plain_power(base, exponent)


@pytest.mark.parametrize(
    ("base", "exponent"),
    [(1.5, 2), (np.float64(1.5), 2), (2, 0.5), (np.array([1.5]), 3), (1.5, np.arange(3))],
)
def test_planted_powers_are_found(base: object, exponent: object) -> None:
    assert not operators.is_plain_power(base, exponent)


def test_planted_sum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "found", {})
    assert operators.add_up("here", [0.5, 0.25]) == 0.75
    assert operators.add_up("here", [1, 2, 3, 4.0]) == 10
    assert not operators.found
    operators.add_up("there", [0.1, 0.2, 0.3])
    assert list(operators.found) == [("there", "sum")]
