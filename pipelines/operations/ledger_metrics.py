"""Metrics of a ledger: what is left of each data set's budget, and releases that are not finished.

All of it is the operator's, as the ledger is: budgets, states and times; nothing of any row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any

from dptrees.pipelines.ledger.account import Account
from dptrees.pipelines.ledger.entry import State
from dptrees.pipelines.operations.exposition import Metric

Rows = Sequence[Mapping[str, Any]]


def account_metrics(
    accounts: Iterable[Account], release: Mapping[str, str] | None = None
) -> list[Metric]:
    """The budgets of data sets, each amount under its name.

    Args:
        accounts: of the data sets.
        release: the label of a run that reports them, so that the figures of two files about one
            data set are two metrics; None: the ledger itself reports.
    """
    prefix = "ledger" if release is None else "run_ledger"
    total = Metric(name=f"{prefix}_budget", text="Budget of a data set over all releases.")
    spent = Metric(
        name=f"{prefix}_spent", text="Budget of a data set that is spent, or reserved by a release."
    )
    left = Metric(name=f"{prefix}_left", text="Remaining budget of a data set.")
    for account in accounts:
        held = (account.total, account.spent, account.total - account.spent)
        for metric, loss in zip((total, spent, left), held, strict=True):
            for name in account.total.counted(account.measure):
                labels = {**(release or {}), "dataset": account.dataset, "amount": name}
                metric.samples.append((labels, float(getattr(loss, name))))
    return [total, spent, left]


def ledger_metrics(listed: Iterable[tuple[Account, Rows]]) -> list[Metric]:
    """All metrics of a ledger.

    Args:
        listed: its data sets, each with its releases as they are stored.
    """
    found = list(listed)
    releases = Metric(name="ledger_releases", text="Releases of a data set in a state.")
    oldest = Metric(
        name="ledger_oldest_reserved_timestamp_seconds",
        text="When the oldest of the releases that are not finished was reserved.",
    )
    series = Metric(
        name="ledger_spent_by_series",
        text="Budget that the first runs of series spent, for all of their runs.",
    )
    for account, rows in found:
        for name in account.total.counted(account.measure):
            amounts = (Fraction(row[name]) for row in rows if _is_of_series(row))
            labels = {"dataset": account.dataset, "amount": name}
            series.samples.append((labels, float(sum(amounts, Fraction(0)))))
        dataset = {"dataset": account.dataset}
        for state in State:
            number = sum(row["state"] == state.value for row in rows)
            releases.samples.append((dataset | {"state": state.value}, number))
        begun = [row["reserved"] for row in rows if row["state"] == State.RESERVED.value]
        if begun:
            oldest.samples.append((dataset, min(map(_seconds, begun))))
    return [*account_metrics(account for account, _ in found), series, releases, oldest]


def _is_of_series(row: Mapping[str, Any]) -> bool:
    """Return whether a release that has spent is a run of a series: their names have a slash."""
    return "/" in row["release"] and row["state"] != State.WITHDRAWN.value


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
