"""The loop of many cases finds each that is wrong, and does not pass without any."""

import pytest

from tests.transforms.every_case import check_every_case


def check_small(number: int) -> None:
    assert number < 10
    if number % 2:
        with pytest.raises(ZeroDivisionError):
            _ = 1 / (number - 1)


def test_all_that_are_wrong_are_reported() -> None:
    check_every_case(check_small, [(1,), (2,)])
    with pytest.raises(AssertionError, match=r"^\(3,\): Failed: .*\n\(12,\): AssertionError: "):
        check_every_case(check_small, [(1,), (3,), (4,), (12,)])
    with pytest.raises(AssertionError):
        check_every_case(check_small, [])
