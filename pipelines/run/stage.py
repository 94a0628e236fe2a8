"""A stage of a release: a plan whose parts are made in a folder, or exist there already.

Before a job goes to an engine, the engine must answer and its workers fit. All stages read the
rows of a table at one state of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from dptrees.dpcore.bounding.unit_ids import unit_families
from dptrees.dpcore.noise.randomness import key_id_from_check
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.config.configuration import Configuration
from dptrees.pipelines.monitoring import remark
from dptrees.pipelines.process import Later
from dptrees.pipelines.proof.signature import load_signing_key
from dptrees.pipelines.run.job import (
    Leaves,
    Options,
    check_filesystems,
    machine_memory,
    process_memory,
    progress_bar,
    run_job,
)
from dptrees.pipelines.run.output import (
    FolderRequest,
    RunRecord,
    check_folder,
    check_output,
    check_parameters,
    check_released,
    check_repaired,
    clear_output,
    described_job,
)
from dptrees.pipelines.run.planned_once import (
    bounds_planned_once,
    planned_once,
    selection_planned_once,
)
from dptrees.transforms import flow
from dptrees.transforms.contract import UNKNOWN_TYPE
from dptrees.transforms.errors import ReleaseError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import (
    is_released,
    key_id_of_folder,
    swept_if_failed,
)
from dptrees.transforms.folder.layout import PART_KINDS, planned_parts
from dptrees.transforms.folder.listing import ListedOnce, SealedList, written_list
from dptrees.transforms.folder.stores import FileInfo
from dptrees.transforms.folder.universe import share_universes
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.file_columns import described
from dptrees.transforms.readers.read import (
    ReadFiles,
    check_contract,
    check_readable,
    file_unit_families,
)
from dptrees.transforms.release import Release
from dptrees.transforms.steps.carry import before_key_id, check_turn, series_families
from dptrees.transforms.steps.count import MakeCounting
from dptrees.transforms.steps.kept_plan import another_plan, kept_by
from dptrees.transforms.steps.record import Witness, check_committed
from dptrees.transforms.tables.query import SqlQuery
from dptrees.transforms.tables.read import ReadTable, table_splits
from dptrees.transforms.tables.table import InputTable

if TYPE_CHECKING:
    from dptrees.pipelines.ledger.booking import Booking


_check_dataflow_reach = Later("run.dataflow:check_dataflow_reach")
_check_dataflow_references = Later("run.dataflow:check_dataflow_references")
_size_workers = Later("run.dataflow:size_workers")
_check_workers = Later("run.engine:check_workers")


class TableRows:
    """The rows of a table, which is looked for when it is first requested.

    Args:
        table: not pinned.
        stack: closed once nobody reads it any more.
    """

    def __init__(self, table: InputTable, stack: ExitStack) -> None:
        self._table, self._stack = table, stack
        self._pinned: InputTable | None = None

    @property
    def pinned(self) -> InputTable:
        """The table at the state that all stages read.

        Raises:
            InputError: it is not there.
        """
        if self._pinned is None:
            self._pinned = self._stack.enter_context(self._table.pinned())
        return self._pinned

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self._table.name

    @property
    def paths(self) -> tuple[str, ...]:
        """The files or folders that workers find it by.

        Raises:
            InputError: it is not there.
        """
        return self.pinned.paths

    def types(self, units: Sequence[str] = ()) -> dict[str, str]:
        """The names of the types of its columns, where some columns name the privacy unit;
        `UNKNOWN_TYPE` where they follow from values, which are not read.

        Raises:
            InputError: it cannot be read.
        """
        types = described(self.pinned.with_units(units).schema())
        if not getattr(self._table, "heads", False):
            return types
        return {n: UNKNOWN_TYPE if each == str(pa.null()) else each for n, each in types.items()}

    def checked(self, plan: ReleasePlan) -> list[tuple[str, int]]:
        """Its name and size, once it is seen to have what a plan reads.

        Raises:
            InputError: it cannot be read, a column is missing, or of a type that cannot be used.
        """
        splits = table_splits(self.pinned, plan)
        return [(self.pinned.name, sum(split.size for split in splits))]

    def reading(self, plan: ReleasePlan) -> flow.Transform:
        """What gives them."""
        return ReadTable(self.pinned, plan)


@contextmanager
def table_rows(table: InputTable | None, *, heads: bool = False) -> Iterator[TableRows | None]:
    """The rows of a table as long as the block lasts; None where there is none.

    Args:
        table: of a configuration.
        heads: look at its columns alone: no query reads a row.
    """
    if heads and isinstance(table, SqlQuery):
        table = replace(table, heads=True)
    with ExitStack() as stack:
        yield None if table is None else TableRows(table, stack)


class Source(Protocol):
    """Rows that are no files of an input."""

    @property
    def name(self) -> str:
        """Their name in messages."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files or folders that workers find them by."""

    def types(self, units: Sequence[str] = ()) -> dict[str, str]:
        """The names of the types of their columns, where some columns name the privacy unit."""

    def checked(self, plan: ReleasePlan) -> list[tuple[str, int]]:
        """Their parts with their sizes, once they are seen to have what a plan reads."""

    def reading(self, plan: ReleasePlan) -> flow.Transform:
        """What gives them, as `transforms.readers.read.ReadFiles` does."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A plan whose parts are made in the output of a configuration.

    Args:
        configuration: with the output, the input and the key.
        planned: what is to be made, as it was planned.
        options: where its job runs.
        request: of the output.
        source: of the rows; None: the files of the input.
        record: of the run that the stage is a part of.
        listed: the files of the input, which all stages of a run read.
        counting: what counts the rows, if another engine does; None: the steps of the pipeline.
    """

    configuration: Configuration
    planned: ReleasePlan
    options: Options
    request: FolderRequest
    source: Source | None = None
    record: RunRecord = field(default_factory=RunRecord)
    listed: ListedOnce = field(default_factory=ListedOnce)
    counting: MakeCounting | None = None

    @property
    def output(self) -> str:
        """Its folder."""
        return self.configuration.output

    @cached_property
    def booking(self) -> Booking | None:
        """The ledger's part; None without one.

        Raises:
            LedgerError: the ledger does not hold the data set, or another unit or relation of it.
        """
        if self.configuration.ledger is None:
            return None
        from dptrees.pipelines.ledger.booking import Booking

        return Booking.from_plan(self.configuration, self.planned)

    @property
    def plan(self) -> ReleasePlan:
        """The plan, with the data set whose budget it spends."""
        return self.planned if self.booking is None else self.booking.plan

    @cached_property
    def typed_plan(self) -> ReleasePlan:
        """The plan, with the families of types of its unit's columns in the input.

        Raises:
            InputError: files have types of two families.
            SeriesError: the run before had another family.
        """
        unit, configuration = self.plan.unit, self.configuration
        if self.source is not None:
            types = self.source.types(unit.columns) if unit.columns else {}
            found = unit_families(unit, types)
        else:
            paths = [file.path for file in self.files()]
            format, options = configuration.input_format, configuration.input_options
            found = file_unit_families(unit, paths, format, options)
        plan = replace(self.plan, unit_families=found)
        if plan.remembering:
            series_families(plan, self.output)
        return plan

    def is_finished(self) -> bool:
        """Whether it is there already, and is to stay as it is; the ledger is not looked at.

        Raises:
            UserError: the output holds something else, or not all of it.
        """
        if not (
            check_output(self.output, self.plan, self.request)
            and check_parameters(self.configuration, self.output, self.request)
        ):
            return False
        check_released(self.output, self.request)
        return True

    def is_released(self) -> bool:
        """Whether it is there already, and is to stay as it is; the ledger then knows it.

        Raises:
            UserError: as of `is_finished`.
            LedgerError: the ledger does not know it.
        """
        if not self.is_finished():
            return False
        if self.booking:
            self.booking.commit_existing()
        return True

    def check_input(self) -> list[tuple[str, int]]:
        """The input's files with their sizes, once they keep the contract about their columns, if
        there is one, and the first one is seen to have what is read."""
        configuration, contract = self.configuration, self.configuration.input_schema
        if self.source is not None:
            if contract is not None:
                contract.check(self.source.types(), self.source.name)
            return self.source.checked(self.plan)
        check_filesystems(configuration.input_paths)
        listed = self.files()
        paths, options = [file.path for file in listed], configuration.input_options
        if contract is not None:
            check_contract(contract, paths, configuration.input_format, options)
        check_readable(paths, configuration.input_format, self.plan, options)
        _ = self.typed_plan
        return [(file.path, file.size) for file in listed]

    def make(self) -> Stage:
        """Make it, once nothing speaks against it any more; its budget is spent before a row is
        read.

        Returns:
            the stage as it was made: with the plan of another launcher, where that wrote one first.
        """
        if self.configuration.signing_key is not None:
            load_signing_key(self.configuration.signing_key)  # seen before a row is read
        if not self.request.repair:
            check_turn(self.plan, self.output)
        begun_under = self.begun_under()
        self.check_reach()
        self.check_memory()
        key = self.configuration.key.checked(begun_under)
        matched = self.check_input()
        check_folder(self.output, self.plan, self.request)
        with self.record.step("preflight", self.output):
            self.check_workers(key)
        request, witness = self.request, None
        if not (request.repair or request.discard):
            if self.booking:
                self.booking.check(key, nonce=request.nonce)  # before anything is written
            if not self._keeps_plan(key):
                return self._with_kept_plan().make()
        if self.booking:
            entry = self.booking.entry(key, nonce=request.nonce, discard=request.discard)
            request, witness = (
                replace(request, nonce=entry.nonce_bytes),
                self.booking.witness(entry),
            )
        clear_output(self.output, request, reserved=self.booking is not None)
        size = sum(size for _, size in matched)
        with self.record.step("job", self.output), self._progress(size):
            self._run(key, request, witness)
        if described_job(self.options):
            return self
        if request.repair:
            check_repaired(self.output)
        if self.booking:
            self.booking.commit_existing()
        return self

    def _keeps_plan(self, key: KeyReference) -> bool:
        """Let the output keep the plan; whether it is this one, and not one that another launcher
        wrote first."""
        output, request = files.absolute(self.output), self.configuration.request
        return kept_by(output, self.plan, request, key).digest == self.plan.digest.hex()

    def _with_kept_plan(self) -> Stage:
        """The stage with the plan that its output keeps."""
        configuration = self.configuration
        if configuration.awaits_bounds:
            plan = bounds_planned_once(configuration, self.output)
        elif configuration.selections and not configuration.selected:
            plan = selection_planned_once(configuration, self.output)
        else:
            plan = planned_once(configuration)
        if plan.digest == self.planned.digest:
            raise another_plan(self.output)
        return replace(self, planned=plan)

    def check_reach(self) -> None:
        """On Dataflow, check that workers reach what there is, and choose their machines.

        Raises:
            UserError: they do not.
        """
        if not self.options.is_dataflow:
            return
        configuration = self.configuration
        _check_dataflow_references(configuration)
        paths = configuration.input_paths if self.source is None else self.source.paths
        _check_dataflow_reach(self.options.beam, (*paths, self.output))
        _size_workers(self.options.beam, self.process_memory)

    @property
    def process_memory(self) -> int:
        """The bytes that a process of the job may need."""
        leaves = Leaves.from_plan(self.configuration, self.plan)
        return process_memory(leaves, bounds_rows=not self.plan.unit.is_row)

    def check_workers(self, key: KeyReference) -> bool:
        """See that the engine, if there is one, answers, and that its workers fit.

        Returns:
            whether a worker was looked at.
        """
        return self.options.beam is not None and bool(_check_workers(self.options.beam, key))

    def check_memory(self) -> None:
        """Warn before a job that may need more memory than this process may use."""
        needed, there = self.process_memory, machine_memory()
        if self.options.is_here and needed > there:
            remark(
                f"the release may need {needed / 2**30:.1f} GiB of memory, and there are "
                f"{there / 2**30:.1f}: fewer cells or keys need less (domain.cells)"
            )

    def begun_under(self) -> str | None:
        """The id of the key under which a release was begun and goes on, as its folder shows, or
        else its ledger or the run of a series before it; None where it was not."""
        if self.request.discard:
            return before_key_id(self.plan, self.output)
        result, booking = key_id_of_folder(self.output), self.booking
        if result is None and booking and (entry := booking.active_entry) is not None:
            return key_id_from_check(bytes.fromhex(entry.key))
        return before_key_id(self.plan, self.output) if result is None else result

    @contextmanager
    def _progress(self, size: int) -> Iterator[None]:
        parts = sum(1 for _ in planned_parts(self.plan))
        # Elsewhere the workers are other processes: what they wrote is looked for.
        elsewhere = not self.options.is_here
        present = partial(_parts_present, self.output) if elsewhere else None
        with progress_bar(size, parts, present):
            yield

    def _run(self, key: KeyReference, request: FolderRequest, witness: Witness | None) -> None:
        """Shares the public tables of the plan, and runs the job."""
        output = files.absolute(self.output)
        for question in self.plan.questions:
            question.prepare()  # before the plan is copied
        with swept_if_failed(output), self._listed_for(key) as listed:
            plan = share_universes(self.typed_plan, output)
            try:
                self._run_with(plan, self._read(plan, listed), key, request, witness)
            except ReleaseError:
                # Another launcher, that ended first, deleted the list: its release is this one.
                if listed is None or not (listed.is_gone() and is_released(output, self.plan)):
                    raise
        if not described_job(self.options):
            check_committed(output)

    def files(self) -> list[FileInfo]:
        """The files of the input, as the run listed them first."""
        arrival = self.configuration.input_arrival
        if self.request.repair:  # from the rows of a finished release, which are old
            arrival = replace(arrival, max_age=0)
        return self.listed.files(self.configuration.input_paths, arrival)

    @contextmanager
    def _listed_for(self, key: KeyReference) -> Iterator[SealedList | None]:
        """The list of the input's files where workers read it; None of other rows."""
        if self.source is not None:
            yield None
            return
        found = self.files()
        listed = [each._replace(path=files.absolute(each.path)) for each in found]
        output, keep = files.absolute(self.output), bool(described_job(self.options))
        with written_list(listed, output, key, keep=keep) as reference:
            yield reference

    def _run_with(
        self,
        plan: ReleasePlan,
        read: flow.Transform,
        key: KeyReference,
        request: FolderRequest,
        witness: Witness | None,
    ) -> None:
        """Builds and runs the job of a plan whose public tables are shared."""
        configuration, output = self.configuration, files.absolute(self.output)
        release = Release(
            plan,
            key=key,
            output=output,
            nonce=request.nonce,
            repair=request.repair,
            witness=witness,
            parameters=configuration.parameters,
            report=configuration.report,
            request=configuration.request,
            counting=self.counting,
        )
        run_job(read, release, self.options)

    def _read(self, plan: ReleasePlan, listed: SealedList | None) -> flow.Transform:
        """What gives the rows."""
        if self.source is not None:
            return self.source.reading(plan)
        return ReadFiles(
            listed=listed,
            format=self.configuration.input_format,
            options=self.configuration.input_options,
            plan=plan,
        )


def _parts_present(output: str) -> int:
    """How many parts lie in the output."""
    return sum(1 for kind in PART_KINDS for _ in files.names_below(files.join(output, kind)))
