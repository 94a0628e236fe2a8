"""The table of benchmarks/census.py: its exact figures, and a small run of what it measures.

Measured mean squared errors of tracts, block groups and blocks are means over hundreds of nodes and
nearly normal: they are compared by Student's t. The errors of state and counties are not; of
the sum of all blocks the state's is a chi-square. The limits are for 1e-7 together, since the means
are a little skewed (by simulation, of tracts 2.2 times as many values lie beyond Student's 1e-5):
a false alarm is below 1e-6. Noise 10 % off is noticed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks import census
from benchmarks.census import Blocks, EqualSplit, Method, PlannedMethod
from dptrees.dpcore.irregular.node_weights import NodeWeights
from dptrees.dpcore.irregular.planner import predicted_node_rmse
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.trees.irregular import IrregularTree

EPSILON, RHO = census.BUDGETS
RUNS = 20
FALSE_ALARM = 1e-7
# The methods that are measured here, twice, at three levels; and the state.
COMPARISONS = 4 * 2 * 3 + 2


@pytest.fixture(scope="module")
def blocks(shared_data: Path) -> Blocks:
    """The blocks of Rhode Island."""
    return census.read_blocks(shared_data / "ri_2010_blocks.csv")


def scaled(law: NoiseLaw, factor: Fraction) -> NoiseLaw:
    """The law with its scale multiplied."""
    if isinstance(law, DiscreteLaplace):
        return DiscreteLaplace(scale=law.scale * factor)
    assert isinstance(law, DiscreteGaussian)
    return DiscreteGaussian(sigma_squared=law.sigma_squared * factor**2)


def planted(method: Method, factor: Fraction) -> Method:
    """The method, which believes in its own variances, but whose noise has another scale."""
    wrong: Method = replace(method)
    if isinstance(wrong, EqualSplit):
        wrong.__dict__["weights"] = method.weights  # type: ignore[union-attr]
        wrong.__dict__["law"] = scaled(wrong.law, factor)
        return wrong
    plan = replace(wrong.plan)
    plan.__dict__["class_variances"] = wrong.plan.class_variances
    plan.__dict__["_laws"] = tuple(
        tuple(None if law is None else scaled(law, factor) for law in laws)
        for laws in wrong.plan._laws
    )
    return PlannedMethod(name=wrong.name, plan=plan)


@lru_cache
def planned_methods(blocks: Blocks, budget: Budget) -> list[PlannedMethod]:
    """Planned once for all tests."""
    return census.planned_methods(blocks.tree, budget)


def chosen_methods(blocks: Blocks, budget: Budget) -> list[Method]:
    """One of each way."""
    _, raw, unpooled, pooled = census.reference_methods(blocks.tree, budget)
    return [raw, unpooled, pooled, planned_methods(blocks, budget)[0]]


def agrees(runs: np.ndarray[Any, Any], expected: float) -> bool:
    """Whether the mean of nearly normal (runs,) values may be the expected one."""
    mean = census.Mean.of(runs)
    limit = stats.t.isf(FALSE_ALARM / COMPARISONS / 2, runs.size - 1)
    return bool(abs(mean.value - expected) <= limit * mean.standard_error)


def test_exact_figures(blocks: Blocks) -> None:
    assert blocks.tree.level_sizes == (1, 5, 244, 815, 25181)
    assert int(blocks.counts.sum()) == 1052567
    flat, raw, unpooled, pooled = census.reference_methods(blocks.tree, EPSILON)
    assert [float(f"{x:.4g}") for x in flat.predicted] == [215.3, 96.3, 13.79, 7.543, 1.357]
    for method, figures in (
        (raw, [7.06] * 5),
        (unpooled, [6.42, 6.28, 6.02, 6.08, 6.95]),
        (pooled, [6.42, 6.28, 5.98, 6.07, 6.95]),
    ):
        assert [round(x, 2) for x in method.predicted] == figures


@pytest.mark.parametrize("budget", [EPSILON, RHO], ids=["epsilon", "rho"])
def test_measured_is_predicted(blocks: Blocks, budget: Budget) -> None:
    for method in chosen_methods(blocks, budget):
        squares = census.measured_errors(method, blocks, budget, RUNS)[:, 0, 0]
        for level in (2, 3, 4):
            assert agrees(squares[:, level], method.predicted[level] ** 2)


@pytest.mark.parametrize("factor", [Fraction(9, 10), Fraction(11, 10)], ids=str)
def test_a_wrong_scale_is_noticed(blocks: Blocks, factor: Fraction) -> None:
    for method in chosen_methods(blocks, EPSILON)[1:3]:
        squares = census.measured_errors(planted(method, factor), blocks, EPSILON, RUNS)[:, 0, 0]
        assert not agrees(squares[:, 4], method.predicted[4] ** 2)


def test_the_state_has_the_predicted_error(blocks: Blocks) -> None:
    method = census.reference_methods(blocks.tree, RHO)[0]  # a sum of 25,181 draws
    limits = (
        stats.chi2.ppf([FALSE_ALARM / COMPARISONS / 2], RUNS)[0],
        stats.chi2.isf(FALSE_ALARM / COMPARISONS / 2, RUNS),
    )
    for wrong in (Fraction(1), Fraction(1, 4), Fraction(4)):
        squares = census.measured_errors(planted(method, wrong), blocks, RHO, RUNS)[:, 0, 0, 0]
        found = squares.sum() / method.predicted[0] ** 2
        assert (limits[0] <= found <= limits[1]) == (wrong == 1)


def test_counts_add_up_and_estimates_too(blocks: Blocks) -> None:
    _, unpooled, pooled, planned = chosen_methods(blocks, EPSILON)
    for method in (unpooled, pooled, planned):
        noise = census._noise_source(0, "test", blocks)
        released = method.release(blocks, noise)
        again = method.release(blocks, noise)
        assert released.counts is not None and again.counts is not None
        for level, counts in enumerate(released.counts):
            assert counts.min() >= 0
            np.testing.assert_array_equal(counts, again.counts[level])
            if level:
                above = blocks.tree.child_sum(level - 1, counts)
                np.testing.assert_array_equal(above, released.counts[level - 1])
                estimates = blocks.tree.child_sum(level - 1, released.estimates[level])
                np.testing.assert_allclose(estimates, released.estimates[level - 1], atol=1e-6)
        other = method.release(blocks, census._noise_source(1, "test", blocks))
        assert not np.array_equal(other.estimates[-1], released.estimates[-1])


@pytest.mark.parametrize("budget", [EPSILON, RHO], ids=["epsilon", "rho"])
def test_plans_are_as_good_as_the_best_random_split(blocks: Blocks, budget: Budget) -> None:
    planned = planned_methods(blocks, budget)
    variances = census.level_variances(planned[0].plan, census.random_splits(5, census.SPLITS))
    beaten = 0
    equal = census.reference_methods(blocks.tree, budget)[3]
    for method in planned:
        levels = np.array(census.WEIGHTS[method.name], dtype=np.float64)
        best = math.sqrt((variances @ levels).min() / levels.sum())
        mine = predicted_node_rmse(method.plan, NodeWeights(levels=tuple(levels)))
        assert mine <= best
        beaten += math.sqrt(np.square(equal.predicted) @ levels / levels.sum()) > best
    assert beaten >= 5  # not every split is as good: an equal one is not


def test_random_splits_are_even_on_the_simplex() -> None:
    splits = census.random_splits(5, 20_000)
    np.testing.assert_allclose(splits.sum(axis=1), 1, rtol=1e-12)
    whole = splits[np.arange(20_000) % 10 > 0]
    assert (whole > 0).all() and (splits[:, -1] > 0).all()
    # Each share is Beta(1, 4). A level is left out of 1 in 20, with 5.4 standard deviations.
    for share in whole.T:
        assert stats.kstest(share, stats.beta(1, 4).cdf).pvalue > 1e-7
    assert abs((splits[::10, :-1] == 0).mean() - 0.5) < 5.4 * 0.5 / math.sqrt(8000)


def test_prints_all_tables(
    monkeypatch: pytest.MonkeyPatch, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(census, "BUDGETS", (EPSILON,))
    monkeypatch.setattr(census, "SPLITS", 20)
    assert census.main([str(shared_data / "ri_2010_blocks.csv"), "--releases", "2"]) == 0
    printed = capsys.readouterr().out
    for row in ("flat noise, summed predicted 215.3 96.30 13.79 7.543 1.357", "plan: 10:5:2:1:1"):
        assert any(" ".join(line.split()).startswith(row) for line in printed.splitlines())
    for title in (*census.METRICS, "weighted RMSE", "50 mean squared errors"):
        assert title in printed


BLOCK = "44001030100100"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("GEOID,people\n1,2\n", "not a CSV of GEOID and pop"),
        (f"GEOID,pop\n{BLOCK}0,many\n", "not a CSV of GEOID and pop"),
        ("GEOID,pop\n", "at least one block"),
        (f"GEOID,pop\n{BLOCK},1\n", "15 digits"),
        (f"GEOID,pop\n{BLOCK}0,1\n,1\n", "15 digits"),
        (f"GEOID,pop\n{BLOCK}0,\n", "at least 0"),
        (f"GEOID,pop\n{BLOCK}0,-1\n", "at least 0"),
        (f"GEOID,pop\n{BLOCK}0,1\n{BLOCK}0,1\n", "more than once"),
        (f"GEOID,pop\n{BLOCK}0,1\n45{BLOCK[2:]}0,1\n", "2 states"),
    ],
)
def test_refuses(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "blocks.csv").write_text(text)
    with pytest.raises(SystemExit) as stopped:
        census.main([str(tmp_path / "blocks.csv")])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_refuses_a_file_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        census.main([str(tmp_path / "blocks.csv")])
    assert stopped.value.code == 2
    assert "no such file" in capsys.readouterr().err


def test_blocks_of_any_order(tmp_path: Path) -> None:
    codes = ["440010301001001", "440030301001000", "440010301001000", "440010301002000"]
    lines = [f"{code},{number}" for number, code in enumerate(codes)]
    (tmp_path / "blocks.csv").write_text("\n".join(["GEOID,pop", *lines]))
    found = census.read_blocks(tmp_path / "blocks.csv")
    assert found.tree == IrregularTree.from_fanouts([[2], [1, 1], [2, 1], [2, 1, 1]])
    assert found.counts.tolist() == [2, 0, 3, 1]
