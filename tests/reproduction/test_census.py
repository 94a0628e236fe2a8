"""benchmarks/census: exact figures, measured errors that are the predicted ones, and the tables."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks import census
from benchmarks.census import EPSILON, RHO, Blocks, Method
from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.irregular.planner import NodeWeights, predicted_node_rmse
from dptrees.dpcore.noise.laws import DiscreteGaussian
from dptrees.dpcore.privacy.unit import Budget
from dptrees.dpcore.trees.shapes import IrregularTree

RUNS = 20


@pytest.fixture(scope="module")
def blocks(shared_data: Path) -> Blocks:
    """The blocks of Rhode Island."""
    return census.read_blocks(shared_data / "ri_2010_blocks.csv")


def agrees(method: Method, blocks: Blocks, level: int) -> bool:
    """Whether the measured error of a level may be the predicted one, but for 1e-8."""
    runs = census.squares(method, blocks, RUNS)[:, 0, level]
    limit = stats.t.isf(1e-8 / 2, RUNS - 1) * runs.std(ddof=1) / math.sqrt(RUNS)
    return bool(abs(runs.mean() - method.predicted[level] ** 2) <= limit)


def test_exact_figures(blocks: Blocks) -> None:
    assert blocks.tree.level_sizes == (1, 5, 244, 815, 25181)
    assert int(blocks.counts.sum()) == 1052567
    flat, equal = census.methods(blocks.tree, EPSILON)[:2]
    assert [float(f"{x:.4g}") for x in flat.predicted] == [215.3, 96.3, 13.79, 7.543, 1.357]
    assert [round(x, 2) for x in equal.predicted] == [6.42, 6.28, 5.98, 6.07, 6.95]


@pytest.mark.parametrize("budget", [EPSILON, RHO], ids=["epsilon", "rho"])
def test_measured_is_predicted_and_a_wrong_scale_is_noticed(blocks: Blocks, budget: Budget) -> None:
    for method in census.methods(blocks.tree, budget)[1:3]:
        assert all(agrees(method, blocks, level) for level in (2, 3, 4))
    plan = replace(method.forest.plan)
    plan.__dict__["class_variances"] = method.forest.plan.class_variances
    plan.__dict__["_laws"] = tuple(
        tuple(law and replace(law, **_smaller(law)) for law in laws)
        for laws in method.forest.plan._laws
    )
    wrong = Method(method.name, IrregularForest(plan), method.predicted)
    assert not agrees(wrong, blocks, 4)


def _smaller(law: object) -> dict[str, object]:
    """Nine tenths of the scale, or of the variance."""
    name = "sigma_squared" if isinstance(law, DiscreteGaussian) else "scale"
    return {name: getattr(law, name) * 9 / 10}


@pytest.mark.parametrize("budget", [EPSILON, RHO], ids=["epsilon", "rho"])
def test_plans_are_as_good_as_the_best_random_split(blocks: Blocks, budget: Budget) -> None:
    every = census.methods(blocks.tree, budget)
    splits = census.random_splits(5, census.SPLITS)
    np.testing.assert_allclose(splits.sum(axis=1), 1, rtol=1e-12)
    variances = census.level_variances(every[0].forest.plan, splits)
    for method in every[2:]:
        levels = np.array(census.WEIGHTS[method.name], dtype=np.float64)
        mine = predicted_node_rmse(method.forest.plan, NodeWeights(levels=tuple(levels)))
        assert mine <= math.sqrt((variances @ levels).min() / levels.sum())


def test_prints_all_tables(
    monkeypatch: pytest.MonkeyPatch, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(census, "SPLITS", 20)
    for option in ("--releases", "--adaptive", "--sums"):
        words = [option, "2"] if option == "--releases" else [option, "--releases", "1"]
        assert census.main([*words, str(shared_data / "ri_2010_blocks.csv")]) == 0
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for start in ("flat noise, summed predicted 215.3 96.3 13.79", "plan: 10:5:2:1:1 30 25.3"):
        assert any(line.startswith(start) for line in printed)
    assert sum(line.startswith("adaptive, guess (chosen)") for line in printed) > 5
    assert any(line.startswith("smallest_first") for line in printed)


def test_blocks_of_any_order_and_of_several_states(tmp_path: Path) -> None:
    codes = ["440010301001001", "440030301001000", "440010301001000", "440010301002000"]
    lines = [f"{code},{number}" for number, code in enumerate(codes)]
    path = tmp_path / "blocks.csv"
    path.write_text("\n".join(["GEOID,pop", *lines]))
    found = census.read_blocks(path)
    assert found.tree == IrregularTree.from_fanouts([[2], [1, 1], [2, 1], [2, 1, 1]])
    assert found.counts.tolist() == [2, 0, 3, 1]
    for more, message in (("450010301001001", "2 states"), (codes[0], "each once")):
        path.write_text("\n".join(["GEOID,pop", *lines, f"{more},1"]))
        with pytest.raises(ValueError, match=message):
            census.read_blocks(path)
