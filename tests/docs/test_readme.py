"""The README: three screens, and what it shows of the demo is what the demo prints."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from pipelines.command import main
from tests.docs.blocks import agrees, blocks_of
from tests.docs.pages import PROJECT, folder_of_a_reader

README = (PROJECT / "README.md").read_text(encoding="utf-8")
FLIGHTS = PROJECT / "data" / "flights"
# Of 40 lines each.
SCREENS = 3
DEMO = (
    "keygen release.key",
    "ledger init sqlite:///budget.db --dataset flights --epsilon 6 --delta 1e-5 --unit tailnum",
    "release examples/flights.yaml",
    "query out/flights-2013 cdf --tree arrival_delay 0 15 60",
)
# What the Makefile says between the two last commands.
ASKED = """
How many flights arrived before these minutes of delay? Asking costs no budget:
  dptrees query out/flights-2013 cdf --tree arrival_delay 0 15 60
"""


def test_it_keeps_to_three_screens() -> None:
    assert len(README.splitlines()) <= SCREENS * 40


def test_the_demo_prints_what_it_shows() -> None:
    if not FLIGHTS.is_dir():
        pytest.skip("no data/flights: make demo fetches them")
    shown = next(each.text for each in blocks_of(README) if each.text.startswith("flights-2013"))
    printed = []
    with folder_of_a_reader():
        Path("data").symlink_to(FLIGHTS.parent)
        for command in DEMO:
            out = io.StringIO()
            with redirect_stdout(out), redirect_stderr(io.StringIO()):
                assert main(command.split()) == 0
            printed.append(out.getvalue())
    assert agrees(shown, printed[-2] + ASKED + printed[-1]), "".join(printed)
