"""The whole law of the quantiles that are chosen of tiny histograms, by running every choice."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from unittest.mock import patch

import numpy as np

from dpcore.arrays import Floats
from dpcore.exponential import choosing, places
from dpcore.exponential.plan import ExponentialPlan
from dpcore.noise.randomness import RandomStream

# Places of a cell where a quantile parts the rows: as few as may show a fault.
STEPS, DOUBLINGS = 2, 1

Law = dict[tuple[tuple[int, ...], tuple[float, ...]], Fraction]


def flip_law(weights: list[Fraction]) -> list[Fraction]:
    """The probability of each candidate by permute-and-flip: it succeeds, and is the one of all
    successes that is chosen.

    >>> [str(each) for each in flip_law([Fraction(1), Fraction(1, 2)])]
    ['3/4', '1/4']
    """
    found = []
    for own, weight in enumerate(weights):
        others = [Fraction(1)]  # the probability of so many other successes
        for other, chance in enumerate(weights):
            if other == own:
                continue
            more = [each * chance for each in others]
            fewer = [each * (1 - chance) for each in others]
            others = [
                a + b for a, b in zip([*fewer, Fraction(0)], [Fraction(0), *more], strict=True)
            ]
        found.append(weight * sum(each / (number + 1) for number, each in enumerate(others)))
    return found


def weight_law(weights: list[Fraction]) -> list[Fraction]:
    """The probability of each candidate by the exponential mechanism."""
    total = sum(weights)
    return [weight / total for weight in weights]


class _Choices:
    """A run of the code in which every choice is prescribed, as far as they go; then the first."""

    def __init__(self, prescribed: list[int]) -> None:
        self.made: list[tuple[int, list[Fraction]]] = []
        self._prescribed = prescribed

    def by_weight(self, weights: Floats, stream: RandomStream | None) -> int:
        return self._next(weight_law([Fraction(float(each)) for each in weights]))

    def by_flips(self, weights: Floats, stream: RandomStream | None) -> int:
        return self._next(flip_law([Fraction(float(each)) for each in weights]))

    def _next(self, law: list[Fraction]) -> int:
        number = len(self.made)
        choice = self._prescribed[number] if number < len(self._prescribed) else 0
        self.made.append((choice, law))
        return choice

    @property
    def probability(self) -> Fraction:
        product = Fraction(1)
        for choice, law in self.made:
            product *= law[choice]
        return product

    def following(self) -> list[int] | None:
        """The prescription of the next run, in the order of a tree; None after the last."""
        made = list(self.made)
        while made:
            choice, law = made.pop()
            if choice + 1 < len(law):
                return [*(each for each, _ in made), choice + 1]
        return None


def _runs(
    counts: tuple[int, ...], plan: ExponentialPlan, levels: int
) -> Iterator[tuple[_Choices, object]]:
    prescribed: list[int] | None = []
    places._turns.cache_clear()
    while prescribed is not None:
        run = _Choices(prescribed)
        with (
            patch.object(places, "STEPS", STEPS),
            patch.object(places, "DOUBLINGS", DOUBLINGS),
            patch.object(places, "LEVELS", levels),
            patch.object(places, "chosen_by_weight", run.by_weight),
            patch.object(choosing, "chosen_by_weight", run.by_weight),
            patch.object(choosing, "permuted_and_flipped", run.by_flips),
        ):
            stream = RandomStream(bytes(32))
            yield run, choosing.chosen_quantiles(np.array(counts, np.int64), plan, stream)
        prescribed = run.following()
    places._turns.cache_clear()


def enumerated_law(counts: tuple[int, ...], plan: ExponentialPlan, levels: int = 1) -> Law:
    """The exact probability of every outcome: the cells of the quantiles and the shares below."""
    law: Law = {}
    for run, found in _runs(counts, plan, levels):
        outcome = tuple(found.cells.tolist()), tuple(found.shares.tolist())  # type: ignore[attr-defined]
        law[outcome] = law.get(outcome, Fraction(0)) + run.probability
    assert sum(law.values()) == 1
    return law
