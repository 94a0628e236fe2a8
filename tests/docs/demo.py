"""What `make demo` prints, for the README, which shows a part of it.

    python -m tests.docs.demo --write

puts its beginning and its end into the README, where their shape has changed; without the option it
is printed whole. Needs the flights that `make demo` fetches.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from dptrees.pipelines.cli.command import main
from tests.docs.blocks import Block, agrees, read_blocks
from tests.docs.pages import FLIGHTS, PROJECT, cut_like, folder_of_a_reader

README = PROJECT / "README.md"

MAKE_LEDGER = "ledger init sqlite:///budget.db --dataset flights --epsilon 6 --delta 1e-5"
STEPS = (
    "keygen release.key",
    f"{MAKE_LEDGER} --unit tailnum",
    "release examples/flights.yaml",
    "query out/flights-2013 cdf --tree arrival_delay 0 15 60",
)
STEPS_OF_COMPARISON = ("data/flights", "out/flights-2013")
# What the Makefile says before the comparison with the flights, which are public.
COMPARED = """
The flights are public, so the demo can compare. Do not publish a comparison with private data:
  python examples/compare.py data/flights out/flights-2013
"""
# What the Makefile says before the last of the steps.
QUERY = """
How many flights arrived before these minutes of delay? Queries cost no budget:
  dptrees query out/flights-2013 cdf --tree arrival_delay 0 15 60
"""


def shown_demo() -> Block:
    """What the README shows of it."""
    blocks = read_blocks(README.read_text(encoding="utf-8"))
    return next(block for block in blocks if block.text.startswith("flights-2013"))


def require_flights() -> None:
    """Skips a test where there are no flights; fails it where they must be there."""
    if not any(FLIGHTS.glob("*.parquet")):
        if os.environ.get("DPTREES_REQUIRE_FLIGHTS"):
            pytest.fail("there are no flights: run make demo")
        pytest.skip("there are no flights: run make demo")


def demo() -> str:
    """What the release and the question print, with the Makefile's words between them."""
    printed = []
    with folder_of_a_reader():
        Path("data").mkdir()
        Path("data/flights").symlink_to(FLIGHTS)
        for step in STEPS:
            out, err = io.StringIO(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(err):
                code = main(step.split())
            assert code == 0, err.getvalue()
            printed.append(out.getvalue())
        compared = subprocess.run(
            [sys.executable, str(PROJECT / "examples" / "compare.py"), *STEPS_OF_COMPARISON],
            capture_output=True,
            check=True,
            text=True,
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
        )
        assert not compared.stderr
    return printed[-2] + QUERY + printed[-1] + COMPARED + compared.stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run what make demo runs.")
    parser.add_argument("--write", action="store_true", help="into the README")
    chosen = parser.parse_args()
    shown, printed = shown_demo(), demo()
    if not chosen.write:
        print(printed, end="")
    elif not agrees(shown.text, printed):
        page = README.read_text(encoding="utf-8")
        cut = cut_like(shown.text, printed)
        README.write_text(page[: shown.start] + cut + page[shown.stop :], encoding="utf-8")
