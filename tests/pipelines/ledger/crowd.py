"""A crowd of processes that use a ledger at once: python -m tests.pipelines.ledger.crowd URL N STEP

Each process is a fork of this one, which has imported all before, and waits for the others. Each
prints a line of JSON: its request, and what became of it.

STEP is ``amounts`` (ids and amounts that differ), ``one`` (the same release by all), or
``unlocked`` (as ``amounts``, where no transaction waits for another: a planted error).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from contextlib import contextmanager

from sqlalchemy import select

from dptrees.pipelines.ledger import accounts
from dptrees.pipelines.ledger import ledger as ledgers
from dptrees.pipelines.ledger.database import DATASETS, LedgerError
from dptrees.pipelines.ledger.ledger import Ledger
from dptrees.pipelines.sections.values import LedgerUrl
from tests.pipelines.ledger.asked import asked


def main(url: str, processes: int, step: str) -> None:
    Ledger(LedgerUrl(url)).account("flights")  # which imports the driver, once for all forks
    if step == "unlocked":
        plant_unlocked(processes)
    requests = [
        asked(f"epsilon: 0.{1 + number % 7}", "one" if step == "one" else f"r{number}")
        if step != "one"
        else asked("epsilon: 0.5", "one")
        for number in range(processes)
    ]
    with crowd(processes) as (number, reported):
        request = requests[number]
        amount = str(request.plan.budget.amount)
        try:
            entry = Ledger(LedgerUrl(url)).reserve(request)
            reported.write(json.dumps({"amount": amount, "nonce": entry.nonce}) + "\n")
        except LedgerError as refused:
            reported.write(json.dumps({"amount": amount, "refused": refused.sentence}) + "\n")


@contextmanager
def crowd(processes: int):
    """Runs what follows in so many forks at once; this process prints their reports, and ends."""
    gate, opened = os.pipe()
    reading, writing = os.pipe()
    children = []
    for number in range(processes):
        child = os.fork()
        if child:
            children.append(child)
            continue
        os.close(opened)
        os.read(gate, 1)  # until the gate is opened for all
        with os.fdopen(writing, "w") as reported:
            yield number, reported
        os._exit(0)
    os.close(writing)
    os.close(opened)
    with os.fdopen(reading) as lines:
        sys.stdout.write(lines.read())
    sys.stdout.flush()
    os._exit(max(os.waitpid(child, 0)[1] for child in children) and 1)


def plant_unlocked(processes: int) -> None:
    """Let every process read the account without a lock, and go on once all have read it."""
    all_have_read = multiprocessing.get_context("fork").Barrier(processes)

    def unlocked_account(connection, dataset):
        query = select(DATASETS).where(DATASETS.c.dataset == dataset)
        row = connection.execute(query).mappings().one()
        all_have_read.wait(300)
        return accounts.Account.from_row(dict(row))

    ledgers.locked_account = unlocked_account


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
