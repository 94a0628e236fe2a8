"""The nodes in the report: the tree from the top, as many as the page fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptrees.dpcore.arithmetic.sums import decimal_exponent, power_of_ten
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.page.extent import clip, key_codes

COLUMNS = ("level", "node", "label", "estimate", "std_error", "ci_low", "ci_high", "count")
# Which some kinds of trees have beside these.
_MORE = ("ended",)


class ReleasedTables(Protocol):
    """What the page is made from: the plan, the manifest and the tables of a release."""

    @property
    def plan(self) -> ReleasePlan:
        """The specification."""

    @property
    def manifest(self) -> Mapping[str, object]:
        """Manifest of the release; the version is shown where it holds one."""

    def batches(
        self, kind: str, tree: str, *, keys: int | None = None, levels: int | None = None
    ) -> Iterable[pa.RecordBatch]:
        """Yield the rows of a tree in any order; rows of further keys and levels may be absent."""

    def part(self, kind: str, tree: str, key: int, index: int) -> pa.Table:
        """The rows of one part."""

    def quantiles(self) -> pa.Table | None:
        """Quantiles of all trees; None where none were requested."""


def level_limits(sizes: Sequence[int], rows: int) -> list[int]:
    """Return how many nodes of each level the page fits: upper levels whole, the next in part.

    >>> level_limits((1, 10, 100, 1000), 50)
    [1, 10, 39]
    """
    limits: list[int] = []
    left = max(1, rows)
    for size in sizes:
        if left < 1 or (limits and limits[-1] < sizes[len(limits) - 1]):
            break
        limits.append(min(size, left))
        left -= limits[-1]
    return limits


def node_levels(
    sizes: Sequence[int],
    limits: Sequence[int],
    batches: Iterable[pa.RecordBatch],
    shown: Sequence[str | None],
) -> list[pa.Table]:
    """Return as many nodes of each level as its limit: upper levels whole, the next one in part.

    In the level that does not fit whole, each key keeps its largest counts; of equal counts the
    first.

    Args:
        sizes: the nodes of every level.
        limits: from `level_limits`.
        batches: the rows of the table ``nodes``, at least the rows of these levels.
        shown: the keys.

    Returns:
        for each level from the root, its rows with a column ``code`` (the place of the key), in the
        order of keys and nodes.
    """
    kept: list[list[pa.Table]] = [[] for _ in limits]
    for batch in batches:
        codes = key_codes(batch, shown)
        level = batch.column("level").to_numpy()
        for wanted in np.unique(level[(codes >= 0) & (level < len(limits))]).tolist():
            places = np.flatnonzero((codes >= 0) & (level == wanted))
            part = pa.Table.from_batches([batch.take(pa.array(places))])
            kept[wanted].append(largest(part, codes[places], limits[wanted], sizes[wanted]))
    return [
        largest(whole.drop_columns("code"), whole["code"].to_numpy(), limit, size)
        for whole, limit, size in zip(map(pa.concat_tables, kept), limits, sizes, strict=False)
    ]


def largest(part: pa.Table, codes: Integers, limit: int, size: int) -> pa.Table:
    """The rows of the ``limit`` largest counts of each key, in the order of keys and nodes."""
    node, count = part["node"].to_numpy(), part["count"].to_numpy()
    chosen = np.arange(len(codes))
    if limit < size:
        order = np.lexsort((node, -count, codes))
        ordered = codes[order]
        rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        chosen = order[rank < limit]
    chosen = chosen[np.lexsort((node[chosen], codes[chosen]))]
    columns = [*COLUMNS, *(name for name in _MORE if name in part.column_names)]
    return part.select(columns).take(pa.array(chosen)).append_column("code", [codes[chosen]])


def whole_levels(levels: Sequence[pa.Table], sizes: Sequence[int]) -> int:
    """How many levels from the root are there whole, and so the same under every key."""
    for level, (table, size) in enumerate(zip(levels, sizes, strict=False)):
        if len(select_shown_key(table, 0)) < size:
            return level
    return len(levels)


def select_shown_key(table: pa.Table, place: int) -> pa.Table:
    """The rows of one of the shown keys."""
    first, end = np.searchsorted(table["code"].to_numpy(), [place, place + 1])
    return table.slice(first, end - first)


def outwards(name: str, values: npt.NDArray[Any], digits: int) -> npt.NDArray[np.float64]:
    """A column of numbers to some decimals: the ends of intervals outwards, others to the nearest.

    >>> [outwards(name, np.array([0.14, 2.0]), 1).tolist() for name in ("low", "estimate", "high")]
    [[0.1, 2.0], [0.1, 2.0], [0.2, 2.0]]
    """
    scale, hidden = power_of_ten(digits), 1e-6
    scaled = values * scale
    ends = {"low": np.floor(scaled + hidden), "high": np.ceil(scaled - hidden)}
    return np.asarray(ends.get(name, np.rint(scaled)) / scale + 0.0, np.float64)


def number_columns(rows: pa.Table, digits: int) -> dict[str, Any]:
    """The columns of numbers as the page's script reads them, intervals rounded outwards; an end
    that is infinite is None."""
    names = {"estimate": "estimate", "low": "ci_low", "high": "ci_high"}
    columns: dict[str, Any] = {}
    for name, column in names.items():
        values = outwards(name, rows[column].to_numpy(), digits)
        finite = values.tolist()
        for place in np.flatnonzero(np.isinf(values)).tolist():
            finite[place] = None
        columns[name] = finite
    return columns | {"count": rows["count"].to_pylist()}


def ended_columns(rows: pa.Table, *, leaves: bool = False) -> dict[str, object]:
    """Where nodes of an adaptive tree ended, as the page's script reads it: 0 where a node was
    split, 1 where it was not, 2 inside one that was not; nothing of other trees.

    Args:
        rows: of one level.
        leaves: it is the level of the leaves, which are never split.
    """
    if "ended" not in rows.column_names:
        return {}
    ended = rows["ended"].fill_null(-1).to_numpy()
    own = np.where(ended == rows["level"].to_numpy(), int(not leaves), 2)
    return {"ended": np.where(ended < 0, 0, own).tolist()}


def shorten_labels(labels: pa.ChunkedArray | pa.Array) -> list[str]:
    """Labels, shortened."""
    return [clip(label) for label in labels.to_pylist()]


def error_digits(error: float) -> int:
    """Decimals that show two digits of a standard error, none of 10 or more.

    >>> error_digits(32.0), error_digits(3.2), error_digits(0.05), error_digits(0.0)
    (0, 1, 3, 0)
    """
    return min(6, max(0, 1 - decimal_exponent(error))) if error > 0 else 0
