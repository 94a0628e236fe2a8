"""The bookings of a release in the ledger: reserve, record, commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.config.configuration import Configuration
from dptrees.pipelines.ledger.accounts import Account, LedgerEntry
from dptrees.pipelines.ledger.database import LedgerError
from dptrees.pipelines.ledger.ledger import BudgetRequest, Ledger, entry_id
from dptrees.pipelines.sections.values import LedgerUrl
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import (
    NonceError,
    begun,
    drawn,
    parse_nonce,
    read_manifest,
)
from dptrees.transforms.folder.names import MANIFEST, NONCE
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.steps.record import Witness


def record_draw(url: LedgerUrl, number: int, record: bytes) -> None:
    """Record a draw in the ledger before its noise is drawn, on the worker that draws it.

    Args:
        url: of the ledger, from the root.
        number: of the release's entry.
        record: of the draw.

    Raises:
        LedgerError: another draw was recorded, or the ledger cannot be reached from here.
    """
    Ledger(url).record(number, record)


@dataclass(frozen=True, kw_only=True)
class Booking:
    """The ledger's part in one release.

    Args:
        ledger: that the configuration names.
        plan: of the release, with the id of its data set.
        output: its folder.
    """

    ledger: Ledger
    plan: ReleasePlan
    output: str

    @classmethod
    def from_plan(cls, configuration: Configuration, plan: ReleasePlan) -> Booking:
        """The booking of a release.

        Raises:
            LedgerError: the ledger does not hold its data set, or another unit or relation of it.
        """
        assert configuration.ledger is not None
        ledger = Ledger(configuration.ledger.absolute())
        account = ledger.account(configuration.dataset)
        account.cost(plan)
        named = replace(plan, dataset=account.dataset)
        return cls(ledger=ledger, plan=named, output=configuration.output)

    def check_room(self, *later: ReleasePlan) -> Account:
        """Check that the remaining budget covers later plans beside this one. A reservation, by a
        run that was killed, is paid already.

        Returns:
            the account as it would be after all of them.

        Raises:
            LedgerError: both would pass the total.
        """
        account = self.account
        for plan in (self.plan, *later):
            if self.ledger.active_entry(self.dataset, entry_id(plan)) is None:
                account = account.charged(account.cost(plan))
        return account

    @property
    def dataset(self) -> str:
        """The id of the data set."""
        assert self.plan.dataset is not None
        return self.plan.dataset

    @property
    def active_entry(self) -> LedgerEntry | None:
        """The release's entry, if there is one."""
        return self.ledger.active_entry(self.dataset, entry_id(self.plan))

    @property
    def account(self) -> Account:
        """The account of the data set, as it is now."""
        return self.ledger.account(self.dataset)

    def entry(self, key: KeyReference, *, nonce: bytes | None, discard: bool) -> LedgerEntry:
        """The entry of the release, whose budget is spent once this returns. Where the release is
        finished (it is repaired) or was begun before, that is nothing new.

        Args:
            key: with its check value.
            nonce: that is requested.
            discard: what was begun is given up.

        Raises:
            LedgerError: the ledger refuses.
            NonceError: the folder has another nonce.
        """
        if files.exists(files.join(self.output, MANIFEST)):
            return self.commit_existing()
        return self.ledger.reserve(self._request(key, nonce=nonce, discard=discard))

    def check(self, key: KeyReference, *, nonce: bytes | None) -> Account:
        """Refuse what `entry` would refuse, and change nothing.

        Args:
            key, nonce: as of `entry`.

        Returns:
            the account as it would be once the release is reserved.

        Raises:
            LedgerError, NonceError: as of `entry`.
        """
        return self.ledger.check(self._request(key, nonce=nonce, discard=False))

    def _request(self, key: KeyReference, *, nonce: bytes | None, discard: bool) -> BudgetRequest:
        found = None if discard else self._found_nonce(nonce)
        return BudgetRequest(
            dataset=self.dataset,
            plan=self.plan,
            folder=files.absolute(self.output),
            key=key.check_value.hex(),
            nonce=nonce or found,
            begun=begun(self.output) if discard else drawn(self.output),
            anew=discard,
        )

    def _found_nonce(self, requested: bytes | None) -> bytes | None:
        """The nonce that the folder has already, if any.

        Raises:
            NonceError: it is another than the one that is requested; it is damaged.
        """
        path = files.join(self.output, NONCE)
        if not files.exists(path):
            return None
        result = parse_nonce(files.read_bytes(path))
        if result is None or requested not in (None, result):
            raise NonceError(
                f"nonce: {self.output} has another nonce already, or a damaged one; choose another "
                "output"
            )
        return result

    def commit_existing(self) -> LedgerEntry:
        """Return the entry of a release that is finished in its folder, committed.

        Raises:
            LedgerError: the ledger knows nothing of it.
        """
        entry = self.existing_entry()
        self.ledger.commit(entry.number, entry.nonce, str(self._manifest()["record"]))
        return entry

    def existing_entry(self) -> LedgerEntry:
        """The entry of a release that is finished in its folder, as it is.

        Raises:
            LedgerError: the ledger knows nothing of it.
        """
        entry = self.active_entry
        if entry is None or entry.nonce != self._manifest().get("nonce"):
            raise LedgerError(
                f"output: {self.output} contains a release that is not in {self.ledger.url}, so "
                "its budget is not counted there; choose another output"
            )
        return entry

    def witness(self, entry: LedgerEntry) -> Witness:
        """What records the draw; it travels to the worker that draws the noise."""
        return partial(record_draw, self.ledger.url, entry.number)

    def _manifest(self) -> Mapping[str, Any]:
        return read_manifest(files.join(self.output, MANIFEST))
