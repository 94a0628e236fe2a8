"""The guarantees of the papers: Table 1, Theorem 3 with Lemma 5's budgets, Corollary 1.

Holland et al. print O(.) in Theorem 3; the constants come from its proof (Section 8):

- noise 10 sqrt 2 = (4 + 1) 2 sqrt 2: 4 from Lemma 9, 1 from Lemma 10, and 2 sqrt 2 from Lemma 6,
  which bounds E max(|x|, |y|) of two Laplace variables of the scale 1 by it (exactly it is 3/2);
- sketch 5 / w = (4 + 1) / w, from the same two; tail sums 1, Lemma 8; resolution 1, Lemma 7.

Errata heeded: the proof's first display has sigma_l where 1 / sigma_l is meant; Gamma_-1 is
Gamma_0 = 1; with j hash rows the noise below L_k grows by j (Theorem 3 has j = 1, and the minimum
of several noisy rows is biased); `substitute` halves every sigma_l. Lemma 9 takes gamma_l for half
of gamma_(l-1), which is so for d = 1 alone; its factor 4 is printed for all d, and kept. Lemma 8's
diameters gamma_l are bounded by gamma_(l-1) in the theorem; kept as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.synthetic.grown_tree import diameters
from dptrees.dpcore.arrays import Floats

NOISE = 10 * math.sqrt(2)
SKETCH = 5.0


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Theorem 3's three summands."""

    noise: float
    approximation: float
    resolution: float

    @property
    def total(self) -> float:
        """The bound of expected W1."""
        return self.noise + self.approximation + self.resolution


def level_sizes(*, dimensions: int, k: int, depth: int) -> Floats:
    """(r + 1,) of levels 0, ..., r: Gamma_(l-1) for l <= L_k, then k gamma_(l-1).

    >>> level_sizes(dimensions=1, k=4, depth=5).tolist()
    [1.0, 1.0, 1.0, 1.0, 0.5, 0.25]
    """
    above = np.maximum(np.arange(depth + 1) - 1, 0)
    dense = np.arange(depth + 1) <= k.bit_length() - 1
    return np.where(dense, 2.0**above, float(k)) * diameters(depth, dimensions)[above]


def level_budgets(epsilon: float, *, dimensions: int, k: int, depth: int) -> Floats:
    """(r + 1,) sigma_l of Lemma 5, equation (23): proportional to the root of `level_sizes`."""
    weights = np.sqrt(level_sizes(dimensions=dimensions, k=k, depth=depth))
    return epsilon * weights / weights.sum()


def tail_fractions(*, k: int, depth: int, skew: float) -> Floats:
    """(r - L_k,) bounds of E sum_l^(k, 2k-1) / n for l = L_k + 1, ..., r (Lemma 11).

    Args:
        k: nodes kept a level.
        depth: r.
        skew: B of multifractal data; 1/2 is uniform data.
    """
    below = np.arange(1, depth - (k.bit_length() - 1) + 1)
    return (1 - skew) * skew ** (below - 1.0)


def theorem3(
    rows: int,
    epsilon: float,
    *,
    dimensions: int,
    k: int,
    depth: int,
    width: float = math.inf,
    hash_rows: int = 1,
    skew: float = 0.5,
) -> Terms:
    """The bound of PrivHP's expected W1, with the constants above and Lemma 5's budgets.

    Args:
        rows: n.
        epsilon: of neighbors that add or remove a row; half of it for `substitute`.
        dimensions: d.
        k: nodes kept a level.
        depth: r.
        width: w; infinite where nodes are counted exactly.
        hash_rows: j.
        skew: B, of the tails.
    """
    sizes = level_sizes(dimensions=dimensions, k=k, depth=depth)
    sigma = level_budgets(epsilon, dimensions=dimensions, k=k, depth=depth)
    dense = min(k.bit_length() - 1, depth)
    factor = np.where(np.arange(depth + 1) > dense, float(hash_rows), 1.0)
    gamma = diameters(depth, dimensions)
    tails = tail_fractions(k=k, depth=depth, skew=skew)
    return Terms(
        noise=NOISE / rows * float((factor * sizes / sigma).sum()),
        approximation=float(((SKETCH / width + tails) * gamma[dense:depth]).sum()),
        resolution=float(gamma[depth]),
    )


def corollary1(
    rows: int, epsilon: float, *, dimensions: int, k: int, width: float, skew: float = 0.5
) -> float:
    """Corollary 1's rate without its constant; f = 1 for uniform data, 1 - B for skew B > 1/2."""
    tail = 1.0 if skew == 0.5 else 1 - skew
    if dimensions == 1:
        return math.log2(k) ** 2 / (epsilon * rows) + (1 / width + tail) / k
    noise = k ** (1 - 1 / dimensions) / (epsilon * rows)
    return noise + (1 / width + tail) * k ** (-1 / dimensions)


def pmm_rate(rows: int, epsilon: float, *, dimensions: int) -> float:
    """Table 1, PMM: log^2(epsilon n) / (epsilon n), or (epsilon n)^(-1/d) for d >= 2.

    The table's print of the first for d = 1 is He, Vershynin and Zhu's.
    """
    effective = epsilon * rows
    if dimensions == 1:
        return math.log2(effective) ** 2 / effective
    return effective ** (-1 / dimensions)


def srrw_rate(rows: int, epsilon: float, *, dimensions: int) -> float:
    """Table 1, SRRW: (log^(3/2)(epsilon n) / (epsilon n))^(1/d)."""
    effective = epsilon * rows
    return (math.log2(effective) ** 1.5 / effective) ** (1 / dimensions)


def smooth_rate(rows: int, epsilon: float, *, dimensions: int, order: int) -> float:
    """Table 1, Smooth (Wang et al.): epsilon^-1 n^(-K / (2d + K)), queries smooth to order K."""
    return rows ** (-order / (2 * dimensions + order)) / epsilon
