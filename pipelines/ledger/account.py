"""The account of a data set: its total, what is spent of it, and what its guarantees speak of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, select, update

from dptrees.dpcore.privacy.unit import Measure, Neighbors, amount_text
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.ledger.error import LedgerError
from dptrees.pipelines.ledger.loss import Loss, LossRefused, release_loss
from dptrees.pipelines.ledger.tables import DATASETS

# Beside its columns, of a unit whose rows of one period are what is protected: of a series.
PERIOD = "period"


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account of a data set.

    Args:
        dataset: its id.
        measure: in which it counts: epsilon (and delta), or rho.
        total: of all releases, for ever.
        unit: the columns that name a privacy unit; none where it is the row. Releases may bound the
            rows of a unit differently: each guarantee is per unit.
        neighbors: the neighboring relation.
        spent: the sum of what all releases cost, the reserved ones too.
    """

    dataset: str
    measure: Measure
    total: Loss
    unit: tuple[str, ...]
    neighbors: Neighbors
    spent: Loss = field(default_factory=Loss)

    @property
    def unit_in_words(self) -> str:
        """The privacy unit for a person."""
        return _in_words(self.unit)

    @property
    def balance(self) -> str:
        """What is spent, for a person: ``epsilon 1 of 3``."""
        return ", ".join(
            f"{name} {amount_text(getattr(self.spent, name))} of {amount_text(amount)}"
            for name, amount in self.total.counted(self.measure).items()
        )

    @property
    def line(self) -> str:
        """The same in a line of its own."""
        return f"ledger: data set {self.dataset}: {self.balance} spent"

    def cost(self, plan: ReleasePlan) -> Loss:
        """What a release costs it.

        Raises:
            LedgerError: the release is of another unit or relation, or states its budget in a
                measure that is not counted.
        """
        of_period = plan.run is not None and plan.run.max_periods is None
        per_period = PERIOD in self.unit and of_period
        unit = (*plan.unit.columns, PERIOD) if per_period else plan.unit.columns
        for what, own, other in (
            ("unit", self.unit_in_words, _in_words(unit)),
            ("neighbors", self.neighbors.value, plan.unit.neighbors.value),
        ):
            if own != other:
                raise LedgerError(
                    f"privacy.{what}: the ledger counts data set {self.dataset} with {what} {own}, "
                    f"and this release has {other}; guarantees of two kinds do not add up"
                )
        try:
            return release_loss(plan, self.measure, per_period=per_period)
        except LossRefused as refused:
            raise LedgerError(f"privacy.{refused}") from None

    def charged(self, cost: Loss) -> Account:
        """The account once a release has cost so much more.

        Raises:
            LedgerError: the total would be passed.
        """
        spent = self.spent + cost
        if not spent.within(self.total):
            raise LedgerError(
                f"ledger: the total of data set {self.dataset} would be exceeded: {self.balance} "
                f"is spent, and this release costs {cost.in_words(self.measure)}"
            )
        return replace(self, spent=spent)

    def row(self) -> dict[str, str]:
        """Return the account as it is stored, but for the time it was made."""
        spent = {f"spent_{name}": text for name, text in self.spent.texts().items()}
        return {
            "dataset": self.dataset,
            "measure": self.measure.value,
            "unit": json.dumps(self.unit),
            "neighbors": self.neighbors.value,
            **self.total.texts(),
            **spent,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Account:
        """The inverse of `row`."""
        return cls(
            dataset=row["dataset"],
            measure=Measure(row["measure"]),
            total=Loss.from_texts(row),
            unit=tuple(json.loads(row["unit"])),
            neighbors=Neighbors(row["neighbors"]),
            spent=Loss.from_texts(row, prefix="spent_"),
        )


def _in_words(columns: tuple[str, ...]) -> str:
    """A privacy unit, in whatever order its columns were named."""
    return " and ".join(sorted(columns)) or "row"


def find_account(connection: Connection, dataset: str) -> Account | None:
    """The account of a data set, locked until the transaction ends; None where there is none."""
    query = select(DATASETS).where(DATASETS.c.dataset == dataset).with_for_update()
    row = connection.execute(query).mappings().first()
    return None if row is None else Account.from_row(dict(row))


def locked_account(connection: Connection, dataset: str) -> Account:
    """The account of a data set, locked until the transaction ends.

    Raises:
        LedgerError: there is none.
    """
    account = find_account(connection, dataset)
    if account is None:
        raise LedgerError(
            f"dataset: the ledger holds no data set {dataset}; {_held(connection)}add it with "
            f"dptrees ledger init"
        )
    return account


def _held(connection: Connection) -> str:
    names = [account.dataset for account in accounts(connection)]
    return f"it holds {', '.join(names[:5])}; " if names else ""


def accounts(connection: Connection) -> list[Account]:
    """The accounts of all data sets, by id."""
    rows = connection.execute(select(DATASETS).order_by(DATASETS.c.dataset)).mappings()
    return [Account.from_row(dict(row)) for row in rows]


def store_account(connection: Connection, account: Account) -> None:
    """Writes an account that is there already."""
    changed = update(DATASETS).where(DATASETS.c.dataset == account.dataset)
    connection.execute(changed.values(account.row()))
