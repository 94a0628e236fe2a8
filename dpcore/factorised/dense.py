"""The best strategy for some thousand cells, as a triangular matrix of whole numbers.

The weights v of `dpcore.factorised.optimum` stand for X = D^-1 (D G D)^(1/2) D^-1; M is its
Cholesky factor times a scale, rounded to whole numbers. The rounding costs little (a part in 2^24
of a column's square per entry) and no privacy: sensitivity and estimates are those of the whole
numbers.

The same matrix must come out on every machine, though eigenvectors differ there in their last bits.
So the numbers are rounded up or down at a *threshold* that is in the middle of the widest gap
between their fractional parts, which is thousands of times wider than such differences, and a
digest of the matrix is compared wherever it is made again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dpcore.arrays import Floats, Integers
from dpcore.factorised.read import Read
from dpcore.factorised.strategy import Strategy
from dpcore.refusal import ANOTHER_MATRIX, MatrixError

# Of the entries: a column of norm 1 is a column of whole numbers of this norm.
SCALE = 2**12
# Thresholds are looked for here, so that rounding stays near to the nearest number.
_NEAREST = 0.4, 0.6
# Products of whole numbers are exact in floating point below this.
_EXACT = 2**53
_DIGITS = 4


@dataclass(frozen=True, kw_only=True)
class DenseStrategy(Strategy):
    """The strategy of some weights.

    Args:
        read: what it is best for.
        weights: (K,) v.
        scale: of the entries.
        threshold: fractional parts below it are rounded down.
        digest: of the matrix, in hexadecimal.

    Raises:
        MatrixError: (when it is used) the matrix is not the one of the digest.

    >>> one = dense_strategy(Read(kind="cdf"), (1.0, 1.0))
    >>> one.dense().tolist()
    [[4096, 1365], [0, 3053]]
    """

    read: Read
    weights: tuple[float, ...]
    scale: int
    threshold: float
    digest: str

    @property
    def leaves(self) -> int:
        return len(self.weights)

    @property
    def _of(self) -> _Matrix:
        return _matrix(self)

    @property
    def largest(self) -> int:
        return int(np.abs(self._of.entries).max())

    @property
    def column_norm(self) -> int:
        return int(self._of.gram.diagonal().max())

    @property
    def column_distance(self) -> int:
        return self._of.distance

    def measured(self, counts: Integers) -> Integers:
        entries, most = self._of.entries, int(np.abs(counts).sum(axis=-1).max(initial=0))
        if self.largest * most < _EXACT:
            return np.asarray(
                np.rint(counts.astype(np.float64) @ self._of.numbers.T), dtype=np.int64
            )
        return np.asarray(counts @ entries.T)

    def estimated(self, measurements: Integers) -> Floats:
        sums = measurements.T.astype(np.float64)
        return np.asarray(np.linalg.solve(self._of.numbers, sums).T)

    def coefficients(self, weights: Floats) -> Floats:
        return np.linalg.solve(self._of.numbers.T, weights)

    @property
    def prefix_variances(self) -> Floats:
        return self._of.covariances.diagonal()[1:]

    @property
    def total_covariances(self) -> Floats:
        return self._of.covariances[-1, 1:]

    def range_variances(self, starts: Integers, stops: Integers) -> Floats:
        between, own = self._of.covariances, self._of.covariances.diagonal()
        return np.maximum(own[starts] + own[stops] - 2 * between[starts, stops], 0.0)

    def spec(self) -> dict[str, object]:
        return {
            "kind": "optimum",
            "read": self.read.spec(),
            "weights": list(self.weights),
            "scale": self.scale,
            "threshold": self.threshold,
            "digest": self.digest,
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, object]) -> DenseStrategy:
        """The inverse of `spec`."""
        weights, read = spec["weights"], spec["read"]
        assert isinstance(weights, list) and isinstance(read, Mapping)
        return cls(
            read=Read.from_spec(read),
            weights=tuple(weights),
            scale=int(str(spec["scale"])),
            threshold=float(str(spec["threshold"])),
            digest=str(spec["digest"]),
        )


class _Matrix:
    """The matrix of a strategy, and what follows from it."""

    def __init__(self, entries: Integers) -> None:
        self.entries, self.numbers = entries, entries.astype(np.float64)

    @cached_property
    def gram(self) -> Integers:
        """M'M, exactly: sums of K products of numbers below 2^13."""
        return np.asarray(np.rint(self.numbers.T @ self.numbers), dtype=np.int64)

    @cached_property
    def distance(self) -> int:
        """The largest squared distance of two columns."""
        own = self.gram.diagonal()
        return int((own[:, None] + own - 2 * self.gram).max())

    @cached_property
    def covariances(self) -> Floats:
        """(K + 1, K + 1) of all prefixes, the empty one first."""
        prefixes = np.cumsum(np.linalg.inv(self.numbers), axis=0)
        return np.pad(prefixes @ prefixes.T, (1, 0))


def dense_strategy(read: Read, weights: tuple[float, ...]) -> DenseStrategy:
    """The strategy of weights, with the threshold and the digest that make it the same anywhere.

    Args:
        read: what it is best for.
        weights: (K,) v, of which four digits are kept.
    """
    rounded = tuple(float(f"{each:.{_DIGITS}g}") for each in weights)
    scaled = _scaled(read, rounded, SCALE)
    parts = np.sort((scaled - np.floor(scaled))[np.triu_indices(len(weights))])
    near = parts[(parts > _NEAREST[0]) & (parts < _NEAREST[1])]
    edges = np.concatenate([[_NEAREST[0]], near, [_NEAREST[1]]])
    widest = int(np.diff(edges).argmax())
    threshold = round(float(edges[widest] + edges[widest + 1]) / 2, 9)
    return DenseStrategy(
        read=read,
        weights=rounded,
        scale=SCALE,
        threshold=threshold,
        digest=_digest(_rounded(scaled, threshold)),
    )


@lru_cache(maxsize=4)
def _matrix(strategy: DenseStrategy) -> _Matrix:
    scaled = _scaled(strategy.read, strategy.weights, strategy.scale)
    entries = _rounded(scaled, strategy.threshold)
    if _digest(entries) != strategy.digest:
        raise MatrixError(ANOTHER_MATRIX)
    return _Matrix(entries)


def _scaled(read: Read, weights: tuple[float, ...], scale: int) -> Floats:
    """The triangular factor of X, times the scale."""
    root = np.sqrt(np.array(weights))
    values, vectors = np.linalg.eigh(root[:, None] * read.gram(len(weights)) * root)
    roots = np.sqrt(np.maximum(values, 0.0))
    information = (vectors * roots) @ vectors.T / root[:, None] / root
    information /= information.diagonal().max()
    return np.asarray(np.linalg.cholesky(information).T * scale)


def _rounded(scaled: Floats, threshold: float) -> Integers:
    return np.asarray(np.triu(np.floor(scaled + (1.0 - threshold))), dtype=np.int64)


def _digest(entries: Integers) -> str:
    return hashlib.sha256(np.ascontiguousarray(entries, dtype="<i8").tobytes()).hexdigest()
