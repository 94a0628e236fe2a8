"""Releases of rows or files in Python, to memory or a folder, and sessions under one budget.

A session is the ledger of one process: it adds up the budgets of its releases and refuses a
release that would exceed the total. It ends with the process; use a ledger (docs/ledger.md) if
the total must last.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import count
from typing import Any

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import Measure, PrivacyUnit, amount_text
from dptrees.pipelines.config.configuration import Configuration
from dptrees.pipelines.process import UserError, quiet_logs
from dptrees.pipelines.python.config import (
    AnyConfig,
    key_values,
    names_key,
    plain,
    requested_configuration,
    rows_configuration,
)
from dptrees.pipelines.python.error import Error, short_tracebacks, user_errors, warn_caller
from dptrees.pipelines.python.release import Release
from dptrees.pipelines.python.rows import HeldSource, is_held, note_spent, to_batches
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.query.series_totals import add_to_date
from dptrees.pipelines.report.summary import total_warnings, write_report
from dptrees.pipelines.run.job import job_options
from dptrees.pipelines.run.output import FolderRequest
from dptrees.pipelines.run.planned_once import planned_once, with_kept_stages
from dptrees.pipelines.run.releasing import finished, made, sign
from dptrees.pipelines.run.stage import Stage, table_rows
from dptrees.transforms.folder import files
from dptrees.transforms.folder.names import MANIFEST
from dptrees.transforms.held import KEPT_FILES, KEPT_SCHEME, held
from dptrees.transforms.keys import KeyReference, KeyRing

_drawn: dict[str, ReleaseKey] = {}
_numbers = count()


class OneTimeKey(KeyReference):
    """A reference to a key that exists in this process only, while the release is made."""

    def ring(self) -> KeyRing:
        """Return a ring with this key only."""
        return KeyRing(keys=(_drawn[self.reference],))


@contextmanager
def one_time_key() -> Iterator[OneTimeKey]:
    """Draw a key from the system's randomness, and forget it when the block ends.

    Then no one can remove the noise, and no one can make the release again: it cannot be finished,
    repaired, or verified against its rows.

    >>> with one_time_key() as key:
    ...     key.load().check_value() == key.checked().load().check_value()
    True
    """
    reference = f"once:{next(_numbers)}"
    _drawn[reference] = ReleaseKey.generate()
    try:
        yield OneTimeKey(reference=reference)
    finally:
        del _drawn[reference]


@dataclass(frozen=True, kw_only=True)
class Call:
    """The arguments of a call of `dptrees.release`, except the rows.

    Args:
        config: the configuration.
        key: the place of the release key; None: the key of the configuration, else a one-time key.
        output: the folder of the release; None: the release is in memory.
        parameters: parameters of the configuration, by name.
        options: options of Beam, as on a command line; without a runner, this process runs all.
        wanted: the request for the output folder.
        in_session: whether a session adds up the budgets.
        counted_by: returns a stage whose rows another engine counts, such as a Spark DataFrame;
            None: this process reads the rows.
    """

    config: AnyConfig
    key: str | os.PathLike[str] | None = None
    output: str | os.PathLike[str] | None = None
    parameters: Mapping[str, object] | None = None
    options: Sequence[str] = ()
    wanted: FolderRequest = field(default_factory=FolderRequest)
    in_session: bool = False
    counted_by: Callable[[Any, Stage], Stage] | None = None

    @cached_property
    def has_key(self) -> bool:
        """Whether the call or its configuration names a release key."""
        return self.key is not None or names_key(self.config)

    def configuration(self, rows: object) -> Configuration:
        """Return the configuration that the command would read.

        Args:
            rows: the rows, or the paths of files.

        Raises:
            ConfigurationError, Error: if it cannot be used, or needs a folder or a key.
        """
        place = f"{KEPT_SCHEME}://{uuid.uuid4().hex}/release"
        given: dict[str, Any] = {"output": place if self.output is None else os.fspath(self.output)}
        given |= key_values(self.key)
        configuration = rows_configuration(rows, self.config, given, self.parameters)
        if self.output is None:
            self._check_memory(configuration)
        elif not self.has_key:
            raise Error(
                "key: is needed with output, where a stopped release is finished under the key "
                "that it was begun with; dptrees.keygen('release.key') makes one"
            )
        return configuration

    def _check_memory(self, configuration: Configuration) -> None:
        for name, there, why in (
            (
                "ledger",
                configuration.ledger,
                "a release in a ledger must be finished once it has begun",
            ),
            ("series", configuration.series, "a run continues from the run before it"),
        ):
            if there is not None:
                raise Error(f"output: is needed with {name}, since {why}")


def release(rows: Any, call: Call) -> Release:
    """Make a release, or open it if it exists in its folder.

    Args:
        rows: rows that `pipelines.python.rows` reads, or that an engine counts; or paths of files;
            or None: the input of the configuration.
        call: the other arguments.

    Raises:
        Error, ConfigurationError, UserError, ReleaseError: in one sentence that says what to fix.
    """
    configuration = call.configuration(rows)
    with ExitStack() as stack:
        # An engine logs failures that are reported anyway.
        stack.enter_context(quiet_logs(logging.CRITICAL))
        if not call.has_key:
            configuration = replace(configuration, key=stack.enter_context(one_time_key()))
        options = job_options(call.options)
        discard = call.wanted.discard
        configuration = with_kept_stages(configuration, discard=discard)
        stage = Stage(
            configuration=configuration,
            planned=planned_once(configuration, discard=discard),
            options=options,
            request=call.wanted,
        )
        if not is_held(rows):
            source = stack.enter_context(table_rows(configuration.table))
            stage = replace(stage, source=source)
        elif configuration.input_arrival.max_age:
            raise Error(
                "input.max_age: rows in memory have no age; remove max_age, or give the paths of "
                "files"
            )
        elif call.counted_by is not None:
            stage = call.counted_by(rows, stage)
        else:
            stage = replace(stage, source=stack.enter_context(_held(rows, stage)))
        _check_elsewhere(call, stage)
        made_release = _in_memory(stage) if call.output is None else _in_folder(stage)
        for line in total_warnings(ReleaseFolder(stage.output)):
            warn_caller(line.removeprefix("warning: "))
        if call.output is None and rows is not None:
            made_release.together = note_spent(rows, configuration.guarantee.budget)
        if made_release.together is not None and not call.in_session:
            warn_caller(f"{made_release.together}; a dptrees.Session refuses to exceed its total")
        return made_release


@contextmanager
def _held(rows: Any, stage: Stage) -> Iterator[HeldSource]:
    first, bounds = stage.configuration.selection, stage.configuration.bounds
    columns = (*stage.planned.columns, *(() if first is None else first.columns))
    columns += () if bounds is None else bounds.plan.columns
    contract = stage.configuration.input_schema
    columns += () if contract is None else tuple(contract.types)
    batches = to_batches(rows, tuple(dict.fromkeys(columns)))
    with held(batches) as number:
        yield HeldSource(batches, number)


def _check_elsewhere(call: Call, stage: Stage) -> None:
    """Refuse a job whose workers would need the memory of this process, before budget is spent.

    Raises:
        Error: if workers in other processes would have to read or write this memory.
    """
    if stage.options.is_here:
        return
    runner = stage.options.runner
    if call.output is None:
        raise Error(f"output: is needed with --runner={runner}, whose workers cannot write here")
    if isinstance(stage.source, HeldSource):
        raise Error(
            f"rows: the workers of --runner={runner} cannot read the memory of this process; write "
            "the rows to files and give their paths"
        )


def _in_memory(stage: Stage) -> Release:
    try:
        stage, _ = made(stage)
        sign(stage, exists=False)
    except BaseException:
        KEPT_FILES.taken(stage.output)
        raise
    return Release(ReleaseFolder(stage.output), path=None)


def _in_folder(stage: Stage) -> Release:
    if stage.configuration.id_of_all:
        warn_caller(stage.configuration.id_remark)
    stage, exists = made(stage)
    if exists:
        warn_caller(
            f"{stage.output}: a release of this specification is already there; no rows were "
            "read, and no noise was added or budget spent again"
        )
    finished(stage, exists=exists)
    add_to_date(stage.plan, stage.output, show=False)
    return Release(ReleaseFolder(stage.output), path=stage.output)


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
            self._unit = configuration.guarantee.unit

    def _check(self, configuration: Configuration) -> Spent:
        """Return the spending of a release, after checking that the rest is enough.

        Raises:
            Error: as for `check_room`.
        """
        guarantee, unit = configuration.guarantee, configuration.guarantee.unit
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


def save_release(place: str, path: str) -> str:
    """Write the files of a release, its manifest last, and then its report.

    Args:
        place: the place of the release in memory.
        path: the folder, which must be new or empty.

    Returns:
        The path.

    Raises:
        UserError: if the folder contains something.
        OutputError: if a file cannot be written.
    """
    if (os.path.exists(path) and not os.path.isdir(path)) or any(files.names_below(path)):
        raise UserError(f"{path}: holds something already; choose another folder")
    held = {
        name.removeprefix(f"{place}/"): data
        for name, (_, data) in KEPT_FILES.objects.copy().items()
        if name.startswith(f"{place}/")
    }
    for name in sorted(held, key=lambda name: (name == MANIFEST, name)):
        files.write_whole(files.join(path, *name.split("/")), held[name])
    write_report(path)
    return path


def forget(path: str) -> None:
    """Remove a release from memory."""

    KEPT_FILES.taken(path)
