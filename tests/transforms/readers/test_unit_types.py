"""The privacy unit whatever the types: one person is one unit in all inputs, or is refused."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.utils.timestamp import Duration, Timestamp

from dptrees.dpcore.bounding.unit_ids import check_unit_types, has_ids
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import UnitType
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_rows
from dptrees.transforms.beam.collection import to_batch
from dptrees.transforms.beam.release import ReleaseTrees
from dptrees.transforms.errors import InputError, sentence_in
from dptrees.transforms.readers.formats import find_reader
from dptrees.transforms.readers.read import file_unit_families
from dptrees.transforms.steps import carry
from dptrees.transforms.steps.carry import LeftByRun, SeriesError
from tests.transforms.conftest import LOCAL_RUNNER
from tests.transforms.every_case import check_every_case
from tests.transforms.readers.read_files import unit_ids, unit_plan

HOUR = dt.timezone(dt.timedelta(hours=1))


# --- values of Python's classes in declared types ---


class Number(IntEnum):
    ONE = 1


# Values of a class, and which are equal: the tag is what the value is. Values of one class and
# value have one tag; others differ.
VALUES: dict[str, list[tuple[Any, Any]]] = {
    "bool": [(True, True), (False, False)],
    "np.bool_": [(np.bool_(True), True), (np.bool_(False), False)],
    "int": [(each, Decimal(each)) for each in (0, 1, 2**24, 2**24 + 1, 2**53, 2**53 + 1, 2**70)],
    "IntEnum": [(Number.ONE, Decimal(1))],
    "np.int64": [(np.int64(each), Decimal(each)) for each in (0, 1, 2**53, 2**53 + 1)],
    "np.uint64": [(np.uint64(each), Decimal(each)) for each in (2**63, 2**64 - 1)],
    "float": [(each, Decimal(each)) for each in (0.0, -0.5, 0.1, 1.2, 1.4, 1e300, 2.0**24 + 1)],
    "np.float64": [(np.float64(each), Decimal(each)) for each in (1.2, 1.4, 1.0)],
    "np.float32": [(np.float32(each), Decimal(float(np.float32(each)))) for each in (0.1, 1.5)],
    "np.float16": [(np.float16(each), Decimal(float(np.float16(each)))) for each in (0.1, 1.5)],
    "np.longdouble": [(np.longdouble("0.1"), "long")],
    "Decimal": [(Decimal(each), Decimal(each)) for each in ("1", "1.5", "1.25", "1.254", "1e40")],
    "str": [(each, each) for each in ("a", "b", "1", "ab" * 8)],
    "bytes": [(each, each) for each in (b"a", b"b", b"1", b"ab" * 8)],
    "date": [(dt.date(2024, 1, day), dt.date(2024, 1, day)) for day in (1, 2)],
    "datetime": [
        (each, each)
        for each in (
            dt.datetime(2024, 1, 1),
            dt.datetime(2024, 1, 1, 5),
            dt.datetime(2024, 1, 1, 5, 0, 0, 1000),
            dt.datetime(2024, 1, 1, 5, 0, 0, 1001),
            dt.datetime(9999, 1, 1),
        )
    ],
    "datetime with a zone": [
        (each, each.astimezone(dt.timezone.utc))
        for each in (
            dt.datetime(2024, 1, 1, tzinfo=HOUR),
            dt.datetime(2023, 12, 31, 23, tzinfo=dt.timezone.utc),
            dt.datetime(2024, 1, 1, 0, 0, 0, 5, tzinfo=HOUR),
        )
    ],
    "time": [(dt.time(1, 2, 3, micro),) * 2 for micro in (0, 1000, 1001)],
    "time with a zone": [(dt.time(1, tzinfo=HOUR), "zoned")],
    "timedelta": [(dt.timedelta(microseconds=each),) * 2 for each in (0, 10**6, 1000, 1, 86400)],
    "Timestamp": [
        (Timestamp(micros=each), each) for each in (1720087200 * 10**6, 1720087200500000, 1)
    ],
    "Duration": [(Duration(5), "duration")],
    "UUID": [(uuid.UUID(int=each), uuid.UUID(int=each)) for each in (1, 2)],
    "np.datetime64": [(np.datetime64("2024-01-01T00:00:00.000001"), "numpy time")],
    "np.timedelta64": [(np.timedelta64(5, "us"), "numpy duration")],
    "list": [([1], "list")],
}
TYPES = [
    pa.bool_(),
    *(pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal128(10, 2), pa.decimal128(38, 0), pa.decimal256(50, 3)),
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(16), pa.binary(1)),
    *(pa.date32(), pa.date64()),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns")),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.dictionary(pa.int32(), each) for each in (pa.string(), pa.int64())),
    *([pa.uuid()] if hasattr(pa, "uuid") else []),
]
# The classes that each kind of type takes: the table of docs/transform.md.
TAKEN = {
    "bool": {"bool", "np.bool_"},
    "int": {"int", "IntEnum", "np.int64", "np.uint64"},
    "halffloat": {"np.float16"},
    "float": {"np.float16", "np.float32", "int", "IntEnum"},
    "double": {"float", "np.float64", "np.float32", "np.float16", "int", "IntEnum", "np.int64"}
    | {"np.uint64"},
    "decimal": {"Decimal", "int", "IntEnum"},
    "string": {"str"},
    "binary": {"bytes"},
    "date": {"date"},
    "timestamp": {"datetime"},
    "zoned": {"datetime with a zone", "Timestamp"},
    "time": {"time"},
    "duration": {"timedelta"},
    "uuid": {"UUID"},
}


def kind_of(type: pa.DataType) -> str:
    name = str(type.value_type if pa.types.is_dictionary(type) else type)
    if ", tz=" in name:
        return "zoned"
    kinds = ("uuid", "string", "binary", "double", "halffloat", "float", "bool", "decimal")
    kinds += ("duration", "date", "timestamp", "time", "int")
    return next(each for each in kinds if each in name)


def check_units(found: list[str | None], values: list[tuple[Any, Any]]) -> None:
    """Check that values are one unit if they are equal, and that others are missing or differ."""
    for (one, (_, first)), (other, (_, second)) in itertools.combinations(
        zip(found, values, strict=True), 2
    ):
        assert None in (one, other) or (one == other) == (first == second), (first, second)


def check_class(type: pa.DataType, name: str) -> None:
    """Check that values of a class are refused by it alone, or each is itself or missing."""
    schema = pa.schema({"id": type})
    if name not in TAKEN[kind_of(type)]:
        for value, _ in VALUES[name]:
            with pytest.raises(InputError, match=f"column 'id' has type .*{type_name(type)}"):
                to_batch([{"id": value}, {"id": None}], schema)
        return
    batch = to_batch([{"id": value} for value, _ in VALUES[name]], schema)
    assert batch.schema == schema
    if has_ids(type):
        check_units(unit_ids(batch.column(0)), VALUES[name])


def check_classes(type: pa.DataType) -> None:
    """Check values of all classes of a type in one column."""
    values = [each for name in TAKEN[kind_of(type)] for each in VALUES[name]]
    batch = to_batch([{"id": value} for value, _ in values], pa.schema({"id": type}))
    found = unit_ids(batch.column(0))
    assert any(found)
    check_units(found, values)


@pytest.mark.parametrize("kind", TAKEN)
def test_a_declared_type_never_changes_a_unit(kind: str) -> None:
    types = [type for type in TYPES if kind_of(type) == kind]
    if kind != "uuid" or hasattr(pa, "uuid"):
        check_every_case(check_class, itertools.product(types, VALUES))
    together = [(type,) for type in types if has_ids(type)]
    if together and kind != "zoned":  # Python compares no Timestamp with others
        check_every_case(check_classes, together)


def type_name(type: pa.DataType) -> str:
    return str(type).split("[")[0].split("(")[0].split("<")[0]


def test_values_that_a_type_holds_are_read_exactly() -> None:
    schema = pa.schema({"at": pa.timestamp("us", "UTC"), "s": pa.timestamp("s", "UTC")})
    rows = [{"at": each, "s": each} for each in map(Timestamp, (1720087200, 1720087200.5))]
    moment = dt.datetime(2024, 7, 4, 10, tzinfo=dt.timezone.utc)
    later = moment + dt.timedelta(milliseconds=500)
    assert [row["at"] for row in to_batch(rows, schema).to_pylist()] == [moment, later]
    assert [row["s"] for row in to_batch(rows, schema).to_pylist()] == [moment, None]
    beyond = [{"at": Timestamp.of(2**62 // 10**6), "s": None}]
    assert to_batch(beyond, schema).column(0).cast(pa.int64()).to_pylist() == [
        2**62 // 10**6 * 10**6
    ]


# --- columns of files, batches and periods ---

# One person, 1 to 3, in columns of all types: what writers make of the same ids.
_NUMBERS = [1, 2, 3]
_DAYS = [dt.date(2024, 1, each) for each in _NUMBERS]
COLUMNS: dict[str, pa.Array] = {
    **{
        str(type): pa.array(_NUMBERS, pa.int64()).cast(type)
        for type in (
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
            *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            *(pa.decimal128(30, 0), pa.decimal128(30, 2), pa.decimal256(50, 0)),
            *(pa.float32(), pa.float64(), pa.string(), pa.large_string()),
        )
    },
    "halffloat": pa.array(np.array(_NUMBERS, np.float16)),
    "bool": pa.array([True, False, True]),
    "view": pa.array(["1", "2", "3"], pa.string_view()),
    "dictionary": pa.array(["1", "2", "3"]).dictionary_encode(),
    "large dictionary": pa.array(["1", "2", "3"], pa.large_string()).dictionary_encode(),
    "dictionary of integers": pa.array(_NUMBERS).dictionary_encode(),
    "binary": pa.array([b"1", b"2", b"3"]),
    "large binary": pa.array([b"1", b"2", b"3"], pa.large_binary()),
    "binary view": pa.array([b"1", b"2", b"3"], pa.binary_view()),
    "binary(1)": pa.array([b"1", b"2", b"3"], pa.binary(1)),
    "binary(16)": pa.array([uuid.UUID(int=each).bytes for each in _NUMBERS], pa.binary(16)),
    "date32": pa.array(_DAYS, pa.date32()),
    "date64": pa.array(_DAYS, pa.date64()),
    **{
        str(type): pa.array(_DAYS, pa.date32()).cast(pa.timestamp("s")).cast(type)
        for type in (
            *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
            *(pa.timestamp(unit, "UTC") for unit in ("s", "us")),
            pa.timestamp("us", "Asia/Tokyo"),
        )
    },
    **{
        str(type): pa.array([dt.time(0, 0, each) for each in _NUMBERS], type)
        for type in (pa.time32("s"), pa.time32("ms"), pa.time64("us"))
    },
    "duration[s]": pa.array(_NUMBERS).cast(pa.duration("s")),
    "duration[us]": pa.array(_NUMBERS).cast(pa.duration("s")).cast(pa.duration("us")),
    "null": pa.nulls(3),
}
if hasattr(pa, "uuid"):
    COLUMNS["uuid"] = pa.ExtensionArray.from_storage(pa.uuid(), COLUMNS["binary(16)"])
# Types in which a person is one unit, without a declared type.
ALIKE = [
    {name for name in COLUMNS if name.startswith(("int", "uint", "decimal"))}
    | {"dictionary of integers"},
    {"string", "large_string", "view", "dictionary", "large dictionary"},
    {"binary", "large binary", "binary view"},
    {"binary(16)", "uuid"},
    {name for name in COLUMNS if name.startswith(("date", "timestamp")) and "tz=" not in name},
    {name for name in COLUMNS if "tz=" in name},
    {"time32[s]", "time32[ms]", "time64[us]"},
    {"duration[s]", "duration[us]"},
]
PAIRS = list(itertools.combinations_with_replacement(COLUMNS, 2))


def refused(one: pa.Array, other: pa.Array, type: UnitType | None = None) -> bool:
    """Whether a unit of two types is refused."""
    unit, others = unit_plan(type).unit, {}
    try:
        for each in (one, other):
            others = check_unit_types(unit, {"id": each.type}, others)
    except ValueError as error:
        assert "privacy.unit_type" in str(error) or "needs" in str(error)
        return True
    return False


def batches(*columns: pa.Array) -> list[pa.RecordBatch]:
    return [pa.record_batch({"id": each, "x": pa.array([1] * len(each))}) for each in columns]


@pytest.mark.parametrize("declared", [None, *UnitType])
def test_two_types_are_one_unit_or_refused(declared: UnitType | None) -> None:
    """All pairs of types in two inputs."""
    alike = 0
    for one, other in PAIRS:
        first, second = COLUMNS[one], COLUMNS[other]
        if refused(first, second, declared):
            assert declared is not None or not any({one, other} <= each for each in ALIKE)
            continue
        ids, same = unit_ids(first, declared), unit_ids(second, declared)
        if "null" in (one, other):
            continue
        alike += 1
        assert ids == same, (one, other)
    assert alike > 50


def _files(folder: Path, *columns: pa.Array) -> list[str]:
    paths = [str(folder / f"{place}.parquet") for place in range(len(columns))]
    for path, batch in zip(paths, batches(*columns), strict=True):
        pq.write_table(pa.Table.from_batches([batch]), path)
    return paths


def test_files_of_two_families_are_refused_before_a_row_is_read(tmp_path: Path) -> None:
    """All pairs of types, by the launcher, and by a worker that opens the other file."""
    plan = unit_plan()
    written = {}
    for name, column in COLUMNS.items():
        folder = tmp_path / str(len(written))
        folder.mkdir()
        (written[name],) = _files(folder, column)
    reader = find_reader("parquet")
    for one, other in itertools.product(COLUMNS, repeat=2):
        paths = [written[one], written[other]]
        first = file_unit_families(plan.unit, paths[:1], "parquet", {})
        known = replace(plan, unit_families=first)
        if refused(COLUMNS[one], COLUMNS[other]):
            with pytest.raises(InputError, match=r"privacy unit .*privacy.unit_type"):
                file_unit_families(plan.unit, paths, "parquet", {})
            with pytest.raises(InputError, match=r"privacy unit .*privacy.unit_type"):
                reader.splits(paths[1], paths[1], known)
        else:
            file_unit_families(plan.unit, paths, "parquet", {})
            reader.splits(paths[1], paths[1], known)


def test_a_file_without_a_type_is_passed_over(tmp_path: Path) -> None:
    """40 files whose ids are all null do not hide the types of the others."""
    plan = unit_plan()
    paths = _files(tmp_path, *[pa.nulls(3)] * 40, COLUMNS["int64"], pa.nulls(3))
    # In the middle of more files than are looked at first.
    paths = [*paths[:20], paths[40], *paths[20:40], paths[41]]
    found = file_unit_families(plan.unit, paths, "parquet", {})
    assert found == {"id": "integers"}


def test_periods_of_two_families_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pairs of types; a series of an earlier version, without types, goes on."""
    plan = unit_plan()
    monkeypatch.setattr(carry, "has_earlier_units", lambda _: True)
    monkeypatch.setattr(ReleasePlan, "run", type("Run", (), {"period": 2})())
    families = {name: families_of(plan, column) for name, column in COLUMNS.items()}
    for one, other in itertools.product(COLUMNS, repeat=2):
        left = LeftByRun("period-0001", "", [], families[one])
        monkeypatch.setattr(carry, "left_by_run", lambda *_, left=left: left)
        known = replace(plan, unit_families=families[other])
        if refused(COLUMNS[one], COLUMNS[other]):
            with pytest.raises(SeriesError, match=r"period-0001 .*privacy.unit_type"):
                carry.series_families(known, "period-0002")
        else:
            joined = carry.series_families(known, "period-0002")
            assert joined == families[one] | families[other]


def families_of(plan: ReleasePlan, column: pa.Array) -> dict[str, str]:
    return check_unit_types(plan.unit, {"id": column.type})


def test_rows_in_memory_of_two_families_are_refused() -> None:
    with pytest.raises(ValueError, match="one unit could count as two"):
        release_rows(unit_plan(), elements("int64", "string"), ReleaseKey(bytes(range(32))))


def failed(plan: ReleasePlan, rows: Any, folder: Path, key: Any, **given: Any) -> str | None:
    """The sentence in which a job fails."""
    with pytest.raises(Exception) as caught, beam.Pipeline(LOCAL_RUNNER) as pipeline:
        pipeline | rows | ReleaseTrees(plan, key=key, output=str(folder), **given)
    return sentence_in(str(caught.value))


def elements(*names: str) -> Iterator[pa.RecordBatch]:
    yield from batches(*(COLUMNS[name] for name in names))


def test_batches_of_two_families_stop_the_job(reference: Any, tmp_path: Path) -> None:
    reported = failed(
        unit_plan(), beam.Create(list(elements("int64", "string"))), tmp_path, reference
    )
    assert reported is not None and "one unit could count as two" in reported
    assert not (tmp_path / "record.json").exists()


def test_tables_are_taken(reference: Any, tmp_path: Path) -> None:
    """Tables as ReadFromParquetBatched gives them: declared or not, and with a schema."""
    tables = [pa.Table.from_batches([each]) for each in elements("int64", "int32")]
    schema = pa.schema({"id": pa.int64(), "x": pa.int64()})
    made = []
    for place, (rows, given) in enumerate(
        [
            (beam.Create(tables), {}),
            (beam.Create(tables).with_output_types(pa.Table), {}),
            (beam.Create(tables[:1] * 2).with_output_types(pa.Table), {"schema": schema}),
            (beam.Create(tables[:1] * 2).with_output_types(Any), {"schema": schema}),
        ]
    ):
        output = tmp_path / str(place)
        with beam.Pipeline(LOCAL_RUNNER) as pipeline:
            release = ReleaseTrees(
                unit_plan(), key=reference, output=str(output), nonce=bytes(16), **given
            )
            pipeline | rows | release
        made.append((output / "record.json").read_bytes())
    assert len(set(made)) == 1
    reported = failed(unit_plan(), beam.Create(tables), tmp_path / "no", reference, schema=schema)
    assert reported == "rows: column 'id' is declared as int64, but a batch has int32"
