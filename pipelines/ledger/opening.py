"""Adding data sets to a ledger, which is made where there is none, and changing their totals."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, insert

from dptrees.pipelines.ledger.account import Account, find_account, locked_account, store_account
from dptrees.pipelines.ledger.database import Database
from dptrees.pipelines.ledger.error import LedgerError
from dptrees.pipelines.ledger.history import now, remember
from dptrees.pipelines.ledger.schema import check_version, find_version, lock_tables, upgrade
from dptrees.pipelines.ledger.tables import DATASETS
from dptrees.pipelines.ledger.url import LedgerUrl


def open_account(url: LedgerUrl, account: Account, *, change_total: bool = False) -> str | None:
    """Adds a data set to a ledger, which is made where there is none.

    Args:
        url: of the ledger.
        account: of the data set, with nothing spent.
        change_total: it is there, and gets this total.

    Returns:
        What happened to the account; None where it was there already, the same.

    Raises:
        LedgerError: it is there and differs, or the total is below what is spent.
    """
    with Database(url, create=True).transaction() as connection:
        _made(connection, url)
        found = find_account(connection, account.dataset)
        if found is None and change_total:
            locked_account(connection, account.dataset)  # refused
        if found is not None:
            _check_account(found, account, change_total=change_total)
        if found is not None and found.total == account.total:
            return None
        if found is None:
            connection.execute(insert(DATASETS).values(account.row() | {"created": now()}))
        else:
            store_account(connection, replace(found, total=account.total))
        event = "opened" if found is None else "total changed"
        remember(connection, event, dataset=account.dataset, amount=account.total)
        return event


def _made(connection: Connection, url: LedgerUrl) -> None:
    """Makes the tables where there are none; others must be of this program's version."""
    lock_tables(connection)
    if find_version(connection) is None:
        upgrade(connection, url)
    check_version(connection, url)


def _check_account(found: Account, wanted: Account, *, change_total: bool) -> None:
    """Refuses what cannot become of a data set that is there."""
    for what, own, other in (
        ("unit", found.unit_in_words, wanted.unit_in_words),
        ("neighbors", found.neighbors.value, wanted.neighbors.value),
        ("measure", found.measure.value, wanted.measure.value),
    ):
        if own != other:
            raise LedgerError(
                f"ledger: data set {found.dataset} already has {what} {own}, not {other}, which "
                "never changes; choose another id"
            )
    total = found.total.in_words(found.measure)
    if found.total != wanted.total and not change_total:
        raise LedgerError(
            f"ledger: data set {found.dataset} already has a total of {total}; --change-total "
            "changes it"
        )
    if not found.spent.within(wanted.total):
        raise LedgerError(
            f"ledger: a total of {wanted.total.in_words(found.measure)} is below the spent budget "
            f"of data set {found.dataset}: {found.spent.in_words(found.measure)}"
        )
