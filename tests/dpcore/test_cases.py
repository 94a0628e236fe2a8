"""Loops over cases: all run, those that fail are named, and fixtures and classes work."""

from __future__ import annotations

import pytest

from tests.dpcore.cases import for_each


def test_all_cases_run_and_those_that_fail_are_named() -> None:
    seen = []

    @for_each("whole", [True, False])
    @for_each(("low", "high"), [(1, 2), (3, 3), (5, 4)])
    def rises(low: int, high: int, whole: bool) -> None:
        seen.append((low, whole))
        assert low < high

    with pytest.raises(AssertionError, match="whole=True: AssertionError: 2 of 3 fail\nlow=3") as e:
        rises()
    assert "whole=False" in str(e.value) and "low=5, high=4" in str(e.value)
    assert "low=1" not in str(e.value) and len(seen) == 6


def test_names_that_the_test_does_not_have_are_refused() -> None:
    with pytest.raises(TypeError, match="has no parameter"):
        for_each("other", [1])(lambda value: None)


class TestMethods:
    @pytest.mark.parametrize("given", ["ab"])
    @for_each("letter", "ab")
    def test_fixtures_and_other_parameters_are_passed_on(
        self, given: str, letter: str, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        assert letter in given and tmp_path_factory is not None
