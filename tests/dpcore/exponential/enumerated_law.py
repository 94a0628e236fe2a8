"""The whole law of the quantiles that are chosen of tiny histograms, by running every choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from math import prod
from unittest.mock import patch

import numpy as np

from benchmarks.audit.choices import flip_law, weight_law
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.exponential import choice as places
from dptrees.dpcore.exponential import quantiles
from dptrees.dpcore.exponential.choice import Chosen
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.exponential.quantiles import ChosenQuantiles
from dptrees.dpcore.noise.randomness import RandomStream

# Places of a cell where a quantile parts the rows: as few as may show a fault.
STEPS, DOUBLINGS = 2, 1

Law = dict[tuple[tuple[int, ...], tuple[float, ...]], Fraction]


def _flip_of_part(weights: list[Fraction], number: int, mass: int) -> Fraction:
    """The probability of so many successes, including one candidate that is then chosen."""
    found = Fraction(0)
    others = [place for place in range(len(weights)) if place != number]
    for also in combinations(others, mass - 1):
        chances = [weights[each] if each in also else 1 - weights[each] for each in others]
        found += weights[number] * prod(chances, start=Fraction(1)) / mass
    return found


class Choices:
    """A run of the code in which every choice is prescribed, as far as they go; then the first."""

    def __init__(self, prescribed: list[int]) -> None:
        self.made: list[tuple[int, list[Fraction]]] = []
        self._prescribed = prescribed

    def by_weight(self, weights: Floats, stream: RandomStream | None) -> Chosen:
        own = [Fraction(float(each)) for each in weights]
        return Chosen(self._next(weight_law(own)), int(sum(own) * 2**124))

    def by_flips(self, weights: Floats, stream: RandomStream | None) -> Chosen:
        return Chosen(self._next(flip_law([Fraction(float(each)) for each in weights])), 1)

    def part_by_mass(self, masses: Sequence[int], stream: RandomStream | None) -> int:
        return self._next(weight_law([Fraction(each) for each in masses]))

    def by_flips_of_part(self, weights: Floats, stream: RandomStream | None) -> Chosen:
        """With how many successes; the last: none."""
        own = [Fraction(float(each)) for each in weights]
        pairs = [(number, mass) for number in range(len(own)) for mass in range(1, len(own) + 1)]
        law = [_flip_of_part(own, *pair) for pair in pairs]
        choice = self._next([*law, 1 - sum(law)])
        return Chosen(*pairs[choice]) if choice < len(pairs) else Chosen(0, 0)

    def _next(self, law: list[Fraction]) -> int:
        number = len(self.made)
        first = next(place for place, chance in enumerate(law) if chance)
        choice = self._prescribed[number] if number < len(self._prescribed) else first
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
            for other in range(choice + 1, len(law)):
                if law[other]:
                    return [*(each for each, _ in made), other]
        return None


def _in_parts(run: Choices) -> Callable[..., Chosen]:
    """The choice of a cell where a part has but a part of the cells; ends are chosen as ever."""
    choose_cell = quantiles._cell

    def chosen(*given: object) -> Chosen:
        with patch.object(quantiles, "flipped", run.by_flips_of_part):
            return choose_cell(*given)  # type: ignore[arg-type]

    return chosen


def _runs(
    choose: Callable[[], ChosenQuantiles], levels: int, *, in_parts: bool
) -> Iterator[tuple[Choices, ChosenQuantiles]]:
    prescribed: list[int] | None = []
    places._turns.cache_clear()
    while prescribed is not None:
        run = Choices(prescribed)
        with (
            patch.object(places, "STEPS", STEPS),
            patch.object(places, "DOUBLINGS", DOUBLINGS),
            patch.object(places, "LEVELS", levels),
            patch.object(places, "weighed", run.by_weight),
            patch.object(quantiles, "weighed", run.by_weight),
            patch.object(quantiles, "flipped", run.by_flips),
            patch.object(quantiles, "part_by_mass", run.part_by_mass),
            patch.object(quantiles, "_cell", _in_parts(run) if in_parts else quantiles._cell),
        ):
            yield run, choose()
        prescribed = run.following()
    places._turns.cache_clear()


def enumerated_law(
    counts: tuple[int, ...],
    plan: ExponentialPlan,
    levels: int = 1,
    choose: Callable[[], ChosenQuantiles] | None = None,
) -> Law:
    """The exact probability of every outcome: the cells of the quantiles, and of the
    ends of their intervals, and the shares below.

    Args:
        counts: of the cells.
        plan: of the quantiles.
        levels: of places.
        choose: chooses among them in parts; None: all at once.
    """

    def at_once() -> ChosenQuantiles:
        return quantiles.chosen_quantiles(np.array(counts, np.int64), plan, RandomStream(bytes(32)))

    law: Law = {}
    for run, found in _runs(choose or at_once, levels, in_parts=choose is not None):
        ends = () if found.ends is None else tuple(found.ends.reshape(-1).tolist())
        outcome = (*found.cells.tolist(), *ends), tuple(found.shares.tolist())
        law[outcome] = law.get(outcome, Fraction(0)) + run.probability
    assert sum(law.values()) == 1
    return {outcome: chance for outcome, chance in law.items() if chance}
