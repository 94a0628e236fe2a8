"""The part of a release that its report shows: the largest nodes and keys, of a bounded number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arithmetic.sums import decimal_exponent, power_of_ten
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import NODES
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.columns import map_chunks
from dptrees.pipelines.show.charts import Bar, Bars
from dptrees.pipelines.show.figures import (
    counted_noun,
    figure,
    interval,
    percent,
    with_margin,
)

# Together these keep the page below 600 KB, but for very long names.
MAX_TREES = 12
MAX_KEYS = 40
MAX_POINTS = 5_600
MAX_NODES = 5_000
# What `dptrees report --path` adds: nodes, over all keys.
MAX_CHOSEN_NODES = 6_000
MAX_QUANTILES = 3_000
TEXT_BYTES = 48


def clip(text: str | None, size: int = TEXT_BYTES) -> str:
    """A text of at most ``size`` bytes, without what is no visible character.

    >>> clip("a long name", 6)
    'a long…'
    """
    plain = "".join(sign if sign.isprintable() else "\ufffd" for sign in (text or "")[: size + 1])
    if len(plain.encode()) <= size:
        return plain
    return plain.encode()[:size].decode(errors="ignore") + "\u2026"


def left_out(shown: int, size: int, noun: str, which: str = "first") -> str:
    """What the page says where it shows some of many.

    >>> left_out(3, 1000, "keys")
    'The first 3 of 1,000 keys are here; the tables hold all of them.'
    """
    if shown == size:
        return ""
    return f"The {which} {shown:,} of {size:,} {noun} are here; the tables hold all of them."


def key_codes(batch: pa.RecordBatch, shown: Sequence[str | None]) -> Integers:
    """The place of each row's key among those shown, -1 for the others."""
    column = batch.column("key")
    if shown == [None]:
        return np.zeros(len(column), np.int64)
    known = pa.array(shown, pa.string())

    def places(plain: pa.Array) -> Integers:
        found = pc.index_in(plain.cast(pa.string()), known).fill_null(-1)
        return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)

    return map_chunks(column, places, -1)


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
    rows = page_columns(part).take(pa.array(chosen))
    return rows.append_column("code", [codes[chosen]])


def page_columns(rows: pa.Table) -> pa.Table:
    """The columns of a table of nodes that the page reads."""
    return rows.select([*COLUMNS, *(name for name in _MORE if name in rows.column_names)])


def levels_in_words(
    sizes: Sequence[int],
    limits: Sequence[int],
    names: Sequence[str] | None = None,
    *,
    keyed: bool,
    paths: Sequence[str] = (),
) -> str:
    """Which nodes the page holds, and what it leaves out.

    Args:
        sizes: the nodes of every level.
        limits: from `level_limits`.
        names: of the levels; None: their numbers.
        keyed: whether there is a tree for each key.
        paths: that were requested for the page.

    >>> levels_in_words((1, 10, 100), (1, 10, 39), keyed=False)[:71]
    'Here are levels 0 to 1 and the 39 largest of 100 nodes of level 2; all '
    """
    last = len(limits) - 1
    is_partial = limits[last] < sizes[last]
    whole = len(limits) - is_partial
    if whole == len(sizes):
        return f"All {'levels' if names is None else 'nodes'} are here."
    if names is None:
        named = "0" if whole == 1 else f"0 to {whole - 1}"
    else:
        named = ", ".join(names[:whole])
    text = f"Here {'is level' if whole == 1 else 'are levels'} {named}"
    if is_partial:
        level = last if names is None else names[last]
        text += f" and the {limits[last]:,} largest of {sizes[last]:,} nodes of level {level}"
    text += " of each key" if keyed else ""
    text += paths_in_words(paths)
    return f"{text}; all {sum(sizes):,} nodes are in the tables of the release."


def paths_in_words(paths: Sequence[str]) -> str:
    """Which nodes the page holds because they were requested; nothing without paths."""
    if not paths:
        return ""
    noun = "path" if len(paths) == 1 else "paths"
    return f", and requested: {len(paths):,} {noun} with the nodes above and right below"


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


# Of more, the first are shown: the roots of all would have to be read.
_LOOKED_AT = 2_000


@dataclass(frozen=True, kw_only=True)
class ShownKeys:
    """Some keys of a tree, the largest first; [None] where it has none.

    Args:
        labels: of the keys.
        codes: likewise.
        size: how many the tree has.
        largest: whether they are the largest, or the first.
    """

    labels: list[str | None]
    codes: list[int]
    size: int
    largest: bool = True

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def read(self) -> int:
        """How many keys of the tree, from the first on, hold them all."""
        return max(self.codes) + 1

    @property
    def left_out(self) -> str:
        """What the page says of the others."""
        return left_out(len(self), self.size, "keys", "largest" if self.largest else "first")


def shown_number(question: Question, trees: int) -> int:
    """Return the number of keys that leaves each a curve of 70 points."""
    return min(question.key_count, max(1, min(MAX_KEYS, MAX_POINTS // trees // 70)))


def shown_keys(release: ReleasedTables, question: Question, trees: int) -> ShownKeys:
    """The keys of a tree on the page, by their released counts.

    Args:
        release: the tables.
        question: the tree.
        trees: how many share the page.
    """
    size = question.key_count
    most = shown_number(question, trees)
    if size > _LOOKED_AT:
        labels, codes = question.labels_between(0, most), list(range(most))
        return ShownKeys(labels=labels, codes=codes, size=size, largest=False)
    labels = question.labels_between(0, size)
    counts = np.zeros(size, np.int64)
    for batch in release.batches(NODES, question.name, levels=1) if size > 1 else ():
        roots = np.flatnonzero(batch.column("level").to_numpy() == 0)
        counts[key_codes(batch, labels)[roots]] = batch.column("count").to_numpy()[roots]
    order = np.argsort(-counts, kind="stable")[:most].tolist()
    return ShownKeys(labels=[labels[place] for place in order], codes=order, size=size)


def shown_levels(
    release: ReleasedTables, question: Question, sizes: Sequence[int], trees: int
) -> tuple[ShownKeys, list[int], list[pa.Table]]:
    """The keys of a tree on the page, how many nodes of each level fit, and these nodes.

    Args:
        release: the tables.
        question: the tree.
        sizes: the nodes of every level.
        trees: how many share the page.
    """
    keys = shown_keys(release, question, trees)
    limits = level_limits(sizes, MAX_NODES // trees // len(keys))
    nodes = release.batches(NODES, question.name, keys=keys.read, levels=len(limits))
    return keys, limits, node_levels(sizes, limits, nodes, keys.labels)


def key_entries(
    labels: Sequence[str | None], levels: int, columns: Callable[[int, int], dict[str, Any]]
) -> list[dict[str, Any]]:
    """The trees of the keys as the page's script reads them.

    Args:
        labels: of the keys.
        levels: how many are on the page.
        columns: gives the columns of a level of a key, by the places of both.
    """
    return [
        {
            "name": None if name is None else clip(name),
            "levels": [columns(place, level) for level in range(levels)],
        }
        for place, name in enumerate(labels)
    ]


MAX_COLUMNS = 12


def crosstab(noun: str, level: pa.Table, keys: ShownKeys) -> dict[str, object] | None:
    """The titles and rows of a table of counts by keys; None where there are no keys, or many.

    Args:
        noun: what the nodes are.
        level: a level that is there whole.
        keys: all keys of the tree.
    """
    if not 1 < len(keys) == keys.size <= MAX_COLUMNS:
        return None
    columns = [select_shown_key(level, place) for place in range(len(keys))]
    cells = [list(map(_cell, *(each[name].to_pylist() for name in _NAMES))) for each in columns]
    rows = [
        [clip(label), *(column[place] for column in cells)]
        for place, label in enumerate(columns[0]["label"].to_pylist())
    ]
    return {"titles": [noun, *map(clip, keys.labels)], "rows": rows}


def quantile_table(
    question: Question,
    quantiles: Sequence[float],
    labels: Sequence[str | None],
    cells: Sequence[Sequence[Any]],
    value: str = "Value",
) -> dict[str, Any]:
    """A row for each key, or for each quantile where there are no keys.

    Args:
        question: the tree.
        quantiles: those shown.
        labels: of the keys shown.
        cells: of each key, and each quantile.
        value: the heading of the values where there are no keys.
    """
    named = [f"{quantile:.6g}" for quantile in quantiles]
    if question.keys is None:
        rows = [list(row) for row in zip(named, cells[0], strict=True)]
        return {"titles": ["Quantile", value], "rows": rows}
    rows = [[clip(label), *own] for label, own in zip(labels, cells, strict=True)]
    return {"titles": [clip(", ".join(question.keys.columns)), *named], "rows": rows}


_NAMES = ("count", "ci_low", "ci_high", "std_error")


def _cell(count: int, low: float, high: float, error: float | None) -> dict[str, str]:
    known = 0.0 if error == 0 else None
    return {"value": figure(count, (high - low) / 4), "interval": interval(low, high, known)}


def rows_text(rows: pa.Table, place: int = 0) -> str:
    """The estimate of a node with its error: of the first row of a table, or another."""
    low, high, estimate = (rows[name][place].as_py() for name in ("ci_low", "ci_high", "estimate"))
    if estimate is None:
        estimate = rows["count"][place].as_py()
    error = rows["std_error"][place].as_py() if "std_error" in rows.column_names else None
    return with_margin(estimate, low, high, error)


def table_bars(
    rows: pa.Table, names: Sequence[str | None], looks: Iterable[str] = repeat("")
) -> Iterator[Bar]:
    """The rows of a table of nodes as bars.

    Args:
        rows: of nodes.
        names: of the bars.
        looks: the classes of their colors; none: all have one color.
    """
    columns = [rows[name].to_pylist() for name in ("count", "ci_low", "ci_high", "estimate")]
    has_errors = "std_error" in rows.column_names
    columns.append(rows["std_error"].to_pylist() if has_errors else [None] * len(rows))
    named = zip(names, *columns, strict=True)
    for (name, count, low, high, estimate, error), look in zip(named, looks, strict=False):
        yield Bar(
            name=clip(name),
            count=count,
            low=low,
            high=high,
            estimate=estimate,
            error=error,
            look=look,
        )


def count_bars(
    question: Question,
    each: str,
    rows: pa.Table,
    labels: Sequence[str | None],
    *,
    name: str = "",
    counted: str = "Counts",
    noun: str = "",
    note: str = "",
    given: str = "",
    looks: Iterable[str] = repeat(""),
) -> Bars:
    """A bar for each of some nodes of a tree, or keys.

    Args:
        question: the tree.
        each: what has a bar each, in the title of the table: a key, a category, a level.
        rows: of a table of nodes.
        labels: of the bars.
        name: of what has a bar each; by default as in the title.
        counted: what is counted, in the title.
        noun: what is counted, above the counts; by default what the tree counts.
        note: what is left out.
        given: what the order of the rows is called.
        looks: the classes of the colors.
    """
    return Bars(
        name=name or each,
        bars=list(table_bars(rows, labels, looks)),
        title=f"{counted} of each {each} of {clip(question.name)}",
        confidence=percent(question.confidence),
        noun=noun or clip(counted_noun(question)),
        note=note,
        given=given,
    )


def key_bars(question: Question, keys: ShownKeys, roots: pa.Table, **more: Any) -> Bars | None:
    """A bar for each of the shown keys; None where the tree has none.

    Args:
        question: the tree.
        keys: those shown.
        roots: their rows of a table of nodes.
        more: other arguments of `count_bars`.
    """
    if question.keys is None:
        return None
    name = clip(", ".join(question.keys.columns))
    own = {"name": name, "note": keys.left_out}
    return count_bars(question, "key", roots, keys.labels, **own, **more)


def largest_node(rows: pa.Table) -> tuple[str, str]:
    """The name of the node with the largest count, and its estimate with its error."""
    place = int(np.argmax(rows["count"].to_numpy()))
    return clip(rows["label"][place].as_py()), rows_text(rows, place)


def largest_rows(rows: pa.Table, most: int) -> pa.Table:
    """The rows of the largest counts, in their order."""
    order = np.argsort(-rows["count"].to_numpy(), kind="stable")[:most]
    return rows.take(pa.array(np.sort(order)))


def headline_total(roots: pa.Table, noun: str) -> dict[str, Any]:
    """Return the total of all roots as a `Headline` holds it; no text where its error is not known.

    Args:
        roots: of keys whose noise is independent.
        noun: what is counted.
    """
    if len(roots) == 1:
        width = roots["ci_high"][0].as_py() - roots["ci_low"][0].as_py()
        return {"rows": rows_text(roots), "noun": noun, "error": width}
    low, high = roots["ci_low"].to_numpy(), roots["ci_high"].to_numpy()
    errors, estimate = roots["std_error"].to_numpy(), roots["estimate"].to_numpy()
    centered = np.abs((low + high) / 2 - estimate) <= 0.02 * (high - low) + 1
    if not (np.all(np.isfinite(errors)) and np.any(centered & (errors > 0))):
        return {"rows": "", "noun": noun, "error": math.inf}
    times = float(np.median(((high - low) / 2 / errors)[centered & (errors > 0)]))
    half = times * float(np.sqrt(np.sum(np.square(errors))))
    mean = float(np.sum(estimate))
    return {"rows": with_margin(mean, mean - half, mean + half), "noun": noun, "error": 2 * half}
