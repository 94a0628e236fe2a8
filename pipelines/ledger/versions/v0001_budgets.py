"""Data sets with their totals, releases with what they cost, and what happened when."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_AMOUNTS = ("epsilon", "delta", "rho")


def upgrade() -> None:
    """Makes the tables."""
    op.create_table(
        "dptrees_datasets",
        sa.Column("dataset", sa.Text, primary_key=True),
        *_texts("measure", *_AMOUNTS, *(f"spent_{name}" for name in _AMOUNTS)),
        *_texts("unit", "neighbors", "created"),
    )
    op.create_table(
        "dptrees_releases",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("dataset", sa.Text, sa.ForeignKey("dptrees_datasets.dataset"), nullable=False),
        *_texts("release", "spec_digest", "stated", *_AMOUNTS, "state", "folder", "key", "nonce"),
        sa.Column("record", sa.Text),
        *_texts("reserved"),
        sa.Column("committed", sa.Text),
    )
    stands = sa.text("state IN ('reserved', 'committed')")
    op.create_index(
        "dptrees_standing_releases",
        "dptrees_releases",
        ["dataset", "release"],
        unique=True,
        sqlite_where=stands,
        postgresql_where=stands,
    )
    op.create_table(
        "dptrees_events",
        sa.Column("number", sa.Integer, primary_key=True),
        *_texts("time", "dataset"),
        sa.Column("release", sa.Text),
        *_texts("event", "amount"),
    )


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]
