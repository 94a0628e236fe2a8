"""Sketches of codes on Beam: one linear table of counters, the same in whatever order it is made.

    codes (np.ndarray) -> counters of a bundle (np.ndarray) -> bytes -> their sum (bytes)

Counters are exact int64 sums, so neither bundles nor the order of merges can change them. Their
hash functions follow from the release key: the step carries its reference, and each worker draws
the functions when it is set up. Every bundle with codes hands on one element, whatever the codes;
how far its bytes shrink reveals how many cells it touched, as for all counts (docs/engines.md).
"""

from collections.abc import Iterable

import apache_beam as beam
import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.sketches.hashing import Codes
from dptrees.dpcore.sketches.prefixes import PrefixSketches
from dptrees.transforms.key_reference import KeyReference

Counters = Integers | bytes  # packed once they are done with


@beam.typehints.with_input_types(np.ndarray)
@beam.typehints.with_output_types(bytes)
class SketchCodes(beam.CombineFn):
    """Counts codes in the sketches of a hierarchy's levels.

    Inputs are batches of leaves' codes, uint64 (n,); the output is `PrefixSketches.to_bytes` of the
    counters of them all, batches of no codes included.

    Args:
        sketches: of every level.
        key: where the release key lies.
        name: of the tree in its release, for `PrefixSketches.hashes`.
    """

    def __init__(
        self, sketches: PrefixSketches, key: KeyReference, name: tuple[bytes | str | int, ...]
    ) -> None:
        self._sketches, self._reference, self._name = sketches, key, name

    def setup(self) -> None:
        self._hashes = self._sketches.hashes(self._reference.load(), *self._name)

    def create_accumulator(self) -> Counters:
        return self._sketches.empty()

    def add_input(self, accumulator: Counters, codes: Codes) -> Counters:
        tables = self._unpacked(accumulator)
        self._sketches.update(self._hashes, tables, codes)
        return tables

    def merge_accumulators(self, accumulators: Iterable[Counters]) -> Counters:
        merged = self._sketches.empty()
        for each in accumulators:
            merged += self._unpacked(each)
        return merged

    def compact(self, accumulator: Counters) -> Counters:
        return self.extract_output(accumulator)

    def extract_output(self, accumulator: Counters) -> bytes:
        if isinstance(accumulator, bytes):
            return accumulator
        return self._sketches.to_bytes(accumulator)

    def _unpacked(self, accumulator: Counters) -> Integers:
        if isinstance(accumulator, bytes):
            return self._sketches.from_bytes(accumulator)
        return accumulator
