"""A session of releases in memory under one total budget.

A session is the ledger of one process. It adds up the budgets of its releases, and refuses a
release that would exceed the total. It ends with the process; use a ledger (docs/ledger.md) if the
total must last.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dptrees.dpcore.privacy.unit import Measure, PrivacyUnit, amount_text
from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.python.config import AnyConfig, plain
from dptrees.pipelines.python.error import Error, short_tracebacks, user_errors
from dptrees.pipelines.python.making import Call, release
from dptrees.pipelines.python.release import Release
from dptrees.pipelines.python.requested import requested_configuration


@dataclass(frozen=True, kw_only=True)
class Spent:
    """The budget that a release spends.

    Args:
        amount: the epsilon or rho.
        delta: the delta of an epsilon; 0 without one.
    """

    amount: Fraction
    delta: Fraction


@short_tracebacks
class Session:
    """Several releases in memory under one total budget.

    The guarantee of all its releases together is the total: by basic composition, their epsilons
    (or rhos) and deltas add up. All of them protect the same privacy unit under the same
    neighboring relation, which the first release sets; the contribution bounds may differ.

    Args:
        epsilon: the total epsilon; one of epsilon and rho.
        rho: the total rho.
        delta: the total delta, in addition to an epsilon.
        dataset: the name of the data, for messages.

    Raises:
        Error: if not exactly one of epsilon and rho is given, or an amount is not above 0.

    >>> session = Session(epsilon=3)
    >>> session
    <Session: epsilon = 3; nothing spent>
    """

    def __init__(
        self,
        *,
        epsilon: float | str | None = None,
        rho: float | str | None = None,
        delta: float | str | None = None,
        dataset: str | None = None,
    ) -> None:
        amount = epsilon if rho is None else rho
        if amount is None or (epsilon is not None and rho is not None):
            raise Error("Session: give one of epsilon and rho")
        if rho is not None and delta is not None:
            raise Error("delta: goes with epsilon, not with rho")
        self._measure = Measure.EPSILON if rho is None else Measure.RHO
        self._total = Spent(
            amount=_amount(self._measure.value, amount),
            delta=Fraction(0) if delta is None else _amount("delta", delta),
        )
        if self._total.delta >= 1:
            raise Error(f"delta: {delta} must be below 1")
        self.dataset = dataset
        self._unit: PrivacyUnit | None = None
        self._spent: list[Spent] = []
        self._lock, self._process = threading.Lock(), os.getpid()

    def release(
        self,
        rows: Any,
        config: AnyConfig,
        *,
        key: str | os.PathLike[str] | None = None,
        set: Mapping[str, object] | None = None,
        options: Sequence[str] = (),
    ) -> Release:
        """Make a release in memory, if the rest of the total budget is enough.

        The budget is spent before a row is read, and stays spent if the release fails after that. A
        configuration that is refused spends nothing.

        Args:
            rows, config, key, set, options: as for `dptrees.release`.

        Returns:
            The release; it may be published.

        Raises:
            Error: if the release would exceed the total, or has another privacy unit or measure; or
                as for `dptrees.release`.
        """
        call = Call(config=config, key=key, parameters=set, options=tuple(options), in_session=True)
        self._check_process()
        with user_errors():
            self._spend(call.configuration(rows))
            return release(rows, call)

    def check_room(self, config: AnyConfig, *, set: Mapping[str, object] | None = None) -> None:
        """Check that the rest of the budget is enough for a release; nothing is spent.

        Args:
            config, set: as for `dptrees.release`.

        Raises:
            Error: if the release would exceed the total, or has another privacy unit or measure.
        """
        self._check_process()
        with user_errors(), self._lock:
            self._check(requested_configuration(config, {}, set))

    @property
    def spent(self) -> float:
        """The epsilon or rho that the releases have spent together."""
        return float(self._sum.amount)

    @property
    def left(self) -> float:
        """The rest of the epsilon or rho."""
        return float(self._total.amount - self._sum.amount)

    @property
    def _sum(self) -> Spent:
        return Spent(
            amount=sum((each.amount for each in self._spent), Fraction(0)),
            delta=sum((each.delta for each in self._spent), Fraction(0)),
        )

    def _check_process(self) -> None:
        """Refuse a copy in a forked process: each copy would spend the whole total.

        Raises:
            Error: if another process made the session.
        """
        if os.getpid() != self._process:
            raise Error(
                "Session: another process made it, and this process has a copy, so that nobody "
                "would add up the budgets: release in one process, or use a ledger"
            )

    def _spend(self, configuration: Configuration) -> None:
        configuration.plan()  # a configuration without a plan is refused before it is paid for
        with self._lock:
            self._spent.append(self._check(configuration))
            self._unit = configuration.terms.unit

    def _check(self, configuration: Configuration) -> Spent:
        """Return the spending of a release, after checking that the rest is enough.

        Raises:
            Error: as for `check_room`.
        """
        guarantee, unit = configuration.guarantee, configuration.terms.unit
        measure = guarantee.budget.measure
        if measure is not self._measure:
            raise Error(
                f"privacy: the session counts {self._measure.value}, and this release spends "
                f"{measure.value}"
            )
        if self._unit is not None and _protected(unit) != _protected(self._unit):
            raise Error(
                f"privacy: the session protects each {self._unit.name} under "
                f"{self._unit.neighbors.value}, and this release each {unit.name} under "
                f"{unit.neighbors.value}; their budgets do not add up"
            )
        wanted = Spent(amount=guarantee.budget.amount, delta=guarantee.delta or Fraction(0))
        for name, part, total, spent in (
            (measure.value, wanted.amount, self._total.amount, self._sum.amount),
            ("delta", wanted.delta, self._total.delta, self._sum.delta),
        ):
            if spent + part > total:
                raise Error(
                    f"privacy.{name}: {amount_text(part)} is more than what is left of the session"
                    f"{self._of_dataset}, {amount_text(total - spent)} of {amount_text(total)}"
                )
        return wanted

    @property
    def _of_dataset(self) -> str:
        return "" if self.dataset is None else f" of {self.dataset}"

    def __repr__(self) -> str:
        name, total, spent = self._measure.value, self._total, self._sum
        delta = f", delta = {amount_text(total.delta)}" if total.delta else ""
        head = f"<Session{self._of_dataset}: {name} = {amount_text(total.amount)}{delta}"
        if not self._spent:
            return f"{head}; nothing spent>"
        many = "1 release" if len(self._spent) == 1 else f"{len(self._spent)} releases"
        more = f" and delta {amount_text(spent.delta)}" if total.delta else ""
        left = amount_text(total.amount - spent.amount)
        return f"{head}; {many} spent {amount_text(spent.amount)}{more}, {left} is left>"


def _protected(unit: PrivacyUnit) -> tuple[object, ...]:
    """Return the properties that make two units the same, whatever their bounds."""
    return unit.neighbors, unit.columns, unit.nulls, unit.type


def _amount(name: str, value: float | str) -> Fraction:
    """Return an amount of a budget, exactly as it is written."""
    text = str(plain(value))
    try:
        amount = Fraction(text if "/" in text else plain(Decimal(text)))
    except (ValueError, ArithmeticError):
        amount = Fraction(0)
    if amount <= 0 or math.isinf(float(amount)):
        raise Error(f"{name}: {value!r} must be a number above 0")
    return amount
