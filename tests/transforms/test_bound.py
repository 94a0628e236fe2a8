"""Rows bounded per privacy unit on the way through a pipeline: for every kind of tree, however the
rows are laid out, and with a loss at every hand-over."""

import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.privacy.unit import NullUnits
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import _bounded_increments
from dptrees.pipelines.config.configuration import parse_configuration
from dptrees.transforms import flow
from dptrees.transforms.beam.adapter import unit_shards
from dptrees.transforms.beam.release import ReadBatches, ReleaseTrees
from dptrees.transforms.errors import ConservationError, InputError
from dptrees.transforms.steps import carry, count
from dptrees.transforms.steps import count as bound
from tests.dpcore.bounding.slow_choice import slow_choice
from tests.dpcore.hierarchy_questions import make_release_plan
from tests.transforms import unit_releases
from tests.transforms.conftest import LOCAL_RUNNER, NONCE
from tests.transforms.eager import MAIN, UNIT_HAND_OVERS, outputs
from tests.transforms.every_kind import ordered_question, tables_in_memory
from tests.transforms.losses import Planted, check_losses, drop, repeat
from tests.transforms.test_element_counts import Counts, counted  # noqa: F401 (a fixture)
from tests.transforms.unit_releases import DROP, OWN, ROWS, person

Released = Callable[..., dict[str, bytes]]


@pytest.fixture(params=unit_releases.PLANS)
def plan(request) -> ReleasePlan:
    """Trees of every kind, of people with many rows."""
    return unit_releases.PLANS[request.param]()


@pytest.fixture
def released(release_steps, release_tables) -> Released:
    """The tables of a release, step by step."""

    def tables(
        plan: ReleasePlan, bundles: Iterable[list[pa.RecordBatch]], **given: Any
    ) -> dict[str, bytes]:
        return release_tables(release_steps(plan, bundles, **given))

    return tables


def in_bundles(rows: pa.Table, size: int) -> list[list[pa.RecordBatch]]:
    batches = rows.combine_chunks().to_batches(max_chunksize=size)
    return [batches[:2], [], batches[2:]]


def test_it_is_the_release_of_the_rows_in_memory(plan, released, key, monkeypatch) -> None:
    """Order, batches, bundles and shards make no difference."""
    expected = tables_in_memory(plan, key, ROWS)
    assert released(plan, in_bundles(ROWS, 200)) == expected
    shuffled = ROWS.take(pa.array(np.random.default_rng(1).permutation(ROWS.num_rows)))
    bundles = [[batch] for batch in shuffled.to_batches(max_chunksize=77)]
    assert released(plan, bundles, shards=1) == expected
    monkeypatch.setattr(bound, "WAITING_ROWS", 150)
    assert released(plan, in_bundles(shuffled, 300), shards=64) == expected


def kept_rows(plan: ReleasePlan, key: Any, rows: pa.Table) -> Counter[tuple[int, int]]:
    """The multiset of (cell, value) that is counted of a plan's one tree."""
    choices, found = KeyedChoices(key=key, release=plan.name), Counter[tuple[int, int]]()
    for _, (cells, values), _ in _bounded_increments(plan, rows.to_batches(), choices):
        worth = np.ones(len(cells), np.int64) if values is None else values
        found.update(zip(cells.tolist(), worth.tolist(), strict=True))
    return found


@pytest.mark.parametrize("unit", [DROP, OWN], ids=["drop", "own"])
@pytest.mark.parametrize("keyed", [False, True])
def test_what_is_counted_row_by_row(unit, keyed, key) -> None:
    """By a slow choice, and policies written again by hand."""
    plan = make_release_plan(ordered_question(keyed=keyed, unit=unit, chunk_leaves=16))
    people, alone = [], Counter[tuple[int, int]]()
    races = ("white", "black", "nobody")
    for row in ROWS.select(["person", "number", "race"]).to_pylist():
        if keyed and row["race"] not in races:
            continue
        cell = min(max(row["number"], -5), 24) + 5
        cell += 30 * races.index(row["race"]) if keyed else 0
        if row["person"] is not None:
            people.append((row["person"], cell, 1))
        elif unit.nulls is NullUnits.OWN:
            alone[cell, 1] += 1
    kept = slow_choice(
        people,
        key=key,
        release=plan.name,
        tree="ordered",
        most=6,
        keys=2,
        per_key=4,
        cell_key=(lambda cell: cell // 30) if keyed else None,
    )
    for (_, cell, value), times in kept.items():
        alone[cell, value] += times
    assert kept_rows(plan, key, ROWS) == alone


def test_a_loss_at_every_hand_over(plan, release_steps, tmp_path) -> None:
    def release(fault: Planted) -> Path:
        return release_steps(plan, in_bundles(ROWS, 200), fault)

    places = set(UNIT_HAND_OVERS)
    if plan.unit.nulls is NullUnits.DROP:  # no row is counted alone
        places -= {"counts of rows alone"}
        fault = Planted("counts of rows alone", drop)
        shutil.rmtree(release(fault))
        assert not fault.planted
    check_losses(release, tmp_path, itertools.product(sorted(places), [drop, repeat]))


def test_a_shard_that_comes_in_two_halves(released, monkeypatch) -> None:
    """Its units would be bounded twice."""
    original = bound.CountBounded.process

    def halved(self: Any, element: Any) -> Any:
        key, messages = element
        for part in (messages[::2], messages[1::2]):
            yield from original(self, (key, part))

    monkeypatch.setattr(bound.CountBounded, "process", halved)
    with pytest.raises(ConservationError, match="shards of units of tree ordered do not balance"):
        released(unit_releases.PLANS["ordered"](), in_bundles(ROWS, 200))


def options(*given: str) -> PipelineOptions:
    return PipelineOptions([f"--runner={LOCAL_RUNNER}", *given], save_main_session=False)


@pytest.fixture
def piped(tmp_path, reference, release_files) -> Released:
    """The files of a release by Beam."""

    def run(plan: ReleasePlan, rows: pa.Table, name: str, *given: str) -> dict[str, bytes]:
        pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=300)
        with beam.Pipeline(options=options(*given)) as pipeline:
            pattern = str(tmp_path / f"{name}.parquet")
            read = pipeline | ReadBatches(patterns=(pattern,), format="parquet", plan=plan)
            output = str(tmp_path / f"{name}-out")
            read | ReleaseTrees(plan, key=reference, output=output, nonce=NONCE)
        return release_files(tmp_path / f"{name}-out")

    return run


def test_by_beam(piped, key) -> None:
    plan = unit_releases.PLANS["mixed"]()
    tables = tables_in_memory(plan, key, ROWS)
    for number, given in enumerate([[], ["--unit_shards=3"]]):
        found = piped(plan, ROWS, f"rows-{number}", *given)
        assert {name: found[name] for name in tables} == tables


def test_shards_out_of_range(piped) -> None:
    for shards in (0, 2**16 + 1):
        with pytest.raises(InputError, match=f"--unit_shards: {shards} is not from 1 to 65536"):
            piped(unit_releases.PLANS["ordered"](), ROWS, "rows", f"--unit_shards={shards}")


REMEMBERING = """
release: people
input: {format: parquet, path: rows/*.parquet}
output: out
key_file: release.key
privacy: {epsilon: 1, neighbors: add_remove, unit: person, max_rows: 3}
series: {periods: 9, period: 1, unit: per_series, max_periods: 3}
trees:
  - {name: x, domain: {column: x, type: integer, lower: 0, upper: 10}}
"""


def test_shards_follow_the_number_of_workers() -> None:
    for given, shards in (
        ([], 64),
        (["--num_workers=16"], 64),
        (["--num_workers=2", "--max_num_workers=17"], 128),
        (["--parallelism=100"], 512),
        (["--parallelism=100", "--unit_shards=7"], 7),
    ):
        chosen, planned = unit_shards(PipelineOptions(given))
        assert (chosen or planned) == shards


def test_a_series_that_remembers_units_keeps_its_shards(reference) -> None:
    """However many workers an option names, the graph has the shards that runs before wrote."""
    plan = parse_configuration(REMEMBERING).plan()
    assert plan.remembering
    graph = flow.Flow(planned_shards=512)
    graph.input() | "Bound" >> bound.BoundRows(plan, reference, bytes(16))
    steps = [getattr(node.primitive, "step", None) for node in graph.nodes]
    assert {step._shards for step in steps if hasattr(step, "_shards")} == {64}


@pytest.mark.parametrize("named", ["series.max_periods", "to_date"])
def test_refusals_name_the_key_for_which_units_are_remembered(reference, named: str) -> None:
    text = REMEMBERING
    if named == "to_date":
        text = text.replace(", max_periods: 3", "").partition("  - {")[0]
        text += "  - {name: x, domain: {kind: distinct, column: person}, to_date: true}\n"
    plan = parse_configuration(text).plan()
    with pytest.raises(InputError, match=f"{named}: remembers units"):
        carry.series_families(plan, "period-0001")
    with pytest.raises(InputError, match=f"a series with {named} remembers"):
        steps = flow.Flow(unit_shards=7)
        steps.input() | "Bound" >> bound.BoundRows(plan, reference, bytes(16))
    both = text + "  - {name: y, domain: {column: x, type: integer, lower: 0, upper: 10}}\n"
    assert parse_configuration(both).plan().remembering_key == named
    if named == "to_date":
        several = both.replace("unit: per_series", "unit: per_series, max_periods: 2")
        assert parse_configuration(several).plan().remembering_key == "series.max_periods"


def test_without_a_unit_the_steps_are_not_there(make_plan, reference, tmp_path) -> None:
    names = []
    for plan in (make_plan("number"), unit_releases.PLANS["ordered"]()):
        graph = flow.Flow()
        graph.input() | "Count" >> count.CountRows(plan, reference, bytes(16))
        names.append(str([node.label for node in graph.nodes]))
    assert "ByShard" not in names[0] and "ByShard" in names[1]


def test_what_an_engine_counts_reveals_nothing_about_units(counted: Counts, small_splits) -> None:  # noqa: F811
    """Elements are as many whichever units have the rows, and wherever they lie."""
    for name in ("ordered by key", "hierarchy", "codes"):
        plan = unit_releases.PLANS[name]()
        base = {each: ROWS[each].slice(0, 1) for each in plan.columns}
        rows = pa.table(
            {each: pa.concat_arrays([own.combine_chunks()] * 3000) for each, own in base.items()}
        )
        first = counted(plan, rows, f"{name}, alike")
        place = rows.column_names.index("person")
        for number, people in enumerate([range(3000), [None] * 2999 + [1], [7] * 3000]):
            other = rows.set_column(place, "person", pa.array(list(people), pa.int64()))
            assert counted(plan, other, f"{name}, {number}") == first


def test_bundles_that_send_only_what_they_have_are_found(
    counted: Counts,  # noqa: F811
    small_splits,
    monkeypatch,
) -> None:
    sent = bound.TreeBounding.take
    monkeypatch.setattr(
        bound.TreeBounding, "take", lambda *given: (each for each in sent(*given) if each.data)
    )
    plan = unit_releases.PLANS["hierarchy"]()
    code = next(each for each in plan.columns if each != "person")
    counts = [
        counted(plan, pa.table({code: ["0101"] * 3000, "person": list(people)}), f"{number}")
        for number, people in enumerate([range(3000), [7] * 3000])
    ]
    assert counts[0] != counts[1]


def begun(step: Any) -> Any:
    """A step in its first bundle."""
    step.setup()
    step.start_bundle()
    return step


def test_when_rows_leave_follows_from_the_rows_read(reference, monkeypatch) -> None:
    monkeypatch.setattr(bound, "WAITING_ROWS", 300)
    plan = unit_releases.PLANS["ordered"]()
    for person_of in (None, 7):
        step = begun(bound.SendRows(plan, reference, 5, bytes(16)))
        columns = [pa.array([3] * 1000), pa.array([person_of] * 1000, pa.int8())]
        batch = pa.RecordBatch.from_arrays(columns, names=["number", "person"])
        parts = [batch.slice(start, 200) for start in range(0, 1000, 200)]
        assert [len(list(step.process(part))) for part in parts] == [0, 5, 0, 5, 0]
        assert len(outputs(step.finish_bundle())[MAIN]) == 5


def test_shards_without_rows_are_counted_as_others_are(plan, reference) -> None:
    """How much is sent must not reveal whether there are rows at all."""
    rows = ROWS.combine_chunks().to_batches()[0]
    sent = []
    for batch in (rows, rows.slice(0, 0)):
        send = begun(bound.SendRows(plan, reference, 5, bytes(16)))
        shards = [*send.process(batch), *outputs(send.finish_bundle())[MAIN]]
        step = begun(bound.CountBounded(plan, reference, bytes(16)))
        found = [each for place, data in shards for each in step.process((place, [data]))]
        found += outputs(step.finish_bundle())[MAIN]
        sent.append(Counter(name for (name, *_), _ in found))
    dense = {each.name for each in plan.questions if each.dense_cells}
    for name in dense:
        assert sent[0][name] == sent[1][name]
    assert dense <= set(sent[1])


def test_a_unit_that_cannot_be_read(piped, reference) -> None:
    plan, rows = unit_releases.PLANS["ordered"](), ROWS.drop_columns("person")
    with pytest.raises(Exception, match="has no column 'person'"):
        piped(plan, rows, "none")
    words = "column 'person' has type list<.*>, but a privacy unit needs texts"
    with pytest.raises(Exception, match=words):
        piped(plan, rows.append_column("person", pa.array([[1]] * 900)), "lists")
    # Of one's own rows, which no reader has checked.
    send = begun(bound.SendRows(plan, reference, 5, bytes(16)))
    batch = pa.RecordBatch.from_arrays([pa.array([3]), pa.array([[1]])], names=["number", "person"])
    words = "input: the privacy unit cannot be read from person, which"
    with pytest.raises(InputError, match=words):
        list(send.process(batch))


def test_units_of_several_columns_and_types(key) -> None:
    """Named by one number, by a text, or by both, the same people have as many rows each."""
    named = ROWS.append_column("name", ROWS["person"].cast(pa.string()))
    totals = []
    for columns in (("person",), ("name",), ("person", "name")):
        unit = replace(person(rows=3, keys=None, rows_per_key=None), columns=columns)
        plan = make_release_plan(ordered_question(unit=unit))
        assert plan.columns == ("number", *columns)
        totals.append(sum(kept_rows(plan, key, named).values()))
    sizes = Counter(each for each in ROWS["person"].to_pylist() if each is not None)
    assert totals == [sum(min(3, size) for size in sizes.values())] * 3
