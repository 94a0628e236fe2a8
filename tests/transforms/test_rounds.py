"""Trees whose groups query their places, in rounds: quantiles of more cells than a chunk holds."""

import itertools
from dataclasses import replace
from fractions import Fraction

import apache_beam as beam
import pyarrow as pa
import pytest

from dptrees.dpcore.exponential.question import ExponentialQuestion, ExponentialWorkload
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import ReleaseTerms, Share
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.keys import KeyList
from dptrees.pipelines.run.loop import LoopRunner
from dptrees.transforms.release import ReleaseTrees
from dptrees.transforms.steps.draw import round_count
from tests.transforms.conftest import NONCE
from tests.transforms.eager import ROUND_HAND_OVERS, EagerRelease
from tests.transforms.losses import Planted, check_losses, drop, repeat


def chosen(name: str, quantiles: tuple[float, ...], *, keyed: bool = False) -> ExponentialQuestion:
    """Quantiles of 30 cells in chunks of 8."""
    keys = KeyList(column="carrier", keys=("UA", "AA", "none of them")) if keyed else None
    domain = NumberDomain(column="value", lower=0, upper=10, cells=30, missing="drop")
    workload = ExponentialWorkload(name=name, domain=domain, quantiles=quantiles, keys=keys)
    one = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    return replace(workload.planned(one, ReleaseTerms(unit=ADD_REMOVE_ROW)), chunk_leaves=8)


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


@pytest.fixture
def expected_tables(plan, rows, expected_files) -> dict[str, bytes]:
    return expected_files(plan, rows)


def tables(found: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in found.items() if name.endswith(".parquet")}


@pytest.mark.parametrize("bundles", [1, 3, 17])
def test_however_rows_are_bundled(
    bundles: int, plan, rows, expected_tables, reference, tmp_path, release_files
) -> None:
    size = -(-rows.num_rows // bundles)
    batches = [
        rows.slice(each * size, size).combine_chunks().to_batches() for each in range(bundles)
    ]
    EagerRelease(plan, reference, str(tmp_path / "out"), NONCE).run(batches)
    assert tables(release_files(tmp_path / "out")) == expected_tables


def test_on_beam_however_often_bundles_run(
    plan, data, run, expected_tables, tmp_path, release_files, small_splits
) -> None:
    options = ["--direct_runner_bundle_repeat=2"]
    run(plan, data, tmp_path / "out", pipeline_options=options)
    assert tables(release_files(tmp_path / "out")) == expected_tables


def test_in_a_plain_loop(plan, rows, expected_tables, reference, tmp_path, release_files) -> None:
    output = str(tmp_path / "out")
    with beam.Pipeline(runner=LoopRunner()) as pipeline:
        batches = pipeline | beam.Create(rows.to_pylist(), reshuffle=False)
        batches | ReleaseTrees(plan, key=reference, output=output, nonce=NONCE, schema=rows.schema)
    assert tables(release_files(tmp_path / "out")) == expected_tables


def test_a_loss_at_every_hand_over(plan, rows: pa.Table, tmp_path, reference) -> None:
    numbers = itertools.count()

    def release(fault: Planted) -> None:
        folder = str(tmp_path / str(next(numbers)))
        batches = [rows.combine_chunks().to_batches()]
        EagerRelease(plan, reference, folder, NONCE, fault).run(batches)

    twice = [name for name in ROUND_HAND_OVERS if not name.startswith("asked")]  # else the same
    faults = [*itertools.product(ROUND_HAND_OVERS, [drop]), *itertools.product(twice, [repeat])]
    check_losses(release, tmp_path, faults)


def test_who_has_no_rounds_has_no_such_steps(make_plan) -> None:
    plan = make_plan("value")
    assert round_count(plan) == 0
    with pytest.raises(ValueError, match="no rounds"):
        plan.questions[0].answer(plan.questions[0].places[0], b"", b"", None)
    with pytest.raises(ValueError, match="no rounds"):
        plan.questions[0].next_request(0, {}, b"", None)
