"""Plans of sketches: the kind and the shape with the smallest predicted error, by public guesses.

The guesses are n rows of D values with Zipf's law: the k-th most frequent has n / (k H) of them, H
= 1 + 1/2 + ... + 1/D. One row of a table is filled by a public hash function and gets noise of the
plan's law; its cells are the law of a row's error, as the cells of the released table will be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.numbers import NumberWorkload
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.sketched.domain import SketchDomain
from dptrees.dpcore.sketched.question import MOST_CELLS, SketchQuestion
from dptrees.dpcore.sketches.estimates import RowError
from dptrees.dpcore.sketches.sketch import SketchKind, SketchShape, update
from dptrees.dpcore.specification import Refusal

# Hash functions that are tried: odd, since the median of an odd number is one of them.
_HASHES = (1, 3, 5, 7, 9)
# Cells of a row that are simulated at most, and values in them.
_WIDTH, _VALUES = 2**14, 2**16
DEFAULT_MEMORY = 2**23
CELL_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class SketchWorkload(NumberWorkload):
    """The counts of the values of a column, in a sketch.

    Args:
        domain: the column.
        rows: n, a public guess of the number of rows.
        values: D, a public guess of the number of different values.
        width: of a table; None: what the memory allows.
        hashes: of a table; None: the best of a few.
        memory: of all tables, in bytes; where no width is given.
        type: of the sketch; None: the better one.

    Raises:
        Refusal: naming the field and the rule.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> words = SketchWorkload(name="words", domain=SketchDomain(column="word"), rows=10**6,
    ...                        values=10**4, memory=2**20)
    >>> one = Setting(
    ...     unit=ADD_REMOVE_ROW, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> question = words.planned(one)
    >>> question.shape.kind.value, question.shape.rows, question.shape.width
    ('count_min', 3, 32768)
    >>> round(words.predicted(question))
    5
    """

    question = SketchQuestion
    error_unit = "rows"
    domain: SketchDomain
    rows: int = 10**6
    values: int = 2**20
    width: int | None = None
    hashes: int | None = None
    memory: int | None = None
    type: SketchKind | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width is not None and self.memory is not None:
            raise Refusal("memory", "goes without width, which says as much")
        for name in ("rows", "values"):
            if not 1 <= getattr(self, name) <= 2**40:
                raise Refusal(name, f"{getattr(self, name)} is not from 1 to 2^40")
        if self.memory is not None and self._width(self.hashes or 1) < 2:
            raise Refusal("memory", f"{self.memory} bytes hold no table of two columns")
        # Refuses a shape that is given before there is a budget.
        SketchShape(kind=SketchKind.COUNT_MIN, rows=self.hashes or 1, width=self.width or 2)

    def _width(self, hashes: int) -> int:
        """The largest power of two that the memory allows."""
        columns = (self.memory or DEFAULT_MEMORY) // (CELL_BYTES * self._tables * hashes)
        return 1 << columns.bit_length() >> 1

    @property
    def _tables(self) -> int:
        """The tables of one hash function: of each level one."""
        return len(self.domain.levels)

    @property
    def _shapes(self) -> Iterator[SketchShape]:
        for hashes in _HASHES if self.hashes is None else (self.hashes,):
            width = self.width or self._width(hashes)
            if 1 != hashes != self.hashes and self._tables * hashes * width > MOST_CELLS:
                return
            for kind in SketchKind if self.type is None else (self.type,):
                if width >= 2:
                    yield SketchShape(kind=kind, rows=hashes, width=width)

    def planned(self, setting: Setting) -> SketchQuestion:
        planned = [
            SketchQuestion(
                name=self.name,
                domain=self.domain,
                keys=self.keys,
                release_unit=setting.unit,
                spent=setting.budget,
                shape=shape,
                guess=(self.rows, self.values),
                confidence=setting.confidence,
                weight=self.weight,
            )
            for shape in self._shapes
        ]
        return planned[0] if len(planned) == 1 else min(planned, key=self.predicted)

    def predicted(self, question: Any) -> float:
        """The standard error of a rare value."""
        return predicted_error(question.shape, question.law, *question.guess)

    def condition(self, question: Any) -> str:
        return f"for {guessed_law(self.rows, self.values)}"


def guessed_law(rows: int, values: int) -> str:
    """The guesses in words.

    >>> guessed_law(1000, 20)
    '1,000 rows of 20 values, the k-th most frequent with a share proportional to 1/k'
    """
    return (
        f"{rows:,} rows of {values:,} values, the k-th most frequent with a share proportional to "
        "1/k"
    )


def predicted_error(shape: SketchShape, law: NoiseLaw, rows: int, values: int) -> float:
    """The standard error of the count of a rare value, by the best of minimum and median.

    Args:
        shape: of the sketch.
        law: of the noise of a cell.
        rows, values: how many there are, as guessed.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.noise.laws import DiscreteLaplace
    >>> shape = SketchShape(kind=SketchKind.COUNT_SKETCH, rows=1, width=4096)
    >>> round(predicted_error(shape, DiscreteLaplace(scale=Fraction(10)), 1, 1), 1)
    14.3
    """
    counted = _counted_row(shape.kind, shape.width, rows, values)
    width = counted.size
    noise = law.sample(public_stream("predicted noise", width), width)
    simulated = replace(shape, rows=1, width=width)
    error = replace(RowError.from_table(simulated, counted + noise), shape=shape)
    return math.sqrt(error.best_order()[1].variance)


@lru_cache(maxsize=64)
def _counted_row(kind: SketchKind, width: int, rows: int, values: int) -> Integers:
    """A row of a table of fewer columns, with as many fewer values, evenly spaced by their ranks:
    (1, columns)."""
    columns = min(width, _WIDTH)
    while columns > 2 and values * columns > width * _VALUES:
        columns //= 2
    size = max(1, min(_VALUES, values * columns // width))
    shape = SketchShape(kind=kind, rows=1, width=columns)
    table, stream = shape.empty(), public_stream("predicted sketch", kind.value, columns)
    update(shape.hashes(stream), table, np.arange(size, dtype=np.uint64), _zipf(rows, values, size))
    return table


def _zipf(rows: int, values: int, size: int) -> Integers:
    """The counts of so many of the values, evenly spaced by their ranks.

    >>> _zipf(60, 3, 3).tolist()
    [32, 16, 10]
    """
    ranks = (np.arange(size) + 0.5) * (values / size) + 0.5
    first = np.arange(1, min(values, 2**16) + 1, dtype=np.float64)
    total = dot(1 / first, np.ones(len(first)))
    # Euler and Maclaurin, for the ranks that are not summed.
    total += log((values + 0.5) / (len(first) + 0.5))
    found: Integers = (rows / (ranks * total)).astype(np.int64)
    return found
