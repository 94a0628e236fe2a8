"""What a tree of a kind takes of a processor, as measured.

`python -m benchmarks.cluster_costs` measures releases beside what these numbers predict; a new kind
has the defaults, which are of ordered trees, until its own are measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dptrees.dpcore.arithmetic.elementary import log2

# The leaves of a tree whose counts stay in a processor's cache.
_CACHED_LEAVES = 2**10
# Leaves beyond are not all looked at for the page.
_PAGED_LEAVES = 2**20


@dataclass(frozen=True, kw_only=True)
class KindCosts:
    """What a tree takes of one core of the machine that docs/scale.md names.

    Attributes:
        row: nanoseconds to read a row of Parquet and to count it, in a tree of 2^10 leaves.
        row_doubling: nanoseconds more for each doubling of the leaves beyond.
        gathered_row: nanoseconds that one worker alone spends on the counts of each row, after
            they are summed; of at most `most_gathered` rows.
        leaf: nanoseconds for each leaf from its sum to its file.
        page, page_beyond: nanoseconds on the launcher for each leaf, up to 2^20 and beyond: widths
            of intervals and the page.
        sent_bytes: of each row that pass between workers beside its counts.
        noisy: bytes for each leaf that pass between workers after the noise.
        buffered_bytes: that a worker holds of each row until it sends their counts.
        gathered_bytes: that one worker holds of the counts of each row, of at most `most_gathered`
            rows.
        most_gathered: different counts that there can be.
    """

    row: float = 7.0
    row_doubling: float = 0.5
    gathered_row: float = 0.0
    leaf: float = 720.0
    page: float = 900.0
    page_beyond: float = 130.0
    sent_bytes: float = 0.0
    noisy: float = 0.7
    buffered_bytes: float = 0.0
    gathered_bytes: float = 0.0
    most_gathered: float = math.inf

    def page_nanoseconds(self, leaves: int) -> float:
        """Return the nanoseconds of the launcher for a tree of so many leaves."""
        beyond = max(0, leaves - _PAGED_LEAVES)
        return self.page * (leaves - beyond) + self.page_beyond * beyond

    def row_nanoseconds(self, leaves: int) -> float:
        """Return the nanoseconds of a row in a tree of so many leaves.

        >>> KindCosts(row=7, row_doubling=1).row_nanoseconds(2**20)
        17.0
        """
        doublings = log2(max(leaves, _CACHED_LEAVES) / _CACHED_LEAVES)
        return self.row + self.row_doubling * doublings


# Nanoseconds more for a row of some 100 bytes in another format than Parquet.
READING = {"csv": 160.0, "json": 1400.0}
# Nanoseconds more for a row where arrays of all leaves would take too much memory, so that counts
# are sorted; and for a leaf that only its place knows, and matches with counts.
SORTED_ROW, MATCHED_LEAF = 30.0, 135.0
# Nanoseconds for a row of a privacy unit, for each tree: sent to a shard, and bounded there.
SENT_ROW, BOUNDED_ROW = 75.0, 100.0
# Seconds: a worker's process begins; the launcher plans, builds the graph and makes the page.
WORKER_START, LAUNCHER = 1.5, 1.2


def counts_bytes(rows: float, leaves: float) -> float:
    """Return the bytes of the packed counts of so many rows, spread over so many leaves.

    The bits of a count are few: about 1.3 and the logarithm of its size where most leaves have
    rows; where few have any, it takes bits for the distance to the next one.

    Args:
        rows: that one process counted.
        leaves: that they may be in.

    >>> round(counts_bytes(4e6, 2**20)), round(counts_bytes(1000, 2**20))
    (467592, 1692)
    """
    if not rows or not leaves:
        return 0.0
    dense = leaves * (1.3 + log2(1 + rows / leaves))
    sparse = rows * (3.5 + max(0.0, log2(leaves / rows)))
    return min(dense, sparse) / 8


def unit_row_bytes(leaves: int) -> float:
    """Return the bytes of a row on its way to the shard of its unit, where each row of a batch is
    of another unit: the id of the unit, and the cell.

    >>> round(unit_row_bytes(1024), 1)
    12.5
    """
    return 11.2 + 0.13 * log2(max(leaves, 2))
