"""The memory of workers, from the plan alone, and machines that have as much.

From docs/scale.md: a process that reads rows of a tree with a public table of its leaves knows all
of them, at some 90 bytes each, or, where they are read in parts, their parents; of other trees it
holds arrays of at most 2^25 leaves (beyond, ids that wait to be sorted), and a copy while they are
packed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dptrees.dpcore.bounding.row_choice import WAITING_ROWS
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.user_error import UserError

_GIB = 2**30
# Python, Beam and Arrow, and the rows and parts in flight.
_BASE = 700 * 2**20
_BYTES_OF_LISTED_LEAF, _BYTES_OF_LEAF, _MOST_DENSE = 90, 16, 2**25
# Of leaves that are read in parts: their parents.
_BYTES_OF_PARTED_LEAF = 8
# Of a privacy unit's row that waits to be sent.
_BYTES_OF_WAITING_ROW = 60
# The memory of a virtual machine's system, and of Dataflow's own process beside Python's.
_SYSTEM = _GIB


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine type of Compute Engine, and how Dataflow uses it.

    Args:
        name: of the type.
        cores: vCPUs.
        gib: its memory.
        processes: of Python that Dataflow starts on it: one a vCPU, or one in all.
    """

    name: str
    cores: int
    gib: int
    processes: int

    @property
    def memory(self) -> int:
        """Bytes for each process."""
        return (self.gib * _GIB - _SYSTEM) // self.processes


_CHOICES = (
    Machine(name="e2-standard-4", cores=4, gib=16, processes=4),
    Machine(name="e2-highmem-4", cores=4, gib=32, processes=4),
    Machine(name="e2-highmem-2", cores=2, gib=16, processes=1),
    Machine(name="e2-highmem-4", cores=4, gib=32, processes=1),
    Machine(name="e2-highmem-8", cores=8, gib=64, processes=1),
    Machine(name="e2-highmem-16", cores=16, gib=128, processes=1),
)
# As Dataflow uses them by default.
MACHINES = {each.name: each for each in _CHOICES if each.processes == each.cores}


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


def machine_for(needed: int) -> Machine:
    """The first machine whose processes have as much memory each.

    Raises:
        UserError: none has.

    >>> machine_for(2**30).name, machine_for(10 * 2**30).name
    ('e2-standard-4', 'e2-highmem-2')
    """
    for machine in _CHOICES:
        if machine.memory >= needed:
            return machine
    raise UserError(
        f"a process of a worker may need {needed / _GIB:.0f} GiB, more than any machine listed in "
        "pipelines/running/worker_memory.py has; choose one with --machine_type"
    )
