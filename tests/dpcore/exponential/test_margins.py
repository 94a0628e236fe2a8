"""Margins of chosen quantiles: figures that mechanisms are compared by."""

from __future__ import annotations

import math

import pytest

from dptrees.dpcore.exponential.plan import root_mean_square


def test_the_root_mean_square_is_in_the_unit_of_the_errors() -> None:
    assert root_mean_square([3.0, 4.0]) == pytest.approx(math.sqrt(12.5))
    assert root_mean_square([2.5]) == 2.5
    assert root_mean_square([0.0, 0.0]) == 0.0
