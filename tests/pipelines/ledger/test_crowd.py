"""Fifty processes at once cannot overspend."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from typing import Any

from tests.pipelines.conftest import search_path
from tests.pipelines.ledger.asked import account_of, opened
from tests.pipelines.ledger.program import reported
from tests.postgresql import Server

PROCESSES = 50
# All of them together request 19.7.
TOTAL = Fraction(5)


def crowd(url: str, step: str) -> list[dict[str, Any]]:
    """The reports of the processes of a crowd."""
    return reported("crowd", url, str(PROCESSES), step)


def granted(lines: list[dict[str, Any]]) -> Fraction:
    """The sum of what was granted."""
    return sum((Fraction(line["amount"]) for line in lines if "nonce" in line), start=Fraction())


def test_a_crowd_cannot_overspend(url: str) -> None:
    ledger = opened(url, account_of(str(TOTAL)))
    lines = crowd(url, "amounts")
    assert len(lines) == PROCESSES
    spent = ledger.account("flights").spent.epsilon
    assert granted(lines) == spent <= TOTAL
    refused = [line for line in lines if "refused" in line]
    assert refused and all("would be exceeded" in line["refused"] for line in refused)
    # Each was refused for want of budget alone: it would not even fit into what is left now.
    assert all(Fraction(line["amount"]) > TOTAL - spent for line in refused)


def test_a_crowd_of_one_release_spends_it_once(url: str) -> None:
    ledger = opened(url, account_of(str(TOTAL)))
    lines = crowd(url, "one")
    assert len(lines) == PROCESSES and len({line["nonce"] for line in lines}) == 1
    assert ledger.account("flights").spent.epsilon == Fraction(1, 2)


def test_a_crowd_that_does_not_wait_overspends(server: Server) -> None:
    url = server.new_database()
    ledger = opened(url, account_of(str(TOTAL)))
    lines = crowd(url, "unlocked")
    assert granted(lines) > TOTAL
    assert granted(lines) > ledger.account("flights").spent.epsilon


def test_a_ledger_is_made_once(url: str) -> None:
    """Two that make it at once both find it made."""
    command = (sys.executable, "-m", "dptrees", "ledger", "init", url, "--epsilon", "1")
    started = [
        subprocess.Popen(
            [*command, "--dataset", dataset],
            env=os.environ | {"PYTHONPATH": search_path()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for dataset in ("one", "two")
    ]
    ends = [(*process.communicate(timeout=300), process.returncode) for process in started]
    assert [code for _, _, code in ends] == [0, 0], ends
