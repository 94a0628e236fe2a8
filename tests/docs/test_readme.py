"""The README: three screens, and what it shows of the demo is what the demo prints."""

from __future__ import annotations

from tests.docs.blocks import agrees
from tests.docs.demo import README, demo, require_flights, shown_demo

# Of 40 lines each.
SCREENS = 3


def test_it_keeps_to_three_screens() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= SCREENS * 40


def test_the_demo_prints_what_it_shows() -> None:
    require_flights()
    printed = demo()
    assert agrees(shown_demo().text, printed), printed
