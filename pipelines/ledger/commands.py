"""``dptrees ledger``: data sets and their totals, what was spent, what happened, and metrics.

All of it is for the operator, as the ledger is: budgets, states and times; nothing of any row.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from dptrees.dpcore.privacy.unit import Measure, Neighbors
from dptrees.pipelines.ledger.accounts import (
    NAMES,
    Account,
    Loss,
    State,
    accounts,
    entries,
    events,
    locked_account,
)
from dptrees.pipelines.ledger.database import (
    VERSION,
    Database,
    LedgerError,
    find_version,
    no_ledger,
    upgrade,
)
from dptrees.pipelines.ledger.ledger import Ledger, open_account
from dptrees.pipelines.monitoring import Metric, check_place, exposition, write_metrics
from dptrees.pipelines.process import UserError
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken
from dptrees.pipelines.sections.rules import ledger_url
from dptrees.pipelines.sections.values import LedgerUrl
from dptrees.pipelines.terminal_text import print_json, print_line

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


_SHOWN = ("release", "state", "stated", "folder", "reserved", "committed", "key", "record")


def run_init(chosen: argparse.Namespace) -> int:
    """Add a data set to a ledger, and make the ledger where there is none.

    Raises:
        UserError, LedgerError: the ledger cannot take the data set.
    """
    url, account = _url(chosen.url), _account(chosen)
    event = open_account(url, account, change_total=chosen.change_total)
    total = account.total.in_words(account.measure)
    words = f"data set {account.dataset}: a total of {total} per {account.unit_in_words}"
    words += f", neighbors {account.neighbors.value}"
    print_line(f"{url}: {words} ({event or 'it was there already, the same'})")
    return 0


def run_show(chosen: argparse.Namespace) -> int:
    """Prints what each data set has spent, and on what.

    Raises:
        LedgerError: the sum of a data set is not that of its releases.
    """
    ledger = Ledger(_url(chosen.url))
    listed = _listed(ledger, chosen.dataset)
    if chosen.json:
        print_json({"datasets": [_as_json(account, rows) for account, rows in listed]}, indent=1)
        return 0
    for account, rows in listed:
        print_line(f"{account.dataset}: {account.balance} spent")
        print_line(f"  per {account.unit_in_words}, neighbors {account.neighbors.value}")
        for row in rows:
            cost = Loss.from_texts(row).in_words(account.measure)
            print_line(f"  {row['state']:<9}  {cost}  {row['release']}  {row['folder']}")
    if not listed:
        print_line(f"{ledger.url}: no data set")
    return 0


def run_metrics(chosen: argparse.Namespace) -> int:
    """Prints the metrics of a ledger, or writes them into a file.

    Raises:
        LedgerError: the sum of a data set is not that of its releases.
        UserError: the file cannot be written.
    """
    if chosen.metrics_file is not None:
        check_place(chosen.metrics_file)
    found = ledger_metrics(_listed(Ledger(_url(chosen.url)), None))
    if chosen.metrics_file is None:
        for line in exposition(found).splitlines():
            print_line(line)
        return 0
    try:
        write_metrics(chosen.metrics_file, found)
    except OSError as error:
        raise UserError(f"{chosen.metrics_file}: cannot be written: {error.strerror}") from None
    return 0


def _listed(ledger: Ledger, one: str | None) -> list[tuple[Account, list[Mapping[str, Any]]]]:
    """Data sets with their releases, once their sums are seen to be right; all, or one of them."""
    with ledger.transaction() as connection:
        found = accounts(connection) if one is None else [locked_account(connection, one)]
        listed = [(account, entries(connection, account.dataset)) for account in found]
    for account, rows in listed:
        _check_sum(account, rows)
    return listed


def run_history(chosen: argparse.Namespace) -> int:
    """Prints what happened, the first event first."""
    ledger = Ledger(_url(chosen.url))
    with ledger.transaction() as connection:
        found = events(connection)
    if chosen.json:
        print_json({"events": found}, indent=1)
        return 0
    for event in found:
        amounts = (f"{name} = {float(Fraction(text)):g}" for name, text in event["amount"].items())
        words = [event["time"], event["dataset"], event["release"] or "", event["event"]]
        print_line("  ".join(filter(None, [*words, ", ".join(amounts)])))
    return 0


def run_upgrade(chosen: argparse.Namespace) -> int:
    """Brings a ledger to the version that this program knows.

    Raises:
        LedgerError: there is none.
    """
    url = _url(chosen.url)
    with Database(url).transaction() as connection:
        if find_version(connection) is None:
            raise no_ledger(url)
        before = upgrade(connection, url)
    print_line(f"{url}: version {VERSION}, before {before}")
    return 0


def _check_sum(account: Account, rows: list[Mapping[str, Any]]) -> None:
    """Sees that what is spent is what releases cost, but for those that drew nothing."""
    costs = [Loss.from_texts(row) for row in rows if row["state"] != State.WITHDRAWN.value]
    if sum(costs, start=Loss()) != account.spent:
        raise LedgerError(
            f"ledger: data set {account.dataset} has {account.balance} spent, which is not the "
            "sum over its releases: the ledger was edited or damaged"
        )


def _as_json(account: Account, rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    """A data set for a program: exact amounts in text."""
    names = ("rho",) if account.measure is Measure.RHO else ("epsilon", "delta")
    left = account.total - account.spent
    amounts = {"total": account.total, "spent": account.spent, "left": left}
    return {
        "dataset": account.dataset,
        "unit": list(account.unit) or "row",
        "neighbors": account.neighbors.value,
        **{what: {name: each.texts()[name] for name in names} for what, each in amounts.items()},
        "releases": [
            {name: row[name] for name in _SHOWN} | {name: row[name] for name in names}
            for row in rows
        ],
    }


def _url(text: str) -> LedgerUrl:
    try:
        return ledger_url(text)
    except RuleBroken as broken:
        raise UserError(f"ledger: {broken}") from None


def _account(chosen: argparse.Namespace) -> Account:
    """The account that the options describe."""
    given = {name: getattr(chosen, name) for name in NAMES}
    if (given["epsilon"] is None) == (given["rho"] is None):
        raise UserError("ledger init: needs exactly one of --epsilon and --rho")
    if given["delta"] is not None and given["epsilon"] is None:
        raise UserError("--delta: goes with --epsilon, not with --rho")
    measure = Measure.RHO if given["epsilon"] is None else Measure.EPSILON
    total = {name: _amount(name, text) for name, text in given.items() if text is not None}
    unit = tuple(chosen.unit or ())
    if len(set(unit)) < len(unit) or "" in unit:
        raise UserError("--unit: a column is named twice, or has no name")
    try:
        dataset = rules.name(chosen.dataset)
    except RuleBroken as broken:
        raise UserError(f"--dataset: {broken}") from None
    return Account(
        dataset=dataset,
        measure=measure,
        total=Loss(**total),
        unit=() if unit == ("row",) else unit,
        neighbors=Neighbors(chosen.neighbors),
    )


def _amount(name: str, text: str) -> Fraction:
    """An amount, exactly as written; a delta may be 0."""
    try:
        number = Decimal(text)
        if name != "delta":
            return rules.amount(number)
        return Fraction(0) if number == 0 else rules.delta(number)
    except InvalidOperation:
        raise UserError(f"--{name}: {text!r} must be a number") from None
    except RuleBroken as broken:
        raise UserError(f"--{name}: {broken}") from None
