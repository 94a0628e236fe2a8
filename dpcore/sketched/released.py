"""Answers about a released sketch: the counts of values, and the heaviest codes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.questions.messages import Place
from dptrees.dpcore.questions.released import SKETCH, Answer, Released, named_level
from dptrees.dpcore.sketched.question import SketchQuestion, value_blocks
from dptrees.dpcore.sketches.estimates import (
    ErrorMoments,
    RowError,
    SketchEstimator,
    combined,
)
from dptrees.dpcore.sketches.heavy_hitters import MAX_CHILDREN, heavy_hitters
from dptrees.dpcore.sketches.sketch import Codes, SketchHashes
from dptrees.dpcore.trees.chunks import SPINE

# Order statistics are computed from at most so many cells, of evenly spaced ranks.
_CELLS = 2**20
# Prefixes of a level that a descent goes on with, and whose cells it reads at once.
_KEPT, _BLOCK = 2**12, 2**20
CHOSEN = (
    "the largest of many estimates were chosen, so their errors tend upwards; intervals are those "
    "of values that were named beforehand"
)
FOLLOWED = "the largest {} prefixes of each level were followed, and a code below others is missed"


class _Level(NamedTuple):
    """What the cells of a level's table show: the totals of its rows, the law of a row's error, and
    the estimator of the smallest variance with its bias and variance."""

    totals: Floats
    error: RowError
    estimator: SketchEstimator
    moments: ErrorMoments


class ReleasedSketch(Released):
    """The answers about one sketch; its cells are read as a query needs them."""

    unordered = "is a sketch, and has no order"
    empty_label = '""'
    question: SketchQuestion

    @property
    def height(self) -> int:
        """The number of levels of prefixes; 0 where values are hashed."""
        return len(self.question.domain.names)

    def at_confidence(self, confidence: float) -> ReleasedSketch:
        return ReleasedSketch(self.question, self._read, confidence)

    def find_level(self, name: str) -> int:
        return named_level(("root", *self.question.domain.names), name)

    def counts(self, values: Sequence[object], key: object = None) -> list[Answer]:
        """The counts of values, each with its error.

        Raises:
            ValueError: a key, or a value that the column cannot have.
        """
        self._check_no_key(key)
        levels, codes = self.question.domain.asked(values, value_blocks(self._seed))
        found: dict[int, Answer] = {}
        for level in np.unique(levels).tolist():
            here = np.flatnonzero(levels == level).tolist()
            labels = [str(values[at]) for at in here]
            found |= zip(here, self._answers(level, codes[here], labels), strict=True)
        return [found[at] for at in range(len(values))]

    def named(self, name: str, key: object = None) -> Answer:
        return self.counts([name], key)[0]

    def unpublished(self, level: int | None, path: str | None = None) -> list[Answer]:
        raise ValueError(
            f"above: tree {self._name} is a sketch, where only values named beforehand have "
            "verdicts: use --by"
        )

    def top_among(self, values: Sequence[object], count: int, key: object = None) -> list[Answer]:
        """The values with the largest estimates among given ones.

        Raises:
            ValueError: as of `counts`.
        """
        answers = list({each.label: each for each in self.counts(values, key)}.values())
        answers.sort(key=lambda answer: -(answer.estimate or 0.0))
        return [replace(each, remark=CHOSEN) for each in answers[:count]]

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """The codes, or prefixes of a level, with the largest estimates, by descent.

        Raises:
            ValueError: values are hashed, so that they must be given; or no such level or key.
        """
        self._check_no_key(key)
        domain = self.question.domain
        if not self.height:
            raise ValueError(
                f"top: tree {self._name} is a sketch of hashed values, which cannot be listed: "
                "give the values to look at, with --among FILE; or a domain with bits"
            )
        if not 1 <= level <= self.height:
            raise ValueError(f"level: {level} is not between 1 and {self.height}")
        lengths = domain.levels[:level]
        most = MAX_CHILDREN >> int(np.diff(lengths).max(initial=0))
        if count > most:
            raise ValueError(f"n: {count} is more than {most}, the most prefixes of a descent here")
        most = max(count, min(_KEPT, most))
        found = heavy_hitters(
            lambda bits, codes: self._raw(lengths.index(bits), codes),
            lengths,
            threshold=-math.inf,
            most=most,
        )
        order = np.argsort(-found.counts, kind="stable")[:count]
        labels = domain.codes.paths(level, pa.array(found.codes[order])).to_pylist()
        answers = self._answers(level - 1, found.codes[order], labels)
        missed = level > 1 and most < 2 ** lengths[-2]
        remark = f"{CHOSEN}; {FOLLOWED.format(most)}" if missed else CHOSEN
        return [replace(each, remark=remark) for each in answers]

    def rare_error(self) -> tuple[float, float]:
        """The standard error of the count of a value that is rare, and how far its interval reaches
        from the estimate at most."""
        found = self._level(len(self._hashes) - 1)
        low, high = found.error.ends(found.estimator, self.confidence)
        bias = found.moments.bias
        return math.sqrt(found.moments.variance), max(high - bias, bias - low)

    def at_path(self, path: str, key: object = None) -> Answer:
        """Refuse paths: a sketch has no nodes.

        Raises:
            ValueError: always.
        """
        raise self._has_no_numbers()

    def _has_no_numbers(self) -> ValueError:
        return ValueError(f"node: tree {self._name} is a sketch, without nodes; use count VALUE")

    def _answers(self, level: int, codes: Codes, labels: Sequence[str]) -> list[Answer]:
        found, cells = self._level(level), self._cells(level, codes)
        raw = combined(found.estimator, cells, found.totals, self._hashes[level])
        law = found.error.code_errors(found.estimator, cells, found.totals, self.confidence)
        if self.question.shape.signed:
            law = (np.zeros(len(raw)), *law[1:])
        values = np.stack([raw, *law], axis=1).tolist()
        return [
            Answer(
                label=label,
                estimate=value - bias,
                std_error=math.sqrt(variance),
                ci_low=max(0.0, value - high),
                ci_high=max(0.0, value - low),
                count=max(0, round(value - bias)),
                fraction=None,
            )
            for label, (value, bias, variance, low, high) in zip(labels, values, strict=True)
        ]

    def _raw(self, level: int, codes: Codes) -> Floats:
        """The estimates of codes of a level, before their bias is taken off."""
        found = self._level(level)
        blocks = (codes[at : at + _BLOCK] for at in range(0, codes.size, _BLOCK))
        return np.concatenate(
            [
                combined(
                    found.estimator, self._cells(level, each), found.totals, self._hashes[level]
                )
                for each in blocks
            ]
        )

    def _cells(self, level: int, codes: Codes) -> Floats:
        """The cells of codes, with their signs, (rows, n)."""
        hashes = self._hashes[level]
        cells = np.empty((hashes.rows, codes.size))
        for row, (columns, signs) in enumerate(hashes.cells(codes)):
            own = self._at(columns + (level * hashes.rows + row) * hashes.width)
            cells[row] = own if signs is None else own * signs
        return cells

    def _at(self, cells: Integers) -> Integers:
        """The noisy counts of cells, by their numbers over all tables."""
        result = np.empty(cells.size, np.int64)
        numbers = cells // self.question.chunk_cells
        for number in np.unique(numbers).tolist():
            here = np.flatnonzero(numbers == number)
            start = self.question.place_cells(Place(0, number)).start
            result[here] = self._chunk(number)[cells[here] - start]
        return result

    @lru_cache(maxsize=16)  # noqa: B019 - an answer lives as long as the command
    def _chunk(self, number: int) -> Integers:
        found: Integers = self._read(SKETCH, self._name, 0, number)["count"].to_numpy()
        return found

    @cached_property
    def _law(self) -> pa.Table:
        return self._read(SKETCH, self._name, 0, SPINE)

    @cached_property
    def _seed(self) -> bytes:
        return bytes.fromhex(self._law["seed"][0].as_py())

    @cached_property
    def _hashes(self) -> tuple[SketchHashes, ...]:
        return self.question.hashes(self._seed)

    @lru_cache(maxsize=64)  # noqa: B019 - as above
    def _level(self, level: int) -> _Level:
        shape = self.question.shape
        law = [self._law[name].to_numpy() for name in ("row", "value", "cells")]
        own = law[0] // shape.rows == level
        row, value, cells = law[0][own] % shape.rows, law[1][own], law[2][own]
        totals = np.bincount(row, value.astype(np.float64) * cells, shape.rows).astype(np.float64)
        error = RowError.from_values(shape, row, value, cells, totals, most=_CELLS)
        return _Level(totals, error, *error.best_order())
