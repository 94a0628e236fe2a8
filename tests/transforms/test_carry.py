"""What a run takes over from the run before: each place once, or nothing is released."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.series.temporal import TemporalTree
from dptrees.transforms.errors import ConservationError
from dptrees.transforms.folder.names import run_folder
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.steps import carry
from dptrees.transforms.steps.carry import Carry, SeriesError, carries, check_turn
from tests.dpcore.series_runs import series_plan
from tests.transforms.eager import EagerRelease, outputs
from tests.transforms.every_kind import ROWS, ordered_question

TEMPORAL = TemporalTree.from_fanout(4, 2)


def make_plan(period: int) -> ReleasePlan:
    return series_plan(ordered_question("tree"), TEMPORAL, period)


class Run(EagerRelease):
    """A run whose carried counts may be lost or repeated.

    Args:
        carried: what the step that opens them gives.
    """

    def __init__(self, *arguments: Any, carried: dict[str, list[Any]]) -> None:
        def added(name: str, elements: list[Any]) -> list[Any]:
            if name == "partial counts":
                return elements + carried.get("main", [])
            return elements + carried.get(BALANCE, []) if name == "balance of rows" else elements

        super().__init__(*arguments, added)


def opened(plan: ReleasePlan, reference: KeyReference, output: str) -> dict[str, list[Any]]:
    """What the step gives, without a pipeline."""
    assert plan.run is not None
    states, key = Carry(plan, reference, run_folder(output, plan.run.period))._states()
    step: Any = carry._Open(plan, key)
    step.setup()
    return outputs(one for state in states for one in step.process(tuple(state)))


@pytest.fixture
def first(tmp_path: Path, reference: KeyReference) -> str:
    """The folder of a series whose first run is complete."""
    output = str(tmp_path / "series")
    Run(make_plan(1), reference, run_folder(output, 1), bytes(16), carried={}).run(bundles())
    return output


def bundles() -> list[list[pa.RecordBatch]]:
    return [ROWS.to_batches()]


def second(reference: KeyReference, output: str, carried: dict[str, list[Any]]) -> list[str]:
    return Run(
        make_plan(2), reference, run_folder(output, 2), bytes([1] * 16), carried=carried
    ).run(bundles())


def test_only_runs_with_open_nodes_carry() -> None:
    assert [carries(make_plan(period)) for period in (1, 2, 3, 4)] == [False, True, True, True]
    alone = replace(make_plan(1), questions=(ordered_question("tree"),))
    assert not carries(alone)
    check_turn(alone, "anywhere")


def test_a_run_goes_on(first: str, reference: KeyReference) -> None:
    check_turn(make_plan(2), run_folder(first, 2))
    assert second(reference, first, opened(make_plan(2), reference, first))


@pytest.mark.parametrize("lost", ["a count", "a count and its balance", "all", "the balance"])
def test_what_is_lost_stops_the_job(first: str, reference: KeyReference, lost: str) -> None:
    carried = opened(make_plan(2), reference, first)
    counts, balance = carried["main"], carried[BALANCE]
    assert len(counts) > 1 and len(balance) == 2 * len(counts)
    broken = {
        "a count": {"main": counts[1:], BALANCE: balance},
        "a count and its balance": {"main": counts[1:], BALANCE: balance[2:]},
        "all": {},
        "the balance": {"main": counts},
    }[lost]
    with pytest.raises(ConservationError, match="do not balance"):
        second(reference, first, broken)
    assert not Path(run_folder(first, 2), "manifest.json").exists()


@pytest.mark.parametrize("repeated", ["a count", "a count and its balance"])
def test_what_comes_twice_stops_the_job(first: str, reference: KeyReference, repeated: str) -> None:
    carried = opened(make_plan(2), reference, first)
    counts, balance = carried["main"], carried[BALANCE]
    again = balance[:2] if "balance" in repeated else []
    with pytest.raises(ConservationError, match="do not balance"):
        second(reference, first, {"main": counts + counts[:1], BALANCE: balance + again})


def test_the_folder_of_a_run_has_its_name(first: str) -> None:
    with pytest.raises(SeriesError, match="the folder of period 2 is period-0002"):
        check_turn(make_plan(2), f"{first}/second")
