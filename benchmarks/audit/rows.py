"""Rows at every edge, and pairs of neighboring tables of them.

A palette lists the values that a column may take: inside, first and last, at and beyond bounds,
null, NaN, infinite, unknown, unreadable. A table reaches the counts as Arrow batches, through the
question's own maps, so that domains, policies, keys and clamping are part of what is audited.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hypercube.question import HypercubeQuestion
from dptrees.dpcore.ordered.category import CategoryDomain
from dptrees.dpcore.ordered.date import DateDomain, TimestampDomain
from dptrees.dpcore.ordered.integer import IntegerDomain
from dptrees.dpcore.ordered.number import NumberDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, PrivacyUnit
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.rows.sums import MeasureColumn
from dptrees.dpcore.sparse.question import SparseQuestion

Row = tuple[Any, ...]
NOT_NUMBERS = (None, math.nan, math.inf, -math.inf, 1e300, -1e300)


@dataclass(frozen=True, kw_only=True)
class Palette:
    """The values of one column, and their type."""

    type: pa.DataType
    values: tuple[Any, ...]


Palettes = dict[str, Palette]


def number_palette(domain: NumberDomain) -> Palette:
    """Edges of cells, their neighbors in floating point, what is outside and what is no number."""
    edges = [domain.lower, domain.upper, *domain.lower_edges(0, domain.cells).to_pylist()]
    beside = [math.nextafter(edge, side) for edge in edges for side in (-math.inf, math.inf)]
    return Palette(type=pa.float64(), values=(*edges, *beside, *NOT_NUMBERS))


def integer_palette(domain: IntegerDomain, *, floats: bool) -> Palette:
    """All integers of the domain, those just outside and the largest; or floats at the same."""
    inside = range(domain.lower - 1, domain.upper + 1)
    if floats:
        return Palette(type=pa.float64(), values=(*inside, *inside, *NOT_NUMBERS))
    return Palette(type=pa.int64(), values=(*inside, 2**62, -(2**62), None))


def category_palette(domain: CategoryDomain) -> Palette:
    """The categories, another text and null."""
    return Palette(type=pa.string(), values=(*domain.categories, "unlisted", "", None))


def moment_palette(domain: DateDomain | TimestampDomain) -> Palette:
    """The first and last timestamps of cells, the timestamps just outside, and null."""
    if isinstance(domain, DateDomain):
        days = [domain.lower + timedelta(days=n) for n in range(-1, domain.cells + 1)]
        return Palette(type=pa.date32(), values=(*days, date(1, 1, 1), date(9999, 12, 31), None))
    width = (domain.upper - domain.lower) / domain.cells
    edges = [domain.lower + n * width for n in range(domain.cells + 1)]
    before = [edge - timedelta(microseconds=1) for edge in edges]
    return Palette(type=pa.timestamp("us"), values=(*edges, *before, datetime(1700, 1, 1), None))


def key_palette(keys: KeyList) -> Palette:
    """The keys, another text and null."""
    return Palette(type=pa.string(), values=(*keys.keys, "unlisted", None))


def measure_palette(measure: MeasureColumn) -> Palette:
    """Values at, beside and far beyond the bounds; 0; and what is no number."""
    ends = [bound + step for bound in (measure.lower, measure.upper) for step in (-1, -0.5, 0, 1)]
    near = (measure.lower + 0.5, measure.upper + 0.5, 0.0, 0.5)
    return Palette(type=pa.float64(), values=(*map(float, ends), *near, *NOT_NUMBERS))


def random_row(rng: Random, palettes: Palettes) -> Row:
    """A value of each column."""
    return tuple(rng.choice(palette.values) for palette in palettes.values())


def neighboring_rows(
    rng: Random, palettes: Palettes, unit: PrivacyUnit, size: int
) -> tuple[list[Row], list[Row]]:
    """Two tables of about ``size`` rows, the second with a row more or with one row exchanged."""
    rows = [random_row(rng, palettes) for _ in range(size)]
    place = rng.randrange(size + 1)
    if unit == ADD_REMOVE_ROW:
        return rows, [*rows[:place], random_row(rng, palettes), *rows[place:]]
    first, second = random_row(rng, palettes), random_row(rng, palettes)
    if rng.random() < 0.5:  # the same but for one column: another value in the same leaf, say
        column = rng.randrange(len(first))
        second = (*first[:column], second[column], *first[column + 1 :])
    return [*rows[:place], first, *rows[place:]], [*rows[:place], second, *rows[place:]]


def batches(rng: Random, palettes: Palettes, rows: Sequence[Row]) -> list[dict[str, pa.Array]]:
    """The rows as batches of columns: cut anywhere, some columns dictionary-encoded."""
    cut = rng.randrange(len(rows) + 1)
    found = []
    for part in (rows[:cut], rows[cut:]):
        columns = {
            name: pa.array([row[place] for row in part], palette.type)
            for place, (name, palette) in enumerate(palettes.items())
        }
        if rng.random() < 0.3:
            columns = {name: column.dictionary_encode() for name, column in columns.items()}
        found.append(columns)
    return found


def leaf_counts(question: TreeQuestion, parts: Sequence[Mapping[str, pa.Array]]) -> Integers:
    """(keys * K,) the exact counts, or sums, of all leaves, by the question's own map."""
    counts = np.zeros(question.forest.chunking.cells, np.int64)
    for columns in parts:
        ids, values = question.increments(columns)
        np.add.at(counts, np.asarray(ids), 1 if values is None else values)
    return counts


def tree_counts(
    question: Question, parts: Sequence[Mapping[str, pa.Array]]
) -> Integers | NodeCounts:
    """The exact counts of a tree, by its own map."""
    if isinstance(question, SparseQuestion | HypercubeQuestion):
        return sparse_leaf_counts(question, parts)
    assert isinstance(question, TreeQuestion)
    return leaf_counts(question, parts)


def sparse_leaf_counts(
    question: SparseQuestion | HypercubeQuestion, parts: Sequence[Mapping[str, pa.Array]]
) -> NodeCounts:
    """The exact counts of the leaves of a sparse tree, or of the codes of a box, by its own map."""
    return NodeCounts.merged([question.domain.leaf_counts(columns) for columns in parts])
