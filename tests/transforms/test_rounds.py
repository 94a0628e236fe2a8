"""Trees whose groups query their places, in rounds: quantiles of more cells than a chunk holds."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from dptrees.dpcore.exponential.question import ExponentialQuestion
from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.keys import KeyList
from dptrees.pipelines.run.job import Options, run_job
from dptrees.transforms.held import GivenRows, held
from dptrees.transforms.release import Release
from dptrees.transforms.steps.draw import round_count
from tests.transforms.conftest import NONCE
from tests.transforms.eager import ROUND_HAND_OVERS
from tests.transforms.losses import Planted, check_losses, drop, repeat


def chosen(name: str, quantiles: tuple[float, ...], *, keyed: bool = False) -> ExponentialQuestion:
    """Quantiles of 30 cells in chunks of 8."""
    keys = KeyList(column="carrier", keys=("UA", "AA", "none of them")) if keyed else None
    domain = NumberDomain(column="value", lower=0, upper=10, cells=30, missing="drop")
    workload = OrderedWorkload(
        name=name, mechanism="exponential", domain=domain, quantiles=quantiles, keys=keys
    )
    one = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    tree = workload.planned(Setting(unit=ADD_REMOVE_ROW, budget=one))
    return replace(tree, chunk_leaves=8)


@pytest.fixture
def plan(make_plan) -> ReleasePlan:
    """One of four rounds, one of two, and a tree without."""
    tree = make_plan("value").questions[0]
    deep, keyed = chosen("deep", (0.1, 0.2, 0.5, 0.7)), chosen("keyed", (0.5,), keyed=True)
    assert [each.rounds for each in (deep, keyed, tree)] == [4, 2, 0]
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(3))
    return ReleasePlan(
        name="test", unit=ADD_REMOVE_ROW, budget=budget, questions=(deep, tree, keyed)
    )


def test_however_rows_are_bundled(
    plan, rows, data, run, expected_files, release_steps, tmp_path, release_tables, small_splits
) -> None:
    """Step by step, and on Beam, where bundles run again."""
    expected = expected_files(plan, rows)
    for bundles in (1, 3, 17):
        size = -(-rows.num_rows // bundles)
        batches = [
            rows.slice(each * size, size).combine_chunks().to_batches() for each in range(bundles)
        ]
        assert release_tables(release_steps(plan, batches)) == expected
    run(plan, data, tmp_path / "out", pipeline_options=["--direct_runner_bundle_repeat=2"])
    assert release_tables(tmp_path / "out") == expected


def test_in_a_plain_loop(plan, rows, expected_files, reference, tmp_path, release_tables) -> None:
    output = tmp_path / "out"
    with held(rows.combine_chunks().to_batches(max_chunksize=700)) as number:
        release = Release(plan, key=reference, output=str(output), nonce=NONCE)
        run_job(GivenRows(number), release, Options(threads=3))
    assert release_tables(output) == expected_files(plan, rows)


def test_a_loss_at_every_hand_over(plan, rows: pa.Table, tmp_path, release_steps) -> None:
    def release(fault: Planted) -> Path:
        return release_steps(plan, [rows.combine_chunks().to_batches()], fault)

    twice = [name for name in ROUND_HAND_OVERS if not name.startswith("asked")]  # else the same
    faults = [*product(ROUND_HAND_OVERS, [drop]), *product(twice, [repeat])]
    check_losses(release, tmp_path, faults)


def test_who_has_no_rounds_has_no_such_steps(make_plan) -> None:
    plan = make_plan("value")
    assert round_count(plan) == 0
    with pytest.raises(ValueError, match="no rounds"):
        plan.questions[0].answer(plan.questions[0].places[0], b"", b"", None)
    with pytest.raises(ValueError, match="no rounds"):
        plan.questions[0].next_request(0, {}, b"", None)
