"""The paper's Algorithm 1 as printed, one item at a time, in Python's whole numbers."""

from __future__ import annotations

import numpy as np

from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.sketches.sketch import SketchShape


class SketchReference:
    """A table as lists; its hash functions, one code at a time, are the sketch's own."""

    def __init__(self, shape: SketchShape, stream: RandomStream) -> None:
        self.rows, self.signed = shape.rows, shape.signed
        self.hashes = shape.hashes(stream)
        self.table = [[0] * shape.width for _ in range(shape.rows)]

    def cell(self, row: int, code: int) -> tuple[int, int]:
        """The column and the sign of a code."""
        columns, signs = list(self.hashes.cells(np.array([code], np.uint64)))[row]
        return int(columns[0]), 1 if signs is None else int(signs[0])

    def update(self, code: int, count: int) -> None:
        for row in range(self.rows):
            column, sign = self.cell(row, code)
            self.table[row][column] += sign * count

    def query(self, code: int) -> float:
        """The minimum of count-min's cells; the median of a count sketch's signed ones."""
        found = []
        for row in range(self.rows):
            column, sign = self.cell(row, code)
            found.append(sign * self.table[row][column])
        return float(np.median(found)) if self.signed else float(min(found))
