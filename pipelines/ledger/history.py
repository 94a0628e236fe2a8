"""What happened to a ledger, and when: rows that are added and never changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import Connection, insert, select

from dptrees.pipelines.ledger.loss import Loss
from dptrees.pipelines.ledger.tables import EVENTS


def now() -> str:
    """The launcher's clock, in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def remember(
    connection: Connection, event: str, *, dataset: str, release: str | None = None, amount: Loss
) -> None:
    """Adds an event.

    Args:
        connection: in the transaction in which it happens.
        event: what happened.
        dataset, release: to which.
        amount: the total of a data set, or what a release costs.
    """
    amounts = {name: text for name, text in amount.texts().items() if text != "0"}
    row = {"time": now(), "dataset": dataset, "release": release, "event": event}
    connection.execute(insert(EVENTS).values(row | {"amount": json.dumps(amounts)}))


def events(connection: Connection) -> list[Mapping[str, Any]]:
    """All events, the first one first; `amount` is a dictionary of exact amounts."""
    rows = connection.execute(select(EVENTS).order_by(EVENTS.c.number)).mappings()
    return [dict(row) | {"amount": json.loads(row["amount"])} for row in rows]
