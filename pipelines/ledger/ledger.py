"""The ledger: data sets with their totals, and releases that reserve, draw and are finished.

Each step is one transaction (`pipelines.ledger.database`):

    reserve   by the launcher, before a row is read: the budget is spent from here on
    record    by the worker that has counted all rows, before any noise is drawn
    commit    by the launcher, once the manifest is there

If a job stops between two steps, the same release goes on with the existing entry: with its
nonce, so that the same rows get the same noise, and only with rows of its record. A release that
differs in its id, specification, folder or key is another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from sqlalchemy import Connection, insert

from dptrees.dpcore.noise.randomness import draw_nonce
from dptrees.dpcore.release.guarantee import budget_text
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.ledger.accounts import (
    Account,
    LedgerEntry,
    Loss,
    State,
    accounts,
    active_entry,
    add_entry,
    change_entry,
    find_account,
    locked_account,
    now,
    numbered_entry,
    remember,
    store_account,
    was_discarded,
)
from dptrees.pipelines.ledger.database import (
    DATASETS,
    Database,
    LedgerError,
    check_version,
    find_version,
    lock_tables,
    upgrade,
)
from dptrees.pipelines.sections.values import LedgerUrl


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


@dataclass(frozen=True, kw_only=True)
class BudgetRequest:
    """What a release needs before it reads a row.

    Args:
        dataset: the id of its data set.
        plan: its specification.
        folder: where it is made, from the root.
        key: the check value of its key, in hexadecimal.
        nonce: that is requested, or that the folder has; None: any.
        begun: the folder holds the beginning of a release.
        anew: what is under this id is given up (``--discard``).
    """

    dataset: str
    plan: ReleasePlan
    folder: str
    key: str
    nonce: bytes | None = None
    begun: bool = False
    anew: bool = False

    def entry(self, cost: Loss) -> LedgerEntry:
        """The entry that is to be made."""
        nonce = draw_nonce() if self.nonce is None else self.nonce
        return LedgerEntry(
            dataset=self.dataset,
            release=entry_id(self.plan),
            spec_digest=self.plan.digest.hex(),
            stated=budget_text(self.plan),
            cost=cost,
            folder=self.folder,
            key=self.key,
            nonce=nonce.hex(),
        )


class _Undone(Exception):
    """Takes a transaction back."""


class Ledger:
    """A ledger that is there, and of this program's version.

    Args:
        url: where it lies.

    Raises:
        LedgerError: on any call, where it cannot be reached or is of another version.
    """

    def __init__(self, url: LedgerUrl) -> None:
        self.url = url
        self._database = Database(url)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction on tables of this version."""
        with self._database.transaction() as connection:
            check_version(connection, self.url)
            yield connection

    def account(self, dataset: str | None) -> Account:
        """The account of a data set; of the only one, where none is named.

        Raises:
            LedgerError: there is none, or several and none is named.
        """
        with self.transaction() as connection:
            if dataset is not None:
                return locked_account(connection, dataset)
            found = accounts(connection)
        if len(found) != 1:
            names = ", ".join(account.dataset for account in found[:5])
            held = f"holds {len(found)} data sets ({names})" if found else "holds no data set"
            raise LedgerError(f"dataset: must be named, since {self.url} {held}")
        return found[0]

    def reserve(self, request: BudgetRequest) -> LedgerEntry:
        """The entry of a release, which may begin now, or go on where it was stopped.

        Raises:
            LedgerError: the total would be passed, or its id represents another release.
        """
        with self.transaction() as connection:
            return self._reserve(connection, request)

    def check(self, request: BudgetRequest) -> Account:
        """Refuse what `reserve` would refuse, and change nothing.

        Returns:
            the account as it would be once the release is reserved.

        Raises:
            LedgerError: as of `reserve`.
        """
        found: list[Account] = []
        with suppress(_Undone), self.transaction() as connection:
            self._reserve(connection, request)
            found.append(locked_account(connection, request.dataset))
            raise _Undone
        return found[0]

    def _reserve(self, connection: Connection, request: BudgetRequest) -> LedgerEntry:
        account = locked_account(connection, request.dataset)
        cost = account.cost(request.plan)
        entry = active_entry(connection, request.dataset, entry_id(request.plan))
        if entry is not None and not request.anew:
            _check_same(entry, request)
            _happened(connection, entry, "taken up")
            return entry
        if entry is not None:
            account = _given_up(connection, account, entry, request)
        else:
            self._check_begun(request)
        cost = _first_paid(connection, request, cost)
        return _reserved(connection, account, request.entry(cost))

    def _check_begun(self, request: BudgetRequest) -> None:
        """Refuses a folder whose beginning is of another release, and discarding nothing."""
        if request.begun and not request.anew:
            raise LedgerError(
                f"output: {request.folder} contains the beginning of a release that is not in "
                f"{self.url}; choose another output, or start again with --discard"
            )
        if request.anew and not request.begun:
            raise LedgerError(
                f"output: {request.folder} contains nothing that --discard could remove"
            )

    def record(self, number: int, record: bytes) -> None:
        """Takes down the record of a draw, or sees that it is the one that was taken down.

        Raises:
            LedgerError: another draw was recorded, or the release was given up meanwhile.
        """
        with self.transaction() as connection:
            entry = _locked_entry(connection, number)
            _check_active(entry)
            if entry.record is None:
                change_entry(connection, number, record=record.hex())
            elif entry.record != record.hex():
                raise LedgerError(
                    f"ledger: release {entry.release} was made from other data before, and making "
                    f"it again would spend its budget again; choose another id{_or_discard(entry)}"
                )

    def commit(self, number: int, nonce: str, record: str) -> None:
        """Takes down that a release is finished.

        Args:
            number: of its entry.
            nonce, record: as its manifest has them.

        Raises:
            LedgerError: it was given up meanwhile, or its manifest is of another draw.
        """
        with self.transaction() as connection:
            entry = _locked_entry(connection, number)
            _check_active(entry)
            if entry.nonce != nonce or entry.record not in (None, record):
                raise LedgerError(
                    f"output: {entry.folder} contains other noise than the ledger has recorded "
                    f"for release {entry.release}"
                )
            if entry.state is State.RESERVED:
                state = State.COMMITTED.value
                change_entry(connection, number, state=state, record=record, committed=now())
                _happened(connection, entry, state)

    def active_entry(self, dataset: str, release: str) -> LedgerEntry | None:
        """Return the open entry of an id, if there is one."""
        with self.transaction() as connection:
            locked_account(connection, dataset)
            return active_entry(connection, dataset, release)


def entry_id(plan: ReleasePlan) -> str:
    """Under which a release is entered: its own, of a run of a series with the period."""
    return plan.name if plan.run is None else f"{plan.name}/{plan.run.period}"


def _first_paid(connection: Connection, request: BudgetRequest, cost: Loss) -> Loss:
    """What a release costs: of a series the first run pays for all, and the others nothing. A run
    that was discarded after its noise was drawn has spent what was paid: to draw it again costs the
    whole once more.

    Raises:
        LedgerError: the first run is not in the ledger.
    """
    run = request.plan.run
    if run is None or run.period == 1:
        return cost
    first = entry_id(request.plan).removesuffix(str(run.period)) + "1"
    entry = active_entry(connection, request.dataset, first)
    if entry is None or entry.state is not State.COMMITTED or entry.cost != cost:
        raise LedgerError(
            f"series: the ledger has no finished period 1 of {request.plan.name} at this budget, "
            "which pays for all of them"
        )
    drawn = was_discarded(connection, request.dataset, entry_id(request.plan))
    return cost if drawn else Loss()


def _locked_entry(connection: Connection, number: int) -> LedgerEntry:
    """An entry as it is while its account is locked."""
    locked_account(connection, numbered_entry(connection, number).dataset)
    return numbered_entry(connection, number)


def _check_active(entry: LedgerEntry) -> None:
    if not entry.is_active:
        raise LedgerError(
            f"ledger: release {entry.release} was discarded (--discard) while this job ran, so "
            "the files of this job are not a release"
        )


def _or_discard(entry: LedgerEntry) -> str:
    """What else can be done about an entry, where it is of no finished release."""
    begun = entry.state is State.RESERVED
    return ", or delete the unfinished release with --discard" if begun else ""


def _check_same(entry: LedgerEntry, request: BudgetRequest) -> None:
    """Check that a request is of the very release that exists.

    Raises:
        LedgerError: it differs in more than its data may.
    """
    name, at = entry.release, f"{entry.folder} already"
    state = "is made into" if entry.state is State.COMMITTED else "is reserved for"
    new_entry = request.entry(entry.cost)
    or_discard = _or_discard(entry) if entry.folder == new_entry.folder else ""
    nonce = entry.nonce if request.nonce is None else request.nonce.hex()
    for what, own, other in (
        ("another specification", entry.spec_digest, new_entry.spec_digest),
        ("another output", entry.folder, new_entry.folder),
        ("another key", entry.key, new_entry.key),
        ("another nonce", entry.nonce, nonce),
    ):
        if own != other:
            raise LedgerError(
                f"release: {name} {state} {at}, and this one has {what}: making it again would "
                f"spend its budget again; choose another id{or_discard}"
            )


def _given_up(
    connection: Connection, account: Account, entry: LedgerEntry, request: BudgetRequest
) -> Account:
    """Return the account once an entry is closed: what was drawn stays spent.

    Raises:
        LedgerError: the release is finished, or belongs to another folder.
    """
    if entry.state is State.COMMITTED:
        raise LedgerError(
            f"release: {entry.release} is made into {entry.folder} already, and --discard does not "
            "remove a finished release; choose another id"
        )
    if entry.folder != request.folder:
        raise LedgerError(
            f"release: {entry.release} is reserved for {entry.folder}; discard it there"
        )
    state = State.WITHDRAWN if entry.record is None else State.DISCARDED
    change_entry(connection, entry.number, state=state.value)
    _happened(connection, entry, state.value)
    if state is State.WITHDRAWN:
        return replace(account, spent=account.spent - entry.cost)
    return account


def _reserved(connection: Connection, account: Account, entry: LedgerEntry) -> LedgerEntry:
    """Adds an entry, where its account has enough left."""
    store_account(connection, account.charged(entry.cost))
    number = add_entry(connection, entry, time=now())
    _happened(connection, entry, State.RESERVED.value)
    return replace(entry, number=number)


def _happened(connection: Connection, entry: LedgerEntry, event: str) -> None:
    remember(connection, event, dataset=entry.dataset, release=entry.release, amount=entry.cost)
