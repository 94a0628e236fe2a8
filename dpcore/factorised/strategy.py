"""A strategy: which weighted sums of cells get noise, in whole numbers.

A strategy is an integer matrix M of K rows and K columns without a null vector. Measured is y = M x
+ e with independent noise e, and x is estimated by M^-1 y: by least squares, without bias, since as
many sums are measured as there are cells. The variance of any sum w'x is that of (M^-T w)'e.

Implemented by `dpcore.factorised.dense` and `dpcore.factorised.toeplitz`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.codec import Coded


class MatrixStrategy(Coded, ABC):
    """An integer strategy. Variances are in units of that of the noise of one sum; any machine
    builds the same matrix from the specification."""

    tag = "kind"
    kind: ClassVar[str]

    @property
    @abstractmethod
    def leaves(self) -> int:
        """K, the cells."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """max |M_ij|."""

    @property
    @abstractmethod
    def column_norm(self) -> int:
        """max_i |m_i|^2 over the columns, exactly."""

    @property
    @abstractmethod
    def column_distance(self) -> int:
        """max_ij |m_i - m_j|^2 over pairs of columns, or a little more."""

    @abstractmethod
    def measured(self, counts: Integers) -> Integers:
        """M x modulo 2^64, (rows, K) -> (rows, K): exact below 2^63 in size."""

    @abstractmethod
    def estimated(self, measurements: Integers) -> Floats:
        """M^-1 y, (rows, K) -> (rows, K)."""

    @abstractmethod
    def coefficients(self, weights: Floats) -> Floats:
        """(K,) M^-T w: what the noise of each sum has in the error of w'x, (K,)."""

    @property
    @abstractmethod
    def prefix_variances(self) -> Floats:
        """(K,) of the sums of the first 1..K cells."""

    @property
    @abstractmethod
    def total_covariances(self) -> Floats:
        """(K,) of these sums with that of all cells."""

    @abstractmethod
    def range_variances(self, starts: Integers, stops: Integers) -> Floats:
        """(n,) of the sums of cells start..stop - 1, for starts and stops that rise."""

    def dense(self) -> Integers:
        """(K, K) M, for small K."""
        return np.asarray(self.measured(np.eye(self.leaves, dtype=np.int64)).T)
