"""Every mechanism holds the sums that a table of 2^40 rows can give it, or refuses the noisy sum.

By tables that list all kinds and all modules that draw noise, so that a new one cannot be left out.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.factorised.mechanism import FactorizedForest
from dptrees.dpcore.noise.laws import ZeroNoise
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import (
    LARGEST_DIVIDED,
    LARGEST_MEASURED,
    MAX_COUNT,
    LargeSumError,
    add_noise,
)
from dptrees.dpcore.numbers import MeanWorkload
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.questions.released import StatisticKind
from dptrees.dpcore.release.released import release_counts, release_rows
from dptrees.dpcore.series.temporal import Span
from tests.dpcore.factorised.test_forest import STRATEGIES, make_plan, planted, source
from tests.dpcore.hierarchy_questions import hierarchy_question, make_release_plan
from tests.dpcore.series.test_question import one_level
from tests.dpcore.series_runs import EXACT, Runs
from tests.order import PROJECT
from tests.transforms.every_kind import PLANS, ROW, ROWS, SUMS

KEY = ReleaseKey(bytes(32))
# What a row adds to a noisy number at most, where that is not 1, and the largest such number.
MOVED = {
    "sums": (max(-SUMS.lower, SUMS.upper), LARGEST_MEASURED),
    "mean": (29, LARGEST_DIVIDED),
    "factorised": (2**13, LARGEST_DIVIDED),
}
# Modules that draw without `add_noise`, whose numbers a refusal cannot be for.
DRAWING = {
    "noise/source.py": "add_noise itself",
    "noise/truncated_laplace.py": "a law made of another one",
    "thresholds/sparse_vector.py": "decisions, of counts that are at most 2^40",
    "papers/ghazi.py": "algorithms as published, which no release runs",
    "uniform/intervals.py": "simulated noise, of no data",
    "sketched/workload.py": "the same, for a predicted error",
    "irregular/empty_leaves.py": "the same, of rows that are assumed",
    "tables/released.py": "synthetic rows",
}


def test_noise_is_added_in_one_place() -> None:
    found = set()
    for path in sorted((PROJECT / "dpcore").glob("**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == "sample":
                found.add(str(path.relative_to(PROJECT / "dpcore")))
    assert found == set(DRAWING)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """The largest exact number that gets noise, by the largest noisy one that is released."""
    result: dict[int, int] = defaultdict(int)

    def recorded(law: Any, counts: Integers, stream: Any, largest: int = LARGEST_MEASURED) -> Any:
        result[largest] = max(result[largest], int(np.abs(counts).max(initial=0)))
        return add_noise(law, counts, stream, largest=largest)

    for name, module in list(sys.modules.items()):
        if name.startswith("dptrees.dpcore") and getattr(module, "add_noise", None) is add_noise:
            monkeypatch.setattr(module, "add_noise", recorded)
    return result


@pytest.mark.parametrize("kind", PLANS)
def test_each_kind_holds_the_rows_of_any_table(kind: str, added: dict[int, int]) -> None:
    moved, largest = MOVED.get(kind, (1, LARGEST_MEASURED))
    release_rows(PLANS[kind](), ROWS.to_batches(), KEY)
    assert set(added) <= {largest}
    assert added[largest] <= moved * ROWS.num_rows
    assert moved * MAX_COUNT <= largest
    # The numbers of the table are no larger than they need to be.
    assert moved == 1 or added[largest] > moved * ROWS.num_rows / 100


def mean_of(upper: int, low: int, high: int) -> float:
    """The mean of integers from 0 to `upper`, of so many rows at either end."""
    domain = StepDomain(kind="integer", column="pay", lower=0, upper=upper + 1)
    plan = make_release_plan(
        MeanWorkload(name="pay", domain=domain).planned(ROW)  # type: ignore[arg-type]
    )
    release = release_counts(plan, {"pay": np.array([low * upper, high * upper])}, KEY)
    return release.tree("pay").statistic(StatisticKind.MEAN).value


@pytest.mark.parametrize(
    "upper, low, high",
    [
        (10**9, 810_000, 2_190_000),
        (2**20 - 1, 10**10 // 4, 10**10 * 3 // 4),
        (2**21, MAX_COUNT // 4, MAX_COUNT // 4 * 3),
        (2**31 - 2, 0, 2**30 - 2),
    ],
)
def test_a_mean_of_many_rows_is_right(upper: int, low: int, high: int) -> None:
    assert mean_of(upper, low, high) == pytest.approx(upper * high / (low + high), rel=1e-5)


@pytest.mark.parametrize("high", [2**30 + 100, 2**31])
def test_a_mean_of_too_many_rows_is_refused(high: int) -> None:
    with pytest.raises(LargeSumError, match="a noisy sum is beyond 2\\^61"):
        mean_of(2**31 - 2, 0, high)


def factorized(strategy: Any, counts: Integers) -> Integers:
    """The sums of a strategy, without noise."""
    plan = planted(make_plan(strategy, keyed=False), ZeroNoise())
    forest = FactorizedForest(plan, chunk_leaves=counts.size)
    (chunk,) = forest.chunking
    (sums,) = forest.measure("t", chunk, counts, source())
    assert sums is not None
    return sums[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("rows", [1, 2**33, MAX_COUNT, 2**48])
def test_sums_of_a_strategy_are_exact_or_refused(strategy: Any, rows: int) -> None:
    counts = np.full(strategy.leaves, rows, np.int64)
    exact = [sum(map(int, row)) * rows for row in strategy.dense()]
    if max(map(abs, exact)) > LARGEST_DIVIDED:
        with pytest.raises(LargeSumError):
            factorized(strategy, counts)
    else:
        assert factorized(strategy, counts).tolist() == exact


@pytest.mark.parametrize("rows, periods", [(MAX_COUNT, 30), (MAX_COUNT, 365), (2**48, 30)])
def test_weighted_sums_of_periods_are_right_or_refused(rows: int, periods: int) -> None:
    runs = Runs.by_sums(one_level(EXACT, keys=2), periods)
    runs.counts[:2] = rows
    if rows > MAX_COUNT:
        with pytest.raises(LargeSumError):
            runs.run(2)
        return
    estimates = runs.run(2).read(Span(0, 2, 2), 0, 0)["estimate"].to_numpy()
    assert estimates == pytest.approx(rows, rel=1e-9)


@pytest.mark.parametrize("bound", [2**31, 10**6])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_of_values_is_right_or_refused(bound: int, sign: int) -> None:
    measure = replace(SUMS, lower=-bound, upper=bound)
    question = hierarchy_question("digits", measure=measure)
    plan = make_release_plan(question)
    counts = np.zeros(question.dense_cells, np.int64)
    for total, fits in (
        (LARGEST_MEASURED // 2, True),
        (LARGEST_MEASURED * 2, False),
        (2**62, False),
    ):
        counts[0] = sign * total
        with nullcontext() if fits else pytest.raises(LargeSumError):
            release = release_counts(plan, {question.name: counts}, KEY)
            root = release.tree(question.name).top(1, 0)[0]
            assert root.estimate == pytest.approx(sign * total, rel=0.01)
