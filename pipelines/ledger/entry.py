"""The entry of a release in the ledger.

    reserved     its budget is spent; its job may run
    committed    it is finished
    discarded    given up after its noise was drawn: its budget stays spent
    withdrawn    given up before: its budget is back

The first two *hold*: of an id one entry does at most. The record of the data is set once, by the
job, before any noise is drawn, and only while the entry is open. So an entry without a record has
drawn nothing, and can be withdrawn even while a job is at work: that job will draw nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sqlalchemy import Connection, insert, select, update

from dptrees.pipelines.ledger.loss import Loss
from dptrees.pipelines.ledger.tables import RELEASES


class State(Enum):
    """The state of a release."""

    RESERVED = "reserved"
    COMMITTED = "committed"
    DISCARDED = "discarded"
    WITHDRAWN = "withdrawn"


_ACTIVE = (State.RESERVED.value, State.COMMITTED.value)


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """The entry of a release.

    Args:
        dataset: the id of its data set.
        release: its own id.
        spec_digest: of its specification, in hexadecimal, as its nonce and its record.
        stated: its budget, for a person.
        cost: what it costs the data set.
        folder: where it is made.
        key: the check value of its key.
        nonce: of its folder.
        state: where it is.
        record: of its draw; None until its rows are counted.
        number: in the ledger; 0 before it is there.
    """

    dataset: str
    release: str
    spec_digest: str
    stated: str
    cost: Loss
    folder: str
    key: str
    nonce: str
    state: State = State.RESERVED
    record: str | None = None
    number: int = 0

    @property
    def is_active(self) -> bool:
        """Whether its job may draw, or has drawn and it is finished."""
        return self.state.value in _ACTIVE

    @property
    def nonce_bytes(self) -> bytes:
        """The nonce itself."""
        return bytes.fromhex(self.nonce)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> LedgerEntry:
        """An entry as it is stored."""
        plain = ("dataset", "release", "spec_digest", "stated", "folder", "key", "nonce")
        return cls(
            **{name: row[name] for name in (*plain, "record", "number")},
            cost=Loss.from_texts(row),
            state=State(row["state"]),
        )


def add_entry(connection: Connection, entry: LedgerEntry, *, time: str) -> int:
    """Adds the entry of a release, reserved; returns its number."""
    names = ("dataset", "release", "spec_digest", "stated", "folder", "key", "nonce", "record")
    row = {name: getattr(entry, name) for name in names} | entry.cost.texts()
    row |= {"state": entry.state.value, "reserved": time}
    added = connection.execute(insert(RELEASES).values(row).returning(RELEASES.c.number))
    return int(added.scalar_one())


def active_entry(connection: Connection, dataset: str, release: str) -> LedgerEntry | None:
    """Return the open entry of an id, if there is one. The account is to be locked."""
    query = select(RELEASES).where(
        RELEASES.c.dataset == dataset,
        RELEASES.c.release == release,
        RELEASES.c.state.in_(_ACTIVE),
    )
    row = connection.execute(query).mappings().first()
    return None if row is None else LedgerEntry.from_row(dict(row))


def was_discarded(connection: Connection, dataset: str, release: str) -> bool:
    """Whether an entry of an id was given up after its noise was drawn. The account is to be
    locked."""
    query = select(RELEASES.c.number).where(
        RELEASES.c.dataset == dataset,
        RELEASES.c.release == release,
        RELEASES.c.state == State.DISCARDED.value,
    )
    return connection.execute(query).first() is not None


def numbered_entry(connection: Connection, number: int) -> LedgerEntry:
    """The entry of a number. The account is to be locked."""
    query = select(RELEASES).where(RELEASES.c.number == number)
    return LedgerEntry.from_row(dict(connection.execute(query).mappings().one()))


def entries(connection: Connection, dataset: str) -> list[Mapping[str, Any]]:
    """The rows of all releases of a data set, the first one first."""
    query = select(RELEASES).where(RELEASES.c.dataset == dataset).order_by(RELEASES.c.number)
    return [dict(row) for row in connection.execute(query).mappings()]


def change_entry(connection: Connection, number: int, **values: str) -> None:
    """Changes columns of an entry."""
    changed = update(RELEASES).where(RELEASES.c.number == number)
    connection.execute(changed.values(values))
