"""Methods of papers, as lines of the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from benchmarks.accuracy import linear, partitions
from benchmarks.accuracy.cases import Answers, Case, Privacy
from benchmarks.accuracy.method import Absent, Method, Origin
from dpcore.arrays import Floats

Estimate = Callable[[np.random.Generator, Floats, Privacy], Floats]


def _run(
    name: str, estimate: Estimate, case: Case, numbers: Sequence[int]
) -> list[Mapping[str, Answers]]:
    counts = case.counts.astype(float)
    found: list[Mapping[str, Answers]] = []
    for number in numbers:
        text = f"{name} {case.data.name} {case.rows} {case.privacy} {number}"
        rng = np.random.default_rng([*text.encode()])
        found.append({"": Answers(prefixes=estimate(rng, counts, case.privacy).cumsum())})
    return found


def _pure(
    estimate: Callable[[np.random.Generator, Floats, float], Floats],
    rng: np.random.Generator,
    counts: Floats,
    privacy: Privacy,
) -> Floats:
    if not privacy.is_pure:
        raise Absent("is for epsilon")
    return estimate(rng, counts, privacy.value)


_ESTIMATES: Mapping[str, Estimate] = {
    "Identity": linear.identity,
    "Uniform": linear.uniform,
    "HB": linear.hierarchical,
    "Privelet": linear.wavelet,
    "GreedyH": partial(_pure, partitions.greedy),
    "DAWA": partial(_pure, partitions.dawa),
    "AHP": partial(_pure, partitions.ahp),
    "MWEM": partial(_pure, partitions.mwem),
}
PAPERS = tuple(
    Method(name=name, origin=Origin.PAPER, run=partial(_run, name, estimate))
    for name, estimate in _ESTIMATES.items()
)
