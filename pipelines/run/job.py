"""The job of a release: where it runs, what it needs, its progress and its end in one sentence.

Progress shows only fractions of work known before the data is read. A job without an engine runs
in this process, and imports nothing of Beam.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dptrees.dpcore.bounding.row_choice import WAITING_ROWS
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.specification import ANOTHER_MATRIX
from dptrees.pipelines.config.configuration import Configuration
from dptrees.pipelines.monitoring import LOG, NO_MEMORY, remark
from dptrees.pipelines.process import Later, UserError, import_beam, without_collections
from dptrees.pipelines.run.loop import processor_count, run_flow
from dptrees.transforms import IMPORT_LOCK, flow
from dptrees.transforms.conservation import listen
from dptrees.transforms.errors import (
    InputError,
    ReleaseError,
    error_in,
    errors_within,
    is_no_memory,
)
from dptrees.transforms.folder import files
from dptrees.transforms.release import Release
from dptrees.transforms.steps.count import check_shards

# In this process, on all its processors.
LOOP_RUNNER = "LoopRunner"
# Cells of all trees that every thread may have an array of: 32 MB.
_MOST_SHARED_CELLS = 2**22
# Of rows of privacy units, where all parts are bounded in this process: the rows of a part are in
# memory at once, on every thread.
_UNIT_SHARDS = 128
_engine_options = Later("run.engine:engine_options")
_runner_of = Later("run.engine:runner_of")
_runs_here = Later("run.engine:runs_here")
_jar_of = Later("run.engine:jar_of")
_loop_settings = Later("run.engine:loop_settings")
_run_on_engine = Later("run.engine:run_on_engine")
_is_dataflow = Later("run.dataflow:is_dataflow")
_submits_only = Later("run.dataflow:submits_only")


def check_filesystems(paths: Sequence[str]) -> None:
    """Refuse paths of filesystems that are not known here.

    Raises:
        UserError: naming the path.
    """
    if any(map(files.needs_beam, paths)):
        with IMPORT_LOCK, without_collections():
            import_beam()
    for path in paths:
        if not files.is_known(path):
            raise UserError(
                f"{path}: Beam has no filesystem for it here, or it lacks an option "
                "(gs:// needs dptrees[gcp] installed, s3:// dptrees[aws])"
            )


@dataclass(frozen=True, kw_only=True)
class Options:
    """Where a job runs.

    Args:
        threads: of this process; 0: one for each processor.
        unit_shards: in how many parts the rows of privacy units are bounded; None: as planned.
        beam: the options of Beam; None: none is given, so the job runs here without Beam.
    """

    threads: int = 0
    unit_shards: int | None = None
    beam: Any = None

    @property
    def runner(self) -> str:
        """The name of the runner."""
        return LOOP_RUNNER if self.beam is None else str(_runner_of(self.beam))

    @property
    def is_here(self) -> bool:
        """Whether this process does all the work."""
        return self.beam is None or bool(_runs_here(self.beam))

    @property
    def is_dataflow(self) -> bool:
        """Whether the job runs on Dataflow."""
        return self.beam is not None and bool(_is_dataflow(self.beam))

    @property
    def submits_only(self) -> bool:
        """Whether the job is only described, for others to submit it."""
        return self.beam is not None and bool(_submits_only(self.beam))

    @property
    def jar(self) -> str:
        """The path of the jar of the job, if it is wanted; "" if the job is to be run."""
        return "" if self.beam is None else str(_jar_of(self.beam))


def job_options(arguments: Sequence[str]) -> Options:
    """Read options of Beam, as on a command line.

    Args:
        arguments: without a runner, this process runs the job.

    Raises:
        UserError: a runner or an option that cannot be used.
        InputError: a number out of range.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--direct_num_workers", type=int, default=0)
    parser.add_argument("--unit_shards", type=int)
    with suppress(argparse.ArgumentError):  # Beam's parser says what is wrong
        own, others = parser.parse_known_args(list(arguments))
        if not others:
            check_shards(own.unit_shards)
            files.use_options(None)
            return _in_range(Options(threads=own.direct_num_workers, unit_shards=own.unit_shards))
    with IMPORT_LOCK, without_collections():
        import_beam()
        _engine_options.load()
    given = _engine_options(list(arguments))
    files.use_options(given)
    threads, shards = _loop_settings(given)
    return _in_range(Options(threads=threads, unit_shards=shards, beam=given))


def _in_range(options: Options) -> Options:
    if options.threads < 0:
        raise UserError(f"--direct_num_workers: {options.threads} is below 0")
    return options


def run_job(read: flow.Transform, release: Release, options: Options) -> None:
    """Run the job of a release, and report its failure in one sentence if it has one.

    Args:
        read: gives its rows and their balance, as `transforms.readers.read.ReadFiles` does.
        release: what becomes of them.
        options: where it runs.

    Raises:
        ReleaseError: it failed for a reason that its user can fix, or that may pass.
    """
    if options.runner != LOOP_RUNNER:
        _run_on_engine(read, release, options.beam)
        return
    graph = flow.Flow(unit_shards=options.unit_shards, planned_shards=_UNIT_SHARDS)
    graph | "Read" >> read | "Release" >> release
    try:
        run_flow(graph, options.threads or thread_count(release.plan))
    except Exception as error:
        fault = job_fault(error)
        if fault is None:
            raise
        raise fault from None


def thread_count(plan: ReleasePlan) -> int:
    """The number of threads that count: one where each of several would hold large arrays."""
    cells = sum(question.dense_cells for question in plan.questions)
    return 1 if cells > _MOST_SHARED_CELLS else processor_count()


_NO_SPACE = re.compile("No space left on device|Disk quota exceeded")


def job_fault(error: Exception) -> ReleaseError | None:
    """Return how the failure of a job is reported; None for a fault of the program, or of an
    engine."""
    text = " ".join(str(each) for each in errors_within(error))
    result = error_in(text)
    if result is not None:
        return result
    if ANOTHER_MATRIX in text:
        return InputError(ANOTHER_MATRIX)
    if is_no_memory(error) or "OutOfMemoryError" in text:
        return InputError(NO_MEMORY, again=True)
    if _NO_SPACE.search(text):
        return InputError("a disk is full where the job ran", again=True)
    return None


# Python, Beam and Arrow, and the rows and parts in flight.
_BASE = 700 * 2**20
_BYTES_OF_LISTED_LEAF, _BYTES_OF_LEAF, _MOST_DENSE = 90, 16, 2**25
# Of leaves that are read in parts: their parents.
_BYTES_OF_PARTED_LEAF = 8
# Of a privacy unit's row that waits to be sent.
_BYTES_OF_WAITING_ROW = 60


@dataclass(frozen=True, kw_only=True)
class Leaves:
    """How many leaves the trees of a plan have, by how a process holds them.

    Attributes:
        listed: of trees that have a public table of them.
        parted: of those whose table is read in parts.
        others: of all other trees.
    """

    listed: int = 0
    parted: int = 0
    others: int = 0

    @classmethod
    def from_plan(cls, configuration: Configuration, plan: ReleasePlan) -> Leaves:
        """Count the leaves of a plan."""
        found = {"listed": 0, "parted": 0, "others": 0}
        known = {tree.name: tree.leaves for tree in configuration.trees}
        for question in plan.questions:
            name = "parted" if question.is_matched else "listed"
            leaves = (known.get(question.name) or 0) * question.key_count
            found[name if question.public_tables else "others"] += leaves or question.dense_cells
        return cls(**found)


def process_memory(leaves: Leaves, *, bounds_rows: bool = False) -> int:
    """The bytes that a process of a worker may need, as far as they are known from the plan.

    Not known are rows of units in a shard, cells of boxes and sparse trees, and distinct values.

    Args:
        leaves: of the plan.
        bounds_rows: whether rows of privacy units wait to be sent to shards.

    >>> round(process_memory(Leaves(listed=8_100_000)) / 2**20)
    1395
    """
    needed = _BASE + _BYTES_OF_LISTED_LEAF * leaves.listed
    needed += _BYTES_OF_PARTED_LEAF * leaves.parted
    needed += _BYTES_OF_LEAF * min(leaves.others, _MOST_DENSE)
    if bounds_rows:
        needed += _BYTES_OF_WAITING_ROW * WAITING_ROWS
    return needed


def machine_memory() -> int:
    """The bytes of memory that this process may use: the machine's, or its control group's."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # there is none, or it says max
            limits.append(int(Path(path).read_text()))
    return min(limits)


# Seconds between two looks at the output.
LOOK_EVERY = 2.0
# After so many seconds without a new part of the output this is remarked, and again after as many.
QUIET_SECONDS = 300.0


@contextmanager
def progress_bar(
    input_bytes: int, parts: int, parts_present: Callable[[], int] | None = None
) -> Iterator[None]:
    """Shows progress until the block ends.

    Args:
        input_bytes: of all input files.
        parts: of the release.
        parts_present: how many parts the output holds, where workers are other processes.
    """
    shared = {"file": sys.stderr, "disable": LOG.is_json or not sys.stderr.isatty(), "leave": False}
    with (
        tqdm(
            total=max(1, input_bytes), desc="reading", unit="B", unit_scale=True, **shared
        ) as read,
        tqdm(total=parts, desc="writing", unit="part", **shared) as written,
    ):
        bars = {"read": read, "write": written}
        stop = listen(lambda stage, amount: bars[stage].update(amount))
        looking = _Look(written, parts, parts_present)
        if parts_present:
            looking.start()
        try:
            yield
        finally:
            stop()
            looking.over.set()
            if looking.ident is not None:
                looking.join()


class _Look(threading.Thread):
    """Look from time to time how many parts there are, and remark that none came for long."""

    def __init__(
        self, bar: tqdm[object], parts: int, parts_present: Callable[[], int] | None
    ) -> None:
        super().__init__(daemon=True)
        self._bar, self._parts, self._present = bar, parts, parts_present
        self.over = threading.Event()

    def run(self) -> None:
        """Until the job is over. What cannot be seen is not shown: the job says its own errors."""
        assert self._present is not None
        # Without a bar nobody waits for the number.
        every = min(QUIET_SECONDS / 5, LOOK_EVERY * (15 if self._bar.disable else 1))
        seen, since = 0, time.monotonic()
        while not self.over.wait(every):
            with suppress(Exception):
                present = min(self._parts, self._present())
                if present > seen:
                    seen, since = present, time.monotonic()
                self._bar.n = seen
                self._bar.refresh()
            if time.monotonic() - since >= QUIET_SECONDS:
                remark(
                    f"the job has not written a part of the release for {QUIET_SECONDS:.0f} s "
                    f"({seen} of {self._parts} are there): it is reading, or waiting for workers; "
                    "see the engine's own page. --timeout stops such a run"
                )
                since = time.monotonic()
