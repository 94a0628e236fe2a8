"""Processors, shuffle and memory of a release on many workers, predicted from its plan.

Nothing here reads data: the number of rows is a public guess. What depends on where rows are (the
leaves of a sparse tree) is taken at its largest. What earlier runs of a series left is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dptrees.dpcore.bounding.unit_rows import planned_shards
from dptrees.dpcore.questions.leaf_counts import BUFFERED_ROWS, DENSE_CELLS
from dptrees.dpcore.questions.place import UNIT_SHARDS
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.cluster.costs import (
    BOUNDED_ROW,
    LAUNCHER,
    MATCHED_LEAF,
    READING,
    SENT_ROW,
    SORTED_ROW,
    WORKER_START,
    KindCosts,
    counts_bytes,
    unit_row_bytes,
)
from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.kinds import find_kind
from dptrees.pipelines.running.worker_memory import (
    Leaves,
    launcher_memory,
    process_memory,
    tree_leaves,
)

_NANO = 1e-9
# Of a tree whose leaves nobody lists; a row of it is then some five bytes at most.
_UNLISTED = 2**40


@dataclass(frozen=True, kw_only=True)
class ClusterNeeds:
    """What a release takes.

    Attributes:
        workers: processes.
        rows: a public guess.
        rows_cpu: seconds of one core, in all, to read, bound and count rows.
        leaves_cpu: the same, from sums to files.
        launcher_cpu: seconds of one core on the launcher.
        start_cpu: seconds of one core, in all, until every worker has begun.
        seconds: of the clock, from the first worker's start to the end.
        shuffled: bytes that pass between workers.
        worker_memory, launcher_memory: bytes that a process may need.
        parts: files that hold noisy counts, beside some of the whole release.
        unit_shards: in how many parts rows of units are bounded; 0: the unit is the row.
        keeps_shards: the number of these parts is fixed, since a series remembers its units.
        for_one_key: some trees have keys that are yet to be selected from the rows, and one
            key is assumed.
    """

    workers: int
    rows: float
    rows_cpu: float
    leaves_cpu: float
    launcher_cpu: float
    start_cpu: float
    seconds: float
    shuffled: float
    worker_memory: int
    launcher_memory: int
    parts: int
    unit_shards: int
    keeps_shards: bool
    for_one_key: bool

    @property
    def cpu(self) -> float:
        """Seconds of one core, of all processes."""
        return self.rows_cpu + self.leaves_cpu + self.launcher_cpu + self.start_cpu

    def to_entry(self) -> dict[str, Any]:
        """Return the values of ``plan --json``."""
        return {
            "workers": self.workers,
            "rows": self.rows,
            "cpu_hours": self.cpu / 3600,
            "rows_cpu_seconds": self.rows_cpu,
            "leaves_cpu_seconds": self.leaves_cpu,
            "launcher_cpu_seconds": self.launcher_cpu,
            "start_cpu_seconds": self.start_cpu,
            "seconds": self.seconds,
            "shuffled_bytes": round(self.shuffled),
            "worker_memory_bytes": self.worker_memory,
            "launcher_memory_bytes": self.launcher_memory,
            "parts": self.parts,
            "unit_shards": self.unit_shards,
            "for_one_key": self.for_one_key,
        }


@dataclass(frozen=True, kw_only=True)
class _TreeNeeds:
    """What one tree takes.

    Attributes:
        rows, leaves: seconds of one core for all of them.
        alone: seconds of one worker, while the others wait.
        page: seconds of the launcher.
        shuffled: bytes.
        held: bytes that a worker holds beside arrays of its leaves.
    """

    rows: float
    alone: float
    leaves: float
    page: float
    shuffled: float
    held: float


def predicted_needs(
    configuration: Configuration, plan: ReleasePlan, *, workers: int, rows: float
) -> ClusterNeeds:
    """Predict what a release takes.

    Args:
        configuration: of the release.
        plan: its plan.
        workers: processes that read, count and write, a core each.
        rows: a public guess of the rows of the input.
    """
    bounded = not plan.unit.is_row
    fits = sum(question.dense_cells for question in plan.questions) <= DENSE_CELLS
    trees = []
    sizes = tree_leaves(configuration, plan)
    for question in plan.questions:
        size = sizes.get(question.name)
        leaves = _UNLISTED if size is None else size
        costs = find_kind(question).lines().costs(question)
        dense = fits and question.dense_cells > 0
        trees.append(
            _tree_needs(question, costs, leaves, workers, rows, bounded=bounded, dense=dense)
        )
    # A release that selects keys or chooses bounds first reads the rows once for each.
    first = (plan.bounds is not None) + (plan.selection is not None)
    row = READING.get(configuration.input_format, 0.0) * (1 + first)
    row += first * (KindCosts().row + (SENT_ROW + BOUNDED_ROW if bounded else 0.0))
    rows_cpu = rows * row * _NANO + sum(each.rows for each in trees)
    leaves_cpu = sum(each.leaves for each in trees)
    alone = sum(each.alone for each in trees)
    launcher = LAUNCHER + sum(each.page for each in trees)
    places = sum(len(question.places) for question in plan.questions)
    shards = 0
    if bounded:
        remembers = bool(plan.remembering)
        shards = UNIT_SHARDS if remembers else planned_shards(workers=workers, rows=rows)
    listed = Leaves.from_plan(configuration, plan)
    return ClusterNeeds(
        workers=workers,
        rows=rows,
        rows_cpu=rows_cpu,
        leaves_cpu=leaves_cpu + alone,
        launcher_cpu=launcher,
        start_cpu=WORKER_START * workers,
        seconds=WORKER_START
        + rows_cpu / workers
        + leaves_cpu / max(1, min(workers, places))
        + alone
        + launcher,
        shuffled=sum(each.shuffled for each in trees)
        + (first * rows * unit_row_bytes(2) if bounded else 0.0),
        worker_memory=process_memory(listed, unit_rows=rows / shards if shards else 0.0)
        + round(sum(each.held for each in trees)),
        launcher_memory=launcher_memory(listed),
        parts=sum(1 for question in plan.questions for _ in question.parts()),
        unit_shards=shards,
        keeps_shards=bool(plan.remembering),
        for_one_key=plan.selection is not None,
    )


def _tree_needs(
    question: Question,
    costs: KindCosts,
    leaves: int,
    workers: int,
    rows: float,
    *,
    bounded: bool,
    dense: bool,
) -> _TreeNeeds:
    listed = leaves if leaves != _UNLISTED else 0
    row = costs.row_nanoseconds(listed) + (SENT_ROW + BOUNDED_ROW if bounded else 0.0)
    known = question.dense_cells > 0 or question.is_matched
    row += SORTED_ROW if known and not dense else 0.0
    gathered = min(rows, costs.most_gathered)
    leaf = costs.leaf + (MATCHED_LEAF if question.is_matched else 0.0)
    # A process without arrays of all leaves sends counts whenever its buffer is full.
    counters = workers if dense else max(workers, rows / BUFFERED_ROWS)
    shuffled = counters * counts_bytes(rows / counters, leaves) + costs.noisy * listed
    shuffled += rows * costs.sent_bytes
    if bounded:
        shuffled += rows * unit_row_bytes(leaves)
    return _TreeNeeds(
        rows=rows * row * _NANO,
        alone=gathered * costs.gathered_row * _NANO,
        leaves=listed * leaf * _NANO,
        page=costs.page_nanoseconds(listed) * _NANO,
        shuffled=shuffled,
        held=gathered * costs.gathered_bytes
        + min(rows / workers, BUFFERED_ROWS) * costs.buffered_bytes,
    )
