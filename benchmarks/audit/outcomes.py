"""Two laws of what is released, given outcome by outcome, and how far apart they are.

delta(epsilon) = max over the two directions of sum_o max(0, P(o) - exp(epsilon) Q(o)), and epsilon
at a delta is the least that keeps it. Outcomes that no other data set has count in full.

Source: Dwork, Roth 2014, Definition 2.4, in the form of Balle, Wang 2018 (the hockey-stick
divergence).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping

import numpy as np

from dptrees.dpcore.arrays import Floats

Outcomes = Mapping[Hashable, float]
# Two losses that differ by rounding are one.
_DIGITS = 11


class PrivacyLoss:
    """The privacy loss of one or of several independent draws.

    Attributes:
        losses: log P / Q, (n,), rising.
        masses: P of each, (n,).
        beyond: P of outcomes that Q does not have.

    >>> loss = PrivacyLoss.between({0: 0.75, 1: 0.25}, {0: 0.25, 1: 0.75})
    >>> round(loss.delta(0.0), 9), round(loss.delta(math.log(3)), 9)
    (0.5, 0.0)
    """

    def __init__(self, losses: Floats, masses: Floats, beyond: float) -> None:
        rounded, place = np.unique(np.round(losses, _DIGITS), return_inverse=True)
        self.losses, self.beyond = rounded, beyond
        self.masses = np.bincount(place, masses, rounded.size)

    @classmethod
    def between(cls, one: Outcomes, two: Outcomes) -> PrivacyLoss:
        """The loss of outcomes of law ``one`` against law ``two``."""
        shared = [outcome for outcome, mass in one.items() if mass and two.get(outcome, 0.0)]
        masses = np.array([one[outcome] for outcome in shared], np.float64)
        losses = np.log(masses) - np.log([two[outcome] for outcome in shared])
        beyond = math.fsum(mass for outcome, mass in one.items() if not two.get(outcome, 0.0))
        return cls(losses, masses, beyond)

    @classmethod
    def composed(cls, parts: Iterable[PrivacyLoss]) -> PrivacyLoss:
        """The loss of independent draws together."""
        whole = cls(np.zeros(1), np.ones(1), 0.0)
        for each in parts:
            losses = np.add.outer(whole.losses, each.losses).reshape(-1)
            masses = np.multiply.outer(whole.masses, each.masses).reshape(-1)
            beyond = whole.beyond + (1 - whole.beyond) * each.beyond
            whole = cls(losses, masses, beyond)
        return whole

    def delta(self, epsilon: float) -> float:
        """The least delta at an epsilon, of this direction."""
        over = self.losses > epsilon
        excess = -np.expm1(epsilon - self.losses[over])
        return float(self.masses[over] @ excess) + self.beyond

    def epsilon(self, delta: float) -> float:
        """The least epsilon at a delta, of this direction; infinite if there is none."""
        if self.beyond > delta:
            return math.inf
        low, high = 0.0, max(0.0, float(self.losses.max(initial=0.0)))
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high
