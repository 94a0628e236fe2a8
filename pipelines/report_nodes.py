"""The counts per level in the report: the tree from the top, as far as the page has room."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from dpcore.plan_errors import errors_of
from dpcore.question import Question
from pipelines.report_extent import Integers, clip, key_codes
from pipelines.report_figure import KEYS_AT_FIRST, color_of, dash_of


def node_levels(
    question: Question,
    batches: Iterable[pa.RecordBatch],
    shown: Sequence[str | None],
    rows: int,
) -> list[pa.Table]:
    """The upper levels whole and the next one in part, ``rows`` nodes in all over the shown keys.

    Of the level that does not fit whole, each key keeps its largest counts: ties go to the first.

    Returns:
        for each level from the root, its rows with a column ``code`` (the place of the key), in the
        order of keys and nodes.
    """
    sizes, left = question.plan.tree.level_sizes, max(1, rows // len(shown))
    limits: list[int] = []
    for size in sizes:
        if left < 1 or (limits and limits[-1] < sizes[len(limits) - 1]):
            break
        limits.append(min(size, left))
        left -= limits[-1]
    kept: list[list[pa.Table]] = [[] for _ in limits]
    for batch in batches:
        codes = key_codes(batch, shown)
        level = batch.column("level").to_numpy()
        for wanted in np.unique(level[(codes >= 0) & (level < len(limits))]).tolist():
            places = np.flatnonzero((codes >= 0) & (level == wanted))
            part = pa.Table.from_batches([batch.take(pa.array(places))])
            kept[wanted].append(_largest(part, codes[places], limits[wanted], sizes[wanted]))
    return [
        _largest(whole.drop_columns("code"), whole["code"].to_numpy(), limit, size)
        for whole, limit, size in zip(map(pa.concat_tables, kept), limits, sizes, strict=False)
    ]


def _largest(part: pa.Table, codes: Integers, limit: int, size: int) -> pa.Table:
    """The rows of the ``limit`` largest counts of each key, in the order of keys and nodes."""
    node, count = part["node"].to_numpy(), part["count"].to_numpy()
    chosen = np.arange(len(codes))
    if limit < size:
        order = np.lexsort((node, -count, codes))
        ordered = codes[order]
        rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        chosen = order[rank < limit]
    chosen = chosen[np.lexsort((node[chosen], codes[chosen]))]
    columns = ["level", "node", "label", "estimate", "ci_low", "ci_high", "count"]
    return part.select(columns).take(pa.array(chosen)).append_column("code", [codes[chosen]])


def node_data(
    question: Question, levels: Sequence[pa.Table], shown: Sequence[str | None]
) -> dict[str, object]:
    """What the page's script needs to unfold the tree of every shown key; plain JSON values."""
    sizes = question.plan.tree.level_sizes
    digits = [_digits(error) for error in level_errors(question)[: len(levels)]]
    whole = [table for table, size in zip(levels, sizes, strict=False) if _is_whole(table, size)]
    return {
        "fanouts": list(question.plan.tree.fanouts),
        "sizes": list(sizes),
        "digits": digits,
        # A level that is there whole has the same labels under every key.
        "labels": [_labels(_of_key(table, 0)) for table in whole],
        "shown": KEYS_AT_FIRST,
        "colors": [color_of(place) for place in range(len(shown))],
        "dashes": [dash_of(place) for place in range(len(shown))],
        "keys": [
            {
                "name": None if name is None else clip(name),
                "levels": [
                    _key_level(_of_key(table, place), decimals, partial=level >= len(whole))
                    for level, (table, decimals) in enumerate(zip(levels, digits, strict=True))
                ],
            }
            for place, name in enumerate(shown)
        ],
    }


def _is_whole(table: pa.Table, size: int) -> bool:
    return len(_of_key(table, 0)) == size


def _of_key(table: pa.Table, place: int) -> pa.Table:
    first, end = np.searchsorted(table["code"].to_numpy(), [place, place + 1])
    return table.slice(first, end - first)


def _labels(rows: pa.Table) -> list[str]:
    return [clip(label) for label in rows["label"].to_pylist()]


def _key_level(rows: pa.Table, digits: int, *, partial: bool) -> dict[str, object]:
    numbers = {"estimate": "estimate", "low": "ci_low", "high": "ci_high"}
    columns: dict[str, object] = {
        name: np.round(rows[column].to_numpy(), digits).tolist() for name, column in numbers.items()
    }
    columns["count"] = rows["count"].to_pylist()
    if partial:
        columns |= {"node": rows["node"].to_pylist(), "labels": _labels(rows)}
    return columns


def level_errors(question: Question) -> list[float]:
    """The largest standard error of the estimates of each level, from the plan alone: of the first
    nodes, the middle one and the last."""
    errors = errors_of(question.plan)
    return [
        math.sqrt(
            max(
                errors.node(level, node).variance
                for node in {0, min(1, size - 1), size // 2, size - 1}
            )
        )
        for level, size in enumerate(question.plan.tree.level_sizes)
    ]


def _digits(error: float) -> int:
    """Decimals that show two digits of a standard error."""
    return min(6, max(0, 1 - math.floor(math.log10(error)))) if error > 0 else 0


def nodes_shown(question: Question, levels: Sequence[pa.Table]) -> str:
    """Which levels the page holds, and what it leaves out."""
    sizes = question.plan.tree.level_sizes
    last = len(_of_key(levels[-1], 0))
    if len(levels) == len(sizes) and last == sizes[-1]:
        return "All levels are here."
    each = " of each key" if question.keys is not None else ""
    partial = last < sizes[len(levels) - 1]
    part = f" and the {last:,} largest of {sizes[len(levels) - 1]:,} nodes of level "
    text = f"Here {'is level' if len(levels) - partial == 1 else 'are levels'} "
    whole = len(levels) - partial - 1
    text += "0" if whole == 0 else f"0 to {whole}"
    text += f"{part}{len(levels) - 1}" if partial else ""
    return f"{text}{each}; all {sum(sizes):,} nodes stand in the tables of the release."
