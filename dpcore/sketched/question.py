"""A sketch as a release of its own: the noisy counts of values that nobody lists.

Rows -> codes of 64 bits -> cells of a table (levels, rows, width) of whole numbers -> the same with
noise. A code is a keyed hash of the value (equal values have one, as `dpcore.bounding.unit_ids`
decides it), or the number itself where the domain has codes of some bits, whose prefixes then have
sketches of their own, so that the heaviest are found by descent.

The keys of all hashes follow from a *seed*: HMAC of the release key over the release, the folder's
nonce and the tree. Nobody without the key knows it before the release, so no rows can be chosen to
collide; another folder has another. It is released with the cells, since a query needs it. The
guarantee does not depend on it: it holds for any functions that are fixed before rows are counted
(`dpcore.privacy.sensitivity.sketch_sensitivity`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import KeyedBlocks, ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource, add_noise
from dptrees.dpcore.numbers import NumberQuestion
from dptrees.dpcore.privacy.sensitivity import sketch_sensitivity
from dptrees.dpcore.privacy.unit import Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.messages import (
    ChunkCounts,
    Counter,
    DenseCounter,
    Drawn,
    Gathered,
    Increments,
    Part,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
    SortedCounter,
    chunk_place,
    merged_chunk,
)
from dptrees.dpcore.questions.one_part import key_increments
from dptrees.dpcore.questions.released import SKETCH
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.rows.columns import fixed_width_values, pack, pack_many, unpack, unpack_many
from dptrees.dpcore.sketched.domain import SketchDomain
from dptrees.dpcore.sketches.sketch import PrefixSketches, SketchHashes, SketchShape, repeats
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.trees.chunks import SPINE, UniformChunking
from dptrees.dpcore.trees.shapes import UniformTree

# Cells that are merged, drawn and written together.
CHUNK_CELLS = 2**20
# 8 GiB.
MOST_CELLS = 2**30
# Values of a chunk's cells that the law of errors keeps at most.
_ATOMS = 2**16

HASHES = Part(kind=SKETCH, tree="", key=0, index=SPINE)


def sketch_seed(choices: KeyedChoices, tree: str) -> bytes:
    """The 32 bytes that the hash functions of a tree follow from.

    >>> choices = KeyedChoices(key=ReleaseKey(bytes(32)), release="r", nonce=b"1")
    >>> sketch_seed(choices, "t") == sketch_seed(replace(choices, nonce=b"2"), "t")
    False
    """
    return choices.key.digest("sketch seed", choices.release, choices.nonce, tree)


def value_blocks(seed: bytes) -> KeyedBlocks:
    """What values are hashed to codes with."""
    return ReleaseKey(seed).blocks("value")


@dataclass(frozen=True, kw_only=True)
class SketchQuestion(NumberQuestion):
    """The counts of the values of a column, in a sketch.

    Args:
        domain: the column, and how its values become codes.
        shape: of each level's table.
        chunk_cells: the most cells of a place.
        guess: the public guesses of how many rows and how many values there are; they only say what
            error is predicted.
        blocks: what values are hashed with, where rows are read: `with_choices`.

    Raises:
        Refusal: too many cells, keys, or a budget whose noise is out of range.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dptrees.dpcore.sketches.sketch import SketchKind
    >>> one = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    >>> words = SketchQuestion(
    ...     name="words", domain=SketchDomain(column="word"), release_unit=ADD_REMOVE_ROW,
    ...     spent=one, shape=SketchShape(kind=SketchKind.COUNT_SKETCH, rows=5, width=1024))
    >>> words.law, words.places, words.cells
    (DiscreteLaplace(scale=Fraction(5, 1)), [Place(group=0, number=0)], 5120)
    """

    kind = "sketch"
    written = (
        *("kind", "name", "domain", "plan", "shape", "chunk_cells"),
        *("guess", "confidence", "weight"),
    )
    output_only: ClassVar[tuple[str, ...]] = ("guess", "confidence", "weight")
    mechanism = "sketch"

    domain: SketchDomain
    shape: SketchShape
    chunk_cells: int = CHUNK_CELLS
    guess: tuple[int, int] = (1, 1)
    blocks: KeyedBlocks | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.keys is not None:
            raise Refusal("group_by", "a sketch has no keys; make a column of key and value")
        if self.cells > MOST_CELLS:
            raise Refusal("width", f"{self.cells} cells of all tables are more than 2^30")
        for name, least in (("chunk_cells", self.chunk_cells), ("guess", min(self.guess))):
            if least < 1:
                raise Refusal(name, f"{least} is not at least 1")
        super().__post_init__()

    @cached_property
    def sketches(self) -> PrefixSketches:
        """The tables of all levels; one of whole codes where the domain has no levels."""
        bits, levels = self.domain.code_bits, self.domain.levels
        return PrefixSketches(shape=self.shape, code_bits=bits, levels=levels)

    @property
    def cells(self) -> int:
        """The number of cells of all tables."""
        return self.sketches.cells

    @property
    def bound(self) -> dict[str, int]:
        return {}

    @cached_property
    def sensitivity(self) -> tuple[int, int]:
        """The prefix of a code is a function of it, so the tables of all levels are one sketch with
        as many more hash functions."""
        rows = self.shape.rows * len(self.sketches.levels)
        return sketch_sensitivity(self.release_unit, rows, signed=self.shape.signed)

    @property
    def std_error(self) -> float:
        """The standard deviation of the noise of a cell."""
        return math.sqrt(self.law.variance)

    @property
    def counts_rows(self) -> bool:
        """There is no root that has all rows."""
        return False

    @property
    def value_policies(self) -> dict[str, object]:
        return dict(self.domain.policies)

    def facts(self, noise: dict[str, object]) -> dict[str, object]:
        return {"type": self.shape.kind.value, "hashes": self.shape.rows} | {
            "width": self.shape.width,
            "levels": list(self.domain.names),
            **noise,
        }

    # --- Counting.

    @property
    def places(self) -> list[Place]:
        """Chunks of the cells, in the order of levels, rows and columns."""
        return [chunk_place(chunk) for chunk in self._chunking]

    @cached_property
    def _chunking(self) -> UniformChunking:
        chunks = -(-self.cells // self.chunk_cells)
        fanouts = (self.cells,) if chunks == 1 else (chunks, self.chunk_cells)
        tree = UniformTree(leaves=self.cells, fanouts=fanouts)
        return UniformChunking(tree=tree, keys=1, chunk_leaves=self.chunk_cells)

    @property
    def dense_cells(self) -> int:
        return self.cells

    def place_cells(self, place: Place) -> range:
        """The cells of a place."""
        start = place.number * self.chunk_cells
        return range(start, min(start + self.chunk_cells, self.cells))

    def with_choices(self, choices: KeyedChoices) -> SketchQuestion:
        return replace(self, blocks=value_blocks(sketch_seed(choices, self.name)))

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        """The code of each row that has a value."""
        if self.blocks is None:
            raise RuntimeError(f"tree {self.name}: rows are read with a release key alone")
        return key_increments(self.domain.row_codes(columns, self.blocks))

    def hashes(self, seed: bytes) -> tuple[SketchHashes, ...]:
        """The hash functions of every level."""
        return self.sketches.hashes(ReleaseKey(seed))

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        cells = DenseCounter(self._chunking) if dense else SortedCounter(self._chunking)
        return SketchCounter(self, self.hashes(sketch_seed(choices, self.name)), cells)

    def merge(self, place: Place, partials: Iterable[bytes]) -> ChunkCounts:
        return merged_chunk(len(self.place_cells(place)), partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut the exact counts of codes into partial counts.

        Raises:
            ValueError: they are no counts of nodes.
        """
        if not isinstance(counts, NodeCounts):
            raise ValueError(f"counts: those of tree {self.name} are no counts of codes")
        counter = self.counter(dense=True, choices=choices)
        counter.add(Increments(counts.keys, counts.counts), counts.total)
        return counter.take()

    # --- Drawing.

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        """The noisy cells, and to the group what values they have."""
        exact = unpack(counts)
        stream = noise.for_counts(exact).stream(self.name, *place, 0)
        noisy = add_noise(self.law, exact, stream)
        row, column = divmod(self.place_cells(place).start, self.shape.width)
        starts = range(self.shape.width - column, len(noisy), self.shape.width)
        laws = [_values(row + at, own) for at, own in enumerate(np.split(noisy, starts))]
        return Drawn(sent=pack_many([*map(pack, _joined(laws))]), kept=pack(noisy))

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        """The seed of the hash functions, and the values that the cells of each row have."""
        laws = [tuple(map(unpack, unpack_many(data))) for data in sent.values()]
        row, value, cells = _joined(laws)
        order = np.lexsort((value, row))
        row, value = row[order], value[order]
        first = np.flatnonzero((np.diff(row, prepend=-1) != 0) | (np.diff(value, prepend=0) != 0))
        table = pa.table(
            {
                "tree": _constant(self.name, len(first)),
                "seed": _constant(sketch_seed(noise.choices, self.name).hex(), len(first)),
                "row": row[first].astype(np.int32),
                "value": value[first],
                "cells": np.add.reduceat(cells[order], first),
            }
        )
        part = replace(HASHES, tree=self.name)
        return Gathered(dict.fromkeys(sent, b""), [ReleasedPart(part, table)])

    def finish(self, place: Place, kept: bytes, returned: bytes) -> Sequence[ReleasedPart]:
        """The noisy cells of a place, in their order."""
        noisy = unpack(kept)
        table = pa.table({"tree": _constant(self.name, len(noisy)), "count": noisy})
        return [ReleasedPart(self._part(place), table)]

    def _part(self, place: Place) -> Part:
        return Part(kind=SKETCH, tree=self.name, key=0, index=place.number)

    def parts(self) -> Iterator[Part]:
        yield replace(HASHES, tree=self.name)
        yield from map(self._part, self.places)


def sketch_question_from_spec(
    spec: Mapping[str, Any], unit: PrivacyUnit, measure: Measure
) -> SketchQuestion:
    """The question of a specification, as `SketchQuestion.spec` writes it."""
    spent = Budget.from_entries(dict(spec["plan"]), measure=measure)
    return SketchQuestion.from_spec(spec, release_unit=unit, spent=spent)


def _constant(text: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


# A row, a value and how many of the row's cells have it, each (n,).
_Law = tuple[Integers, ...]


def _values(row: int, cells: Integers) -> _Law:
    """The values that cells of a row have; of very many values some at evenly spaced ranks."""
    values, counts = np.unique(cells, return_counts=True)
    if len(values) > _ATOMS:
        starts = np.arange(0, len(cells), -(-len(cells) // _ATOMS))
        counts = np.diff(starts, append=len(cells))
        values = np.sort(cells)[starts + counts // 2]
    return np.full(len(values), row), values, counts


def _joined(laws: Sequence[_Law]) -> _Law:
    return tuple(np.concatenate(each) for each in zip(*laws, strict=True))


class SketchCounter(Counter):
    """Counts rows in the cells of all tables.

    Args:
        question: the tree.
        hashes: of every level.
        cells: counts cells.
    """

    def __init__(
        self, question: SketchQuestion, hashes: Sequence[SketchHashes], cells: Counter
    ) -> None:
        self._question, self._hashes, self._cells = question, hashes, cells

    def add(self, increments: Increments, rows: int, /) -> int:
        assert isinstance(increments.cells, pa.Array)
        codes, counts = fixed_width_values(increments.cells), increments.values
        if counts is None and repeats(codes):
            codes, counts = np.unique(codes, return_counts=True)
        sketches, start, total = self._question.sketches, 0, 0
        for level, functions in zip(sketches.levels, self._hashes, strict=True):
            for columns, signs in functions.cells(sketches.prefixes(level, codes)):
                values = counts if signs is None else signs if counts is None else signs * counts
                total += self._cells.add(Increments(columns + start, values), rows)
                start += functions.width
        return total

    @property
    def is_due(self) -> bool:
        """It follows from the rows read, not from their values."""
        return self._cells.is_due

    def take(self) -> Iterator[Partial]:
        """Every place, also those without rows: how many there are must not reveal where rows
        are."""
        without = set(self._question.places)
        for partial in self._cells.take():
            without.remove(partial.place)
            yield partial
        yield from (Partial(place, b"") for place in sorted(without))
