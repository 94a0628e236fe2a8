"""Rows of somebody's own pipeline: every form gives the same release, and mistakes are reported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from dptrees.transforms.beam.collection import element_type, row_schema, to_batch
from dptrees.transforms.beam.release import ReleaseTrees
from dptrees.transforms.errors import InputError, sentence_in
from dptrees.transforms.keys import KeyReference, KeyReferenceError
from tests.transforms.conftest import LOCAL_RUNNER


class Visit(NamedTuple):
    carrier: str | None
    number: int | None
    value: float | None
    unused: list[int]


SCHEMA = pa.schema({"value": pa.float64(), "number": pa.int64(), "carrier": pa.string()})


def as_visits(rows: Any) -> Any:
    made = [Visit(each["carrier"], each["number"], each["value"], []) for each in rows]
    return beam.Create(made).with_output_types(Visit)


def as_beam_rows(rows: Any) -> Any:
    """Inferred fields are never Optional: without rows that miss a value."""
    return "Rows" >> beam.Create(rows) | "ToRows" >> beam.Map(
        lambda each: beam.Row(
            value=float(each["value"]), number=int(each["number"]), carrier=str(each["carrier"])
        )
    )


def as_selected(rows: Any) -> Any:
    selected = beam.Select("number", "carrier", amount="value")
    return (
        as_visits(rows) | selected | beam.Select("number", "carrier", value=lambda row: row.amount)
    )


FORMS: dict[str, tuple[Callable[[Any], Any], pa.Schema | None]] = {
    "NamedTuples": (as_visits, None),
    "Beam's rows": (as_beam_rows, None),
    "fields of NamedTuples": (as_selected, None),
    "dictionaries": (beam.Create, SCHEMA),
    "untold": (lambda rows: beam.Create(rows).with_output_types(Any), SCHEMA),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_release(
    form: str, make_plan, rows, tmp_path: Path, key_file, nonce, run_steps, release_files
) -> None:
    plan, (create, schema) = make_plan("value", "number", "carrier"), FORMS[form]
    if form == "Beam's rows":
        rows = rows.drop_null()
    run_steps(plan, rows, tmp_path / "steps", nonce)
    unchecked = KeyReference(reference=f"file:{key_file}")
    with beam.Pipeline(LOCAL_RUNNER) as pipeline:
        release = ReleaseTrees(
            plan, key=unchecked, output=str(tmp_path / "own"), nonce=nonce, schema=schema
        )
        pipeline | create(rows.to_pylist()) | release
    assert release_files(tmp_path / "own") == release_files(tmp_path / "steps")


def test_mistakes_are_reported_when_the_graph_is_built(
    make_plan, reference, tmp_path: Path
) -> None:
    schema = pa.schema({"value": pa.float64()})
    for elements, given, words in (
        ([1, 2], None, "rows: the elements are of type int, but a release takes Arrow"),
        ([{"value": 1.0}], None, "give schema=pa.schema(...) of value, number"),
        (
            [{"value": 1.0}],
            schema,
            "input: the PCollection has no column 'number'; its columns are value",
        ),
        (
            [beam.Row(value="1", number=1)],
            None,
            "input: the PCollection: column 'value' has type string",
        ),
        ([beam.Row(value=[1.0], number=1)], None, "rows: the field 'value' is of type List"),
    ):
        plan, output = make_plan("value", "number"), tmp_path / "out"
        release = ReleaseTrees(plan, key=reference, output=str(output), schema=given)
        with pytest.raises(InputError) as caught:
            beam.Pipeline(LOCAL_RUNNER) | beam.Create(elements) | release
        assert words in caught.value.sentence and not output.exists()


def failed(release: ReleaseTrees, rows: Any) -> str | None:
    """The sentence in which a job fails."""
    with pytest.raises(Exception) as caught, beam.Pipeline(LOCAL_RUNNER) as pipeline:
        pipeline | rows | release
    return sentence_in(str(caught.value))


def test_mistakes_in_elements_stop_the_job(make_plan, reference, tmp_path: Path) -> None:
    release = ReleaseTrees(make_plan("value"), key=reference, output=str(tmp_path / "out"))
    batches = pa.table({"number": [1]}).to_batches()
    reported = failed(release, beam.Create(batches))
    assert reported is not None and reported.startswith(
        "input: the PCollection has no column 'value'; its names are not shown"
    )
    untold = beam.Create([{"value": 1.0}]).with_output_types(Any)
    reported = failed(release, untold)
    assert reported is not None and reported.startswith(
        "rows: an element is of type dict, which was not declared"
    )
    assert not (tmp_path / "out" / "record.json").exists()


def test_a_missing_key_leaves_no_folder(make_plan, tmp_path: Path) -> None:
    missing = KeyReference(reference=f"file:{tmp_path / 'none.key'}")
    with pytest.raises(KeyReferenceError, match="does not exist"):
        (
            beam.Pipeline(LOCAL_RUNNER)
            | beam.Create(pa.table({"value": [1.0]}).to_batches())
            | (ReleaseTrees(make_plan("value"), key=missing, output=str(tmp_path / "out")))
        )
    assert not (tmp_path / "out").exists()


def test_a_value_beyond_its_type_is_missing_whatever_is_beside_it() -> None:
    schema = pa.schema({"x": pa.int8(), "y": pa.string()})
    rows = [{"x": value, "y": "a\ud800" if value == 3 else "a"} for value in (1, 300, 3, None)]
    alone = [to_batch([row], schema) for row in rows]
    assert to_batch(rows, schema) == pa.Table.from_batches(alone).combine_chunks().to_batches()[0]
    assert to_batch(rows, schema).to_pydict() == {
        "x": [1, None, 3, None],
        "y": ["a", "a", None, "a"],
    }


def test_a_row_of_another_form_is_a_mistake() -> None:
    for row, words in (
        ({"x": "7"}, "column 'x' has type double, but a value of it is of Python's type str"),
        ({"y": 7}, "an element has no column 'x'"),
        (7, "an element has no column 'x'"),
    ):
        with pytest.raises(InputError) as caught:
            to_batch([{"x": 1.0}, row], pa.schema({"x": pa.float64()}))
        assert words in caught.value.sentence and "7" not in caught.value.sentence


class Typed(NamedTuple):
    a: np.float32
    b: "int | None"
    c: bool


def test_types_of_fields() -> None:
    with pytest.raises(InputError, match=r"has no column 'C'; .* did you mean c\?"):
        row_schema(Typed, ["a", "C"])
    assert row_schema(Typed, ["c", "b", "a"]) == pa.schema(
        {"c": pa.bool_(), "b": pa.int64(), "a": pa.float64()}
    )
    declared = pa.schema({"a": pa.int8(), "other": pa.string()})
    assert row_schema(Typed, ["a"], declared) == pa.schema({"a": pa.int8()})
    assert row_schema(pa.RecordBatch, ["a"]) is None


def test_types_of_selected_fields() -> None:
    pipeline = beam.Pipeline(LOCAL_RUNNER)
    visits = pipeline | beam.Create([]).with_output_types(Visit)
    made = visits | beam.Select("number", letters=lambda visit: len(visit.carrier), x="value")
    wanted = pa.schema({"number": pa.int64(), "letters": pa.int64(), "x": pa.float64()})
    assert row_schema(element_type(made), wanted.names) == wanted

    unclear = visits | "Unclear" >> beam.Select("number", x=lambda visit: visit[2])
    assert row_schema(element_type(unclear), ["number"]) == pa.schema({"number": pa.int64()})
    with pytest.raises(InputError, match="the field 'x' is of type Any"):
        row_schema(element_type(unclear), ["x"])

    plain = pipeline | "Plain" >> beam.Create([{"x": 1}]) | beam.Select(x=lambda row: row["x"])
    with pytest.raises(InputError, match="the field 'x' is of type Any"):
        row_schema(element_type(plain), ["x"])
