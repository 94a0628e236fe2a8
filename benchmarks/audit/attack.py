"""What an attacker learns from released numbers alone: a lower bound of the loss.

Releases of two neighboring data sets are made again and again, each with a key of its own. On one
half of them the attack looks for an event that distinguishes the two: each released number by
itself, a linear statistic of all, and the sum of the log ratios of each number's frequencies, above
or below the best threshold. On the other half it is counted how often the event happens; Clopper
and Pearson bound both probabilities, and these bound what is lost. The halves are independent, so
the bound holds whatever was looked for.

Sources: Clopper, Pearson 1934; Jagielski, Ullman, Oprea 2020 (audits by hypothesis tests).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from scipy import stats

from benchmarks.audit.recording import LAWS
from benchmarks.audit.targets import TARGETS, Claim
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.marginals.plan import MarginalsPlan
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.selection.plan import SelectionPlan
from dptrees.dpcore.unit_bounds.plan import BoundPlan

# What may be wrong, and by how much it shrinks a scale (of Gaussian noise, sigma).
NOTHING = "nothing"
SMALL_NOISE = "noise 30 % too small"
TWO_BUDGETS = "budget counted twice"
TWO_ROWS = "one row counted twice"
TWENTY_BUDGETS = "budget counted twenty times"  # seen in a few hundred releases
SIDES = ("one", "two")
FAULTS = (NOTHING, SMALL_NOISE, TWO_BUDGETS, TWO_ROWS)
# Thresholds that are tried of each statistic.
_THRESHOLDS = 60
# Groups of a number's values, whose frequencies are learned.
_GROUPS = 16
_RELEASES_AT_ONCE = 1000


@contextmanager
def smaller_noise(factor: Callable[[Any], Fraction]) -> Iterator[None]:
    """While this lasts, all noise is of the law whose scale is multiplied by ``factor(law)``."""
    with ExitStack() as stack:
        inside = [False]  # a truncated law draws from another law, which is not to shrink again
        for law_type in LAWS:
            own = law_type.sample

            def sample(law: Any, stream: Any, size: int, own: Any = own) -> Any:
                if inside[0]:
                    return own(law, stream, size)
                inside[0] = True
                try:
                    return own(_scaled(law, factor(law)), stream, size)
                finally:
                    inside[0] = False

            stack.enter_context(patch.object(law_type, "sample", sample))
        # Choices by weight add no noise: their rate is what a scale is the inverse of.
        one = DiscreteLaplace(scale=Fraction(1))
        for plan_type, name in ((ExponentialPlan, "rate"), (MarginalsPlan, "choice_rate")):
            stack.enter_context(
                patch.object(plan_type, name, _faster(plan_type, name, factor(one)))
            )
        rate = BoundPlan.__dict__["rate"].func
        faster = property(lambda plan: rate(plan) / factor(one))
        stack.enter_context(patch.object(BoundPlan, "rate", faster))
        # A coin that decides about a key has an epsilon in place of a scale.
        law = SelectionPlan.__dict__["law"].func
        bolder = lambda plan: replace(law(plan), epsilon=law(plan).epsilon / factor(one))  # noqa: E731
        stack.enter_context(patch.object(SelectionPlan, "law", property(bolder)))
        yield


def _faster(plan_type: type, name: str, factor: Fraction) -> Callable[[Any, Any], Fraction]:
    """A plan's method that gives the rate of a choice, with a rate divided by a factor."""
    rate = getattr(plan_type, name)
    return lambda plan, choice: rate(plan, choice) / factor


def _scaled(law: Any, factor: Fraction) -> Any:
    if isinstance(law, DiscreteGaussian):
        return replace(law, sigma_squared=law.sigma_squared * factor)
    return replace(law, scale=law.scale * factor)


def _factor(law: Any, fault: str) -> Fraction:
    """By which a scale, or sigma^2, is multiplied."""
    if fault == SMALL_NOISE:
        return Fraction(7, 10) ** (2 if isinstance(law, DiscreteGaussian) else 1)
    return {TWO_BUDGETS: Fraction(1, 2), TWENTY_BUDGETS: Fraction(1, 20)}.get(fault, Fraction(1))


def released(kind: str, fault: str, which: str, releases: int, first: int = 0) -> Floats:
    """The released numbers of independent releases of a data set, (releases, numbers).

    Args:
        kind: of `TARGETS`.
        fault: of `FAULTS`, or `TWENTY_BUDGETS`.
        which: "one" or "two".
        releases: how many, each with a key of its own, the same whenever they are made again.
        first: the number of the first of them.
    """
    target = TARGETS[kind]()
    data = "twice" if fault == TWO_ROWS and which == "two" else which
    with smaller_noise(lambda law: _factor(law, fault)):
        return np.array(
            [
                target.released(data, key)
                for key in _keys(f"{kind}, {fault}, {which}", first, releases)
            ]
        )


def _keys(name: str, first: int, count: int) -> Iterator[ReleaseKey]:
    for number in range(first, first + count):
        yield ReleaseKey(hashlib.sha256(f"audit of {name}: {number}".encode()).digest())


# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Statistics of released numbers, learned from releases of two data sets.

    Args:
        weights: (numbers,) of the linear one.
        values: of each number, the values that it took, rising, (n,).
        ratios: of each number, the log ratio of the frequencies of these, (n,).
    """

    weights: Floats
    values: tuple[Floats, ...]
    ratios: tuple[Floats, ...]

    @classmethod
    def learned(cls, one: Floats, two: Floats) -> Statistics:
        """From (releases, numbers) of each data set."""
        spread = np.atleast_2d(np.cov(np.concatenate([one - one.mean(0), two - two.mean(0)]).T))
        ridge = 1e-6 * max(1.0, float(np.trace(spread))) * np.eye(one.shape[1])
        weights = np.linalg.solve(spread + ridge, two.mean(0) - one.mean(0))
        columns = [_log_ratios(a, b) for a, b in zip(one.T, two.T, strict=True)]
        return cls(
            weights=weights,
            values=tuple(values for values, _ in columns),
            ratios=tuple(ratios for _, ratios in columns),
        )

    def of(self, numbers: Floats) -> Floats:
        """(releases, statistics) of (releases, numbers)."""
        columns = zip(numbers.T, self.values, self.ratios, strict=True)
        ratios = [
            own[np.clip(np.searchsorted(values, column), 0, len(values) - 1)]
            for column, values, own in columns
        ]
        # Each number's two columns, estimate and integer, show nearly the same: also the half.
        half = len(ratios) // 2
        sums = [np.sum(ratios, axis=0), np.sum(ratios[: max(1, half)], axis=0)]
        return np.column_stack([numbers, numbers @ self.weights, *sums])


def _log_ratios(one: Floats, two: Floats) -> tuple[Floats, Floats]:
    """The values that a number took, in a few groups, and the log ratio of each; 0 for a number
    that does not distinguish the two, whose ratios would be chance."""
    together = np.sort(np.concatenate([one, two]))
    values = np.unique(together)
    if len(values) > _GROUPS:
        values = np.unique(together[np.linspace(0, len(together) - 1, _GROUPS).astype(int)])
    places = [np.searchsorted(values, np.minimum(each, values[-1])) for each in (one, two)]
    counts = np.array([np.bincount(own, minlength=len(values)) for own in places])
    seen = counts[:, counts.sum(axis=0) > 0]
    differs = seen.shape[1] > 1 and stats.chi2_contingency(seen).pvalue < 1e-3
    ratios = np.log(counts[1] + 3.0) - np.log(counts[0] + 3.0)
    return values, ratios if differs else np.zeros(len(values))


@dataclass(frozen=True, kw_only=True)
class Event:
    """A statistic at or above a threshold, or below it.

    Args:
        statistics: learned before.
        number: which one.
        threshold: of it.
        above: the event; likelier on the second data set.
    """

    statistics: Statistics
    number: int
    threshold: float
    above: bool

    def happens(self, numbers: Floats) -> npt.NDArray[np.bool_]:
        """(releases,) for (releases, numbers)."""
        found = self.statistics.of(numbers)[:, self.number] >= self.threshold
        return found if self.above else ~found


def limits(hits: int, runs: int, alarm: float) -> tuple[float, float]:
    """Clopper and Pearson: the probability is below the first, or above the second, with a
    probability of at most ``alarm`` each.

    >>> limits(0, 100, 0.05)[1] < 0.03, limits(100, 100, 0.05)[0] > 0.97
    (True, True)
    """
    low = float(stats.beta.ppf(alarm, hits, runs - hits + 1)) if hits else 0.0
    high = float(stats.beta.isf(alarm, hits + 1, runs - hits)) if hits < runs else 1.0
    return low, high


def chosen_event(claim: Claim, one: Floats, two: Floats, alarm: float) -> tuple[Event, bool]:
    """The event with the largest bound, and whether it is likelier on the second data set."""
    learned = Statistics.learned(one, two)
    pair = learned.of(one), learned.of(two)
    best: tuple[float, Event, bool] | None = None
    for number in range(pair[0].shape[1]):
        columns = [each[:, number] for each in pair]
        values = np.unique(np.concatenate(columns))
        if len(values) > _THRESHOLDS:
            values = np.quantile(np.concatenate(columns), np.linspace(0.02, 0.98, _THRESHOLDS))
        for threshold in values.tolist():
            reached = [int((column >= threshold).sum()) for column in columns]
            for above in (True, False):
                hits = reached if above else [len(one) - reached[0], len(two) - reached[1]]
                for second in (True, False):
                    found = _bound(claim, hits, (len(one), len(two)), second, alarm)
                    if best is None or found > best[0]:
                        event = Event(
                            statistics=learned, number=number, threshold=threshold, above=above
                        )
                        best = found, event, second
    assert best is not None
    return best[1:]


def _bound(
    claim: Claim, hits: Sequence[int], runs: Sequence[int], second: bool, alarm: float
) -> float:
    likelier, unlikelier = (1, 0) if second else (0, 1)
    low = limits(hits[likelier], runs[likelier], alarm)[0]
    high = limits(hits[unlikelier], runs[unlikelier], alarm)[1]
    return claim.lower_bound(low, high)


def lower_bound(claim: Claim, one: Floats, two: Floats, alarm: float) -> float:
    """A bound of what is lost between two data sets, too large with a probability of ``alarm``.

    Args:
        claim: in whose measure.
        one, two: (releases, numbers) of each data set, independent.
        alarm: the probability that the bound does not hold, at most.
    """
    half = len(one) // 2
    # Two limits may fail.
    event, second = chosen_event(claim, one[:half], two[:half], alarm / 2)
    hits = [int(event.happens(each[half:]).sum()) for each in (one, two)]
    runs = [len(each) - half for each in (one, two)]
    return _bound(claim, hits, runs, second, alarm / 2)


# --- all of them ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What was found of one kind of release.

    Attributes:
        kind: of `TARGETS`.
        fault: of `FAULTS`.
        claim: of the release.
        found: the lower bound of what is lost.
        releases: of each data set.
        alarm: the probability that the bound does not hold, at most.
    """

    kind: str
    fault: str
    claim: Claim
    found: float
    releases: int
    alarm: float

    @property
    def is_rejected(self) -> bool:
        """Whether the claim is seen to be false."""
        return self.found > self.claim.amount


def attacks(
    releases: int,
    alarm: float,
    kinds: Sequence[str] = tuple(TARGETS),
    faults: Sequence[str] = FAULTS,
) -> list[Attack]:
    """Attacks on every kind, correct and with planted faults.

    Args:
        releases: of each of the two data sets, but of kinds that take longer.
        alarm: the probability that any of the bounds does not hold, at most, also where the kinds
            are attacked in several runs.
        kinds: of `TARGETS`.
        faults: of `FAULTS`.
    """
    each = alarm / (len(TARGETS) * len(FAULTS))
    wanted = list(
        dict.fromkeys(
            _source(kind, fault, which) for kind in kinds for fault in faults for which in SIDES
        )
    )
    many = {kind: releases // TARGETS[kind]().cost for kind in kinds}
    jobs = [
        (*source, min(_RELEASES_AT_ONCE, many[source[0]] - start), start)
        for source in wanted
        for start in range(0, many[source[0]], _RELEASES_AT_ONCE)
    ]
    workers = min(2, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        parts = pool.map(released, *zip(*jobs, strict=True))
        numbers = {source: _gathered(parts, many[source[0]]) for source in wanted}
    found = []
    for kind in kinds:
        claim = TARGETS[kind]().claim
        for fault in faults:
            one, two = (numbers[_source(kind, fault, which)] for which in SIDES)
            bound = lower_bound(claim, one, two, each)
            found.append(
                Attack(
                    kind=kind,
                    fault=fault,
                    claim=claim,
                    found=bound,
                    releases=many[kind],
                    alarm=each,
                )
            )
    return found


def _source(kind: str, fault: str, which: str) -> tuple[str, str, str]:
    """The releases that serve: a row that is not there is not counted twice."""
    return (kind, NOTHING, which) if fault == TWO_ROWS and which == "one" else (kind, fault, which)


def _gathered(parts: Iterator[Floats], releases: int) -> Floats:
    number = -(-releases // _RELEASES_AT_ONCE)
    return np.concatenate([next(parts) for _ in range(number)])
