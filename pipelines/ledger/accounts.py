"""Accounts of data sets, their losses and releases: exact rationals, never floats.

A data set counts in (epsilon, delta) or in rho. What is counted is a *privacy filter*: each
release's budget may be chosen after looking at all earlier releases, and the release is made
only where the sum of all budgets, its own included, stays within the total.

**Why sums hold for budgets that are chosen adaptively.** Let D, D' be neighbors, o_1, ..., o_k
all outputs, and P, P' their laws. Whether the next release is made, and which, is a function of
the outputs so far; a refused release has budget 0, so take k fixed.

- *Pure epsilon.* Given o_1, ..., o_i-1 the budget e_i is a number, and the ratio of the
  conditional laws of o_i is at most exp(e_i). The ratio of the joint laws is the product of
  these, at most exp(sum e_i), and the filter keeps the sum of *every* path within the total.
- *(epsilon, delta).* Given the past, the law of o_i on D is, but for a part of mass d_i, at most
  exp(e_i) times that on D'. Write it as a sum of two measures, m_i <= exp(e_i) P'_i and a rest
  of mass d_i. The product of the m_i is at most exp(sum e_i) P' on every path; what a path loses
  is, by a union over the steps, at most the largest sum of the d_i along any path. Both sums
  stay within their totals: Rogers, Roth, Ullman, Vadhan 2016, "Privacy Odometers and Filters:
  Pay-as-you-Go Composition" (the filter of basic composition).
- *rho.* For every order a > 1, E_P'[(P / P')^a] is the expectation over o_1 of the first ratio^a
  times the conditional expectation of the rest. By induction from the last step the rest is at
  most exp(a (a - 1) (total - rho_1)), since rho_1, and so what is left of the total, is known
  before o_1 is drawn; and the first factor contributes exp(a (a - 1) rho_1): Feldman, Zrnic
  2021, "Individual Privacy Accounting via a Renyi Filter"; Whitehouse, Ramdas, Rogers, Wu 2023,
  "Fully-Adaptive Composition in Differential Privacy".

**A series of k runs** protects a unit's rows of one period, and its data set the whole unit,
which may have rows in each: k steps of neighbors, so k epsilon, and k^2 rho (Bun, Steinke 2016,
Proposition 1.9). Where the data set is entered with units of one period they are alike. A row is
in one period, and costs no more than is stated. A delta of k units grows beyond use: refused. A
series with `unit: per_series` protects all rows of a unit together, and costs what it states.

**From one measure to the other.** A tree that is e-DP is (e^2 / 2)-zCDP (Bun, Steinke 2016,
Proposition 1.4), and the rhos of a release add up. Trees that share a rho, behind an epsilon and
a delta that the release states, cost a data set in rho that rho. What spends a delta of its own
is not zCDP, and a rho has an epsilon only beside a delta that somebody chooses: both are
refused.

**Entries.** A release is reserved (its budget is spent; its job may run), committed (finished),
discarded (given up after its noise was drawn: its budget stays spent) or withdrawn (given up
before: its budget is back). Of an id at most one entry is reserved or committed. The record of
the data is set once, before any noise is drawn, and only while the entry is open; so an entry
without a record has drawn nothing and can be withdrawn even while a job is at work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from fractions import Fraction
from typing import Any

from sqlalchemy import Connection, insert, select, update

from dptrees.dpcore.privacy.unit import Measure, Neighbors, amount_text
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.ledger.database import DATASETS, EVENTS, RELEASES, LedgerError

NAMES = ("epsilon", "delta", "rho")


class LossRefused(ValueError):
    """A release states its budget in a measure that its data set does not count."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A sum of privacy losses, in the measure of a data set; the others are 0.

    Args:
        epsilon, delta: where it counts in these.
        rho: where it counts in rho.

    >>> third = Loss(epsilon=Fraction(1, 3))
    >>> (third + third + third).within(Loss(epsilon=Fraction(1)))
    True
    """

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)

    def __add__(self, other: Loss) -> Loss:
        return Loss(**{name: getattr(self, name) + getattr(other, name) for name in NAMES})

    def __sub__(self, other: Loss) -> Loss:
        return Loss(**{name: getattr(self, name) - getattr(other, name) for name in NAMES})

    def within(self, total: Loss) -> bool:
        """Whether it is at most a total."""
        return all(getattr(self, name) <= getattr(total, name) for name in NAMES)

    def texts(self) -> dict[str, str]:
        """The exact amounts, as they are stored.

        >>> Loss(rho=Fraction(1, 3)).texts()["rho"]
        '1/3'
        """
        return {name: str(amount) for name, amount in asdict(self).items()}

    @classmethod
    def from_texts(cls, texts: Mapping[str, Any], *, prefix: str = "") -> Loss:
        """The inverse of `texts`.

        Args:
            texts: the amounts by name.
            prefix: of the names.
        """
        return cls(**{name: Fraction(texts[prefix + name]) for name in NAMES})

    def in_words(self, measure: Measure) -> str:
        """For a person, to six digits; the delta only where there is one.

        >>> Loss(epsilon=Fraction(1, 3), delta=Fraction(1, 10**6)).in_words(Measure.EPSILON)
        'epsilon = 0.333333, delta = 1e-06'
        """
        shown = self.counted(measure)
        return ", ".join(f"{name} = {float(amount):g}" for name, amount in shown.items())

    def counted(self, measure: Measure) -> dict[str, Fraction]:
        """The amounts that are counted in a measure, by name; a delta only where there is one."""
        amounts = {measure.value: self.rho if measure is Measure.RHO else self.epsilon}
        return amounts | ({"delta": self.delta} if self.delta else {})


def release_loss(plan: ReleasePlan, measure: Measure, *, per_period: bool = False) -> Loss:
    """What a release costs a data set that counts in a measure.

    Args:
        plan: of the release.
        measure: the data set's.
        per_period: its unit is a unit's rows of one period, as that of a series is.

    Raises:
        LossRefused: the release states another measure that is not soundly converted; the message
            is the rest of a sentence about ``privacy``.
    """
    run = plan.run
    several = run is not None and run.max_periods is None and not plan.unit.is_row
    periods = run.periods if run is not None and several and not per_period else 1
    if measure is Measure.RHO:
        return Loss(rho=periods**2 * _release_rho(plan))
    if plan.stated is not None and periods > 1:
        raise LossRefused(
            "delta: a series protects a unit's rows of one period, its data set the whole unit; "
            f"of {periods} periods the deltas do not add up, so state epsilon alone, or rho"
        )
    if plan.stated is not None:
        epsilon, delta = plan.stated
        return Loss(epsilon=epsilon, delta=delta)
    if plan.budget.measure is Measure.RHO:
        raise LossRefused("rho: its data set counts epsilon and delta, so state these instead")
    return Loss(epsilon=periods * plan.budget.amount)


def _release_rho(plan: ReleasePlan) -> Fraction:
    """The zCDP loss of a release: what trees share, and e^2 / 2 of each tree that is e-DP."""
    if plan.spending.delta:
        raise LossRefused(
            "delta: its data set counts rho, and a tree of this release spends a delta of its own, "
            "which no rho represents; state rho instead"
        )
    shared = plan.budget.measure is Measure.RHO and bool(plan.composed)
    pure = sum((each.spending.epsilon**2 for each in plan.questions), start=Fraction(0))
    return (plan.budget.amount if shared else Fraction(0)) + pure / 2


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
