"""Releases of rows in memory, or of files, to memory or to a folder."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any

from apache_beam.options.pipeline_options import StandardOptions

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.python.config import AnyConfig
from dptrees.pipelines.python.engine_rows import EngineRows
from dptrees.pipelines.python.error import Error
from dptrees.pipelines.python.release import Release
from dptrees.pipelines.python.remarks import warn_caller
from dptrees.pipelines.python.requested import (
    check_rows,
    key_values,
    names_key,
    requested_configuration,
)
from dptrees.pipelines.python.rows import HeldSource, file_paths, to_batches
from dptrees.pipelines.python.spent import note_spent
from dptrees.pipelines.quiet_logs import quiet_logs
from dptrees.pipelines.release_folder import ReleaseFolder
from dptrees.pipelines.releasing import finished, made, sign
from dptrees.pipelines.running.job import beam_options, runs_here
from dptrees.pipelines.running.output import FolderRequest
from dptrees.pipelines.running.planned_once import planned_once, with_kept_stages
from dptrees.pipelines.running.stage import Stage
from dptrees.pipelines.series.to_date import add_to_date
from dptrees.pipelines.summary import total_warnings
from dptrees.pipelines.tables.rows import table_rows
from dptrees.transforms.folder import files
from dptrees.transforms.held import KEPT_SCHEME, KeptFiles, held
from dptrees.transforms.keys import KeyReference, KeyRing
from dptrees.transforms.readers.formats import format_of_names

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
    """

    config: AnyConfig
    key: str | os.PathLike[str] | None = None
    output: str | os.PathLike[str] | None = None
    parameters: Mapping[str, object] | None = None
    options: Sequence[str] = ()
    wanted: FolderRequest = field(default_factory=FolderRequest)
    in_session: bool = False

    @cached_property
    def has_key(self) -> bool:
        """Whether the call or its configuration names a release key."""
        return self.key is not None or names_key(self.config)

    @property
    def in_memory(self) -> bool:
        """Whether the release is in memory."""
        return self.output is None

    def configuration(self, rows: object) -> Configuration:
        """Return the configuration that the command would read.

        Args:
            rows: the rows, or the paths of files.

        Raises:
            ConfigurationError, Error: if it cannot be used, or needs a folder or a key.
        """
        check_rows(rows, self.config)
        place = f"{KEPT_SCHEME}://{uuid.uuid4().hex}/release"
        given: dict[str, Any] = {"output": place if self.output is None else os.fspath(self.output)}
        given |= key_values(self.key)
        if (paths := file_paths(rows)) is not None:
            given["input"] = {"format": format_of_names(paths), "path": list(paths)}
        configuration = requested_configuration(self.config, given, self.parameters)
        if self.in_memory:
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
        rows: rows that `pipelines.python.rows` reads, rows of an engine, or paths of files, or
            None: the input of the configuration.
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
        options = beam_options(list(call.options))
        files.use_options(options)
        discard = call.wanted.discard
        configuration = with_kept_stages(configuration, discard=discard)
        stage = Stage(
            configuration=configuration,
            planned=planned_once(configuration, discard=discard),
            options=options,
            request=call.wanted,
        )
        if rows is not None and file_paths(rows) is None:
            _check_no_age(configuration)
        if isinstance(rows, EngineRows):
            stage = stack.enter_context(rows.counted(stage))
        elif rows is not None and file_paths(rows) is None:
            stage = replace(stage, source=stack.enter_context(_held(rows, stage)))
        else:
            source = stack.enter_context(table_rows(configuration.table))
            stage = replace(stage, source=source)
        _check_elsewhere(call, stage)
        made_release = _in_memory(stage) if call.in_memory else _in_folder(stage)
        for line in total_warnings(ReleaseFolder(stage.output)):
            warn_caller(line.removeprefix("warning: "))
        if call.in_memory and rows is not None:
            table = rows.table if isinstance(rows, EngineRows) else rows
            made_release.together = note_spent(table, configuration.guarantee.budget)
        if made_release.together is not None and not call.in_session:
            warn_caller(f"{made_release.together}; a dptrees.Session refuses to exceed its total")
        return made_release


def _check_no_age(configuration: Configuration) -> None:
    """Refuse an age of files for rows in memory.

    Raises:
        Error: the configuration has one.
    """
    if configuration.input_arrival.max_age:
        raise Error(
            "input.max_age: rows in memory have no age; remove max_age, or give the paths of files"
        )


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
    if runs_here(stage.options):
        return
    runner = stage.options.view_as(StandardOptions).runner
    if call.in_memory:
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
        KeptFiles.taken(stage.output)
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
