"""The exact law of the estimates that counts between thresholds give.

What a search releases depends on its noise through comparisons alone: of a noisy largest count with
a noisy threshold, and of a node's noisy count with the acceptance. So the release's own code is run
once for every sequence of answers that there can be, with the answers prescribed, and each run has
the probability of its answers: the noise of a threshold is summed over, as all comparisons with it
share it. Runs that release the same are one outcome. That the probabilities of all outcomes add up
to 1 shows that none was left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.audit.outcomes import PrivacyLoss
from benchmarks.audit.recording import NamedStream, Noise, exchanged_samples
from benchmarks.audit.rows import (
    Integers,
)
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.levels.thresholds import ThresholdMechanism
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace

# Thresholds are distinguished by multiples of this, larger than every count and threshold here.
_SPREAD = 2**40
# Noise of a threshold beyond this many scales is left out: a part of 1e-17.
_REACH = 40


# --- one run with prescribed answers --------------------------------------------------------------


class Noisy(np.ndarray[Any, Any]):
    """Exact counts whose noise was not drawn: comparisons with them are prescribed."""

    compared: Any

    def __array_finalize__(self, origin: Any) -> None:
        self.compared = getattr(origin, "compared", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc is not np.greater_equal or inputs[0] is not self or options:
            raise TypeError(f"noisy counts are used otherwise than by comparing them: {ufunc}")
        return self.compared(np.asarray(self).view(np.ndarray), inputs[1])


@dataclass(kw_only=True)
class Run:
    """One run of a search.

    Attributes:
        answers: prescribed; where they end, the first that is possible is given and added.
        choices: how many answers were possible at each place.
        thresholds: (law, value) of each that was drawn.
        comparisons: for each threshold, the (law, count, answer) of all comparisons with it.
        probability: of the answers of looks at nodes.
    """

    answers: list[int]
    choices: list[int] = field(default_factory=list)
    thresholds: list[tuple[DiscreteLaplace, int]] = field(default_factory=list)
    comparisons: dict[int, list[tuple[DiscreteLaplace, int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    probability: float = 1.0

    def drawn(self, law: Any, stream: NamedStream, size: int) -> Noise:
        """In place of noise: what shows to which counts it is added."""

        def added(exact: Any, noise: Integers) -> Any:
            if np.ndim(exact) == 0:
                return self._new_thresholds(law, int(exact), size)
            noisy = np.asarray(exact, np.int64).copy().view(Noisy)
            noisy.compared = lambda counts, limit: self._compared(law, counts, limit)
            return noisy

        return Noise.of(np.zeros(size, np.int64), added)

    def _new_thresholds(self, law: Any, value: int, size: int) -> Integers:
        first = len(self.thresholds)
        self.thresholds += [(law, value)] * size
        return value + _SPREAD * np.arange(first, first + size, dtype=np.int64)

    def _compared(self, law: Any, counts: Integers, limits: Any) -> npt.NDArray[np.bool_]:
        if np.ndim(limits) == 0:
            found = [self._looked(law, count, int(limits)) for count in counts.tolist()]
        else:
            pairs = zip(counts.tolist(), limits.tolist(), strict=True)
            found = [self._searched(law, count, limit) for count, limit in pairs]
        return np.array(found, dtype=np.bool_)

    def _searched(self, law: Any, count: int, limit: int) -> int:
        number = round(limit / _SPREAD)
        assert limit - number * _SPREAD == self.thresholds[number][1]
        answer = self._next([0, 1])
        self.comparisons[number].append((law, count, answer))
        return answer

    def _looked(self, law: TruncatedLaplace, count: int, acceptance: int) -> int:
        above = _at_least(law, acceptance - count)
        masses = {answer: mass for answer, mass in ((0, 1 - above), (1, above)) if mass > 0}
        answer = self._next(list(masses))
        self.probability *= masses[answer]
        return answer

    def _next(self, possible: list[int]) -> int:
        place = len(self.choices)
        self.choices.append(len(possible))
        if place == len(self.answers):
            self.answers.append(0)
        return possible[self.answers[place]]

    @property
    def total(self) -> float:
        """The probability of all answers."""
        stages = (
            _stage_probability(*self.thresholds[number], tuple(comparisons))
            for number, comparisons in self.comparisons.items()
        )
        return self.probability * math.prod(stages)

    def following(self) -> list[int] | None:
        """The answers of the next run; None after the last."""
        answers = list(self.answers[: len(self.choices)])
        while answers and answers[-1] + 1 == self.choices[len(answers) - 1]:
            answers.pop()
        if not answers:
            return None
        return [*answers[:-1], answers[-1] + 1]


@lru_cache(maxsize=4096)
def _at_least(law: TruncatedLaplace, least: int) -> float:
    """P(X >= least), from the definition of the law; exactly 0 or 1 beyond the radius."""
    if least > law.radius or least <= -law.radius:
        return float(least <= 0)
    rate = float(1 / law.scale)
    weights = {n: math.exp(-rate * abs(n)) for n in range(-law.radius, law.radius + 1)}
    above = math.fsum(weight for n, weight in weights.items() if n >= least)
    return above / math.fsum(weights.values())


@lru_cache(maxsize=2**16)
def _stage_probability(
    law: DiscreteLaplace, value: int, comparisons: tuple[tuple[DiscreteLaplace, int, int], ...]
) -> float:
    """P(all comparisons with one noisy threshold come out as they did)."""
    reach = math.ceil(_REACH * law.scale)
    noise = np.arange(-reach, reach + 1)
    rate = float(1 / law.scale)
    masses = np.exp(-rate * np.abs(noise)) * math.tanh(rate / 2)
    for query, count, answer in comparisons:
        reaches = _tail(query, value + noise - count)
        masses = masses * (reaches if answer else _tail(query, count - value - noise + 1))
    return math.fsum(masses.tolist())


def _tail(law: DiscreteLaplace, least: Integers) -> Floats:
    """P(X >= least)."""
    rate = float(1 / law.scale)
    weight = np.exp(-rate * np.abs(np.where(least > 0, least, 1 - least))) / (1 + math.exp(-rate))
    return np.where(least > 0, weight, 1 - weight)


# --- the law of the release -----------------------------------------------------------------------


class _AnySource:
    """In place of the source of noise: the exchanged samplers draw no bits."""

    def for_counts(self, counts: Integers) -> _AnySource:
        return self

    def stream(self, *place: Any) -> NamedStream:
        return NamedStream(place, RandomStream(bytes(32)))


def estimates_law(
    question: HierarchyQuestion[ThresholdMechanism], counts: Integers
) -> dict[bytes, float]:
    """The probability of every release of a tree with these exact counts, over all its keys."""
    found: dict[bytes, float] = defaultdict(float)
    for run, released in _runs(question, counts):
        found[released] += run.total
    assert abs(math.fsum(found.values()) - 1) < 1e-9, "some sequence of answers was left out"
    return dict(found)


def _runs(
    question: HierarchyQuestion[ThresholdMechanism], counts: Integers
) -> Iterator[tuple[Run, bytes]]:
    answers: list[int] | None = []
    chunks = list(question.forest.chunking)
    while answers is not None:
        run = Run(answers=answers)
        with exchanged_samples(run.drawn):
            levels = [
                question.forest.measure(
                    question.name,
                    chunk,
                    counts[chunk.start : chunk.start + chunk.leaves],
                    _AnySource(),  # type: ignore[arg-type]
                )
                for chunk in chunks
            ]
        yield run, b"".join(np.asarray(each).tobytes() for level in levels for each in level)
        answers = run.following()


def threshold_loss(
    question: HierarchyQuestion[ThresholdMechanism], one: Integers, two: Integers, delta: float
) -> float:
    """The epsilon at a delta between the releases of two tables, the larger of both directions."""
    laws = [estimates_law(question, counts) for counts in (one, two)]
    return max(PrivacyLoss.between(*pair).epsilon(delta) for pair in (laws, laws[::-1]))
