"""The README: three screens, and what it shows of the demo is what the demo prints."""

from __future__ import annotations

from tests.docs.blocks import agrees, blocks_of
from tests.docs.demo import demo, require_flights
from tests.docs.pages import PROJECT

README = (PROJECT / "README.md").read_text(encoding="utf-8")
# Of 40 lines each.
SCREENS = 3


def test_it_keeps_to_three_screens() -> None:
    assert len(README.splitlines()) <= SCREENS * 40


def test_the_demo_prints_what_it_shows() -> None:
    require_flights()
    shown = next(each.text for each in blocks_of(README) if each.text.startswith("flights-2013"))
    printed = demo()
    assert agrees(shown, printed), printed
