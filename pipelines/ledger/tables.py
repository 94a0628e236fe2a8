"""The tables of a ledger as this program reads and writes them; `versions` makes them.

Amounts are exact rationals in text. ``spent_`` columns hold the sum over the releases of a data
set, so that a reservation needs no look at all of them; it changes in the same transaction as they
do. Times are the launcher's clock in UTC, and are nowhere but here.
"""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Integer, MetaData, Table, Text, text

METADATA = MetaData()

DATASETS = Table(
    "dptrees_datasets",
    METADATA,
    Column("dataset", Text, primary_key=True),
    Column("measure", Text, nullable=False),
    *(Column(name, Text, nullable=False) for name in ("epsilon", "delta", "rho")),
    *(Column(f"spent_{name}", Text, nullable=False) for name in ("epsilon", "delta", "rho")),
    Column("unit", Text, nullable=False),  # a JSON list of columns; none: the row
    Column("neighbors", Text, nullable=False),
    Column("created", Text, nullable=False),
)

_IS_ACTIVE = text("state IN ('reserved', 'committed')")

RELEASES = Table(
    "dptrees_releases",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("dataset", Text, ForeignKey(DATASETS.c.dataset), nullable=False),
    Column("release", Text, nullable=False),
    Column("spec_digest", Text, nullable=False),
    Column("stated", Text, nullable=False),
    *(Column(name, Text, nullable=False) for name in ("epsilon", "delta", "rho")),
    Column("state", Text, nullable=False),
    Column("folder", Text, nullable=False),
    Column("key", Text, nullable=False),  # its check value
    Column("nonce", Text, nullable=False),
    Column("record", Text),  # keyed, of the data; null until they are counted
    Column("reserved", Text, nullable=False),
    Column("committed", Text),
    # An id occurs once.
    Index(
        "dptrees_standing_releases",
        "dataset",
        "release",
        unique=True,
        sqlite_where=_IS_ACTIVE,
        postgresql_where=_IS_ACTIVE,
    ),
)

EVENTS = Table(
    "dptrees_events",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("time", Text, nullable=False),
    Column("dataset", Text, nullable=False),
    Column("release", Text),
    Column("event", Text, nullable=False),
    Column("amount", Text, nullable=False),  # a JSON object of exact amounts
)
