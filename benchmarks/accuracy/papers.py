"""Methods of papers, as lines of the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from benchmarks.accuracy import linear, partitions
from benchmarks.accuracy.cases import Answers, Case, Privacy
from benchmarks.accuracy.method import ANY_TREE, Absent, Method, Origin, Tree
from dptrees.dpcore.arrays import Floats

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
# Others are for ranges, and some of them take a matrix of all cells.
_ALSO_FOR_NODES = ("Identity", "Uniform", "HB", "Privelet", "AHP")


def _level_run(case: Case, numbers: Sequence[int]) -> list[Mapping[str, Answers]]:
    """An equal share of the budget on every level, every count as it was measured."""
    found: list[Mapping[str, Answers]] = []
    for number in numbers:
        rng = np.random.default_rng([*f"levels {case.rows} {case.privacy} {number}".encode()])
        nodes = {}
        for name, starts in case.data.levels.items():
            exact = np.add.reduceat(case.counts, starts).astype(float)
            nodes[name] = linear.identity(rng, exact, case.privacy, len(case.data.levels))
        found.append({"": Answers(nodes=nodes)})
    return found


PAPERS = (
    *(
        Method(
            name=name,
            origin=Origin.PAPER,
            run=partial(_run, name, estimate),
            trees=ANY_TREE if name in _ALSO_FOR_NODES else frozenset({Tree.ORDERED}),
        )
        for name, estimate in _ESTIMATES.items()
    ),
    Method(
        name="equal split",
        origin=Origin.PAPER,
        run=_level_run,
        trees=frozenset({Tree.HIERARCHY}),
    ),
)
