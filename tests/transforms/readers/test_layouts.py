"""The same rows, whatever the format and the folders; what is passed over in folders."""

import json
import os
from datetime import date, timedelta
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.config.configuration import parse_configuration
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder.listing import match_files
from dptrees.transforms.readers.formats import find_reader
from dptrees.transforms.readers.read import FileSplit
from tests.transforms.readers.read_files import read_batches

CONFIGURATION = """
release: layouts
input: {format: parquet, path: anything/}
output: out/layouts
key_file: release.key
privacy: {epsilon: 1, delta: 1e-6, neighbors: add_remove}
trees:
  - name: age
    domain: {column: age, type: integer, lower: 0, upper: 120}
    group_by: {column: city, keys: [Oslo, São Paulo, a/b=c]}
  - name: year
    domain: {column: year, type: integer, lower: 2020, upper: 2030, missing: first}
  - name: zip
    domain: {kind: sparse, columns: [address.zip]}
  - name: day
    domain: {column: day, lower: 2024-01-01, upper: 2025-01-01}
"""


@cache
def plan() -> ReleasePlan:
    """Takes a second to make, which collecting tests must not wait for."""
    return parse_configuration(CONFIGURATION).plan()


SCHEMA = pa.schema(
    {
        "age": pa.int64(),
        "year": pa.int32(),
        "city": pa.string(),
        "address": pa.struct({"zip": pa.string(), "more": pa.list_(pa.int8())}),
        "day": pa.date32(),
    }
)
ROWS = pa.Table.from_pylist(
    [
        {
            "age": row % 110,
            "year": (2022, 2023, None)[row % 3],
            "city": ("Oslo", "São Paulo", "a/b=c", "none")[row % 4],
            "address": {"zip": str(10000 + row % 50), "more": [1]} if row % 7 else None,
            "day": date(2024, 1, 1) + timedelta(days=row % 366) if row % 11 else None,
        }
        for row in range(700)
    ],
    SCHEMA,
)
HIVE = pa_dataset.partitioning(pa.schema({"year": pa.int32(), "city": pa.string()}), flavor="hive")


def flat_rows(table: pa.Table) -> pa.Table:
    """The columns as CSV has them."""
    zips = pa.array([each and each["zip"] for each in table["address"].to_pylist()], pa.string())
    return table.drop_columns(["address"]).append_column("address.zip", zips)


def json_lines(table: pa.Table) -> str:
    return "".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist())


def sorted_rows(path: str, format: str) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for file, _ in match_files((path,)):
        for batch in read_batches(format, file, plan()):
            assert batch.schema.names == list(plan().columns)
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return sorted(rows, key=repr)


def write_hive(folder: Path, format: str) -> None:
    """Folders of years and cities, as Spark names them, of a format that Arrow does not write."""
    names = [f.name for f in SCHEMA if f.name not in ("year", "city")]
    whole = pa_dataset.dataset(ROWS)
    for part in ROWS.group_by(["year", "city"]).aggregate([]).to_pylist():
        year, city = part["year"], part["city"]
        is_year = (
            pa_dataset.field("year").is_null() if year is None else pa_dataset.field("year") == year
        )
        rows = whole.to_table(filter=is_year & (pa_dataset.field("city") == city)).select(names)
        city = {"São Paulo": "S%C3%A3o Paulo", "a/b=c": "a%2Fb%3Dc"}.get(city, city)
        place = folder / f"year={year or '__HIVE_DEFAULT_PARTITION__'}" / f"city={city}"
        place.mkdir(parents=True)
        if format == "csv":
            pa_csv.write_csv(flat_rows(rows), place / "part.csv")
        else:
            (place / "part").write_text(json_lines(rows))


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("layouts")
    (root / "one").mkdir()
    pq.write_table(ROWS, root / "one" / "a.parquet", row_group_size=100)
    pa_dataset.write_dataset(ROWS, root / "hive", format="parquet", partitioning=HIVE)
    (root / "hive" / "_SUCCESS").touch()
    (root / "hive" / ".a.parquet.crc").write_text("x")
    (root / "hive" / "year=2022" / "_old").mkdir()
    (root / "hive" / "year=2022" / "_old" / "a.parquet").write_text("x")
    (root / "arrow").mkdir()
    with pa.ipc.new_file(str(root / "arrow" / "a"), SCHEMA) as writer:
        writer.write_table(ROWS.slice(0, 300), max_chunksize=7)
    with pa.ipc.new_stream(str(root / "arrow" / "b.arrows"), SCHEMA) as writer:
        writer.write_table(ROWS.slice(300, 100), max_chunksize=30)
    feather.write_feather(ROWS.slice(400), str(root / "arrow" / "c.feather"), compression="zstd")
    (root / "json").mkdir()
    (root / "json" / "a.jsonl").write_text(json_lines(ROWS))
    pa_csv.write_csv(flat_rows(ROWS), root / "a.csv")
    write_hive(root / "csv-hive", "csv")
    write_hive(root / "json-hive", "json")
    return root


@pytest.mark.parametrize(
    "place, format",
    [
        ("one/", "parquet"),
        ("one", "parquet"),
        ("hive", "parquet"),
        ("hive/**", "parquet"),
        ("hive/year*/city*/*.parquet", "parquet"),
        ("arrow/", "arrow"),
        ("json", "json"),
        ("a.csv", "csv"),
        ("csv-hive", "csv"),
        ("json-hive", "json"),
    ],
)
def test_every_layout_gives_the_same_rows(layouts: Path, place: str, format: str) -> None:
    expected = sorted_rows(str(layouts / "one" / "*.parquet"), "parquet")
    assert len(expected) == len(ROWS)
    assert sorted_rows(f"{layouts}/{place}", format) == expected


def column(folder: Path, name: str) -> set[object]:
    """The values of a column of the Parquet files in a folder."""
    place = plan().columns.index(name)
    return {row[place] for row in sorted_rows(str(folder), "parquet")}


def test_which_column_goes_before_another(tmp_path: Path) -> None:
    """A file's own before the path's, and a name with dots before a field."""
    (tmp_path / "year=1999").mkdir()
    pq.write_table(ROWS, tmp_path / "year=1999" / "a.parquet")
    assert sorted_rows(str(tmp_path), "parquet") == sorted(
        zip(*(flat_rows(ROWS)[name].to_pylist() for name in plan().columns), strict=True), key=repr
    )
    named = ROWS.append_column("address.zip", pa.array(["own"] * len(ROWS)))
    pq.write_table(named, tmp_path / "year=1999" / "a.parquet")
    assert column(tmp_path, "address.zip") == {"own"}


def test_a_value_of_a_path_that_is_none_is_missing(tmp_path: Path) -> None:
    (tmp_path / "year=soon").mkdir()
    pq.write_table(ROWS.drop_columns(["year"]), tmp_path / "year=soon" / "a.parquet")
    assert column(tmp_path, "year") == {None}


def test_a_field_that_is_not_there_is_reported(tmp_path: Path) -> None:
    for type in (pa.list_(pa.string()), pa.struct({"town": pa.string()})):
        odd = ROWS.set_column(3, "address", pa.nulls(len(ROWS), type))
        pq.write_table(odd, tmp_path / "a.parquet")
        with pytest.raises(InputError, match=r"has no column 'address\.zip'"):
            sorted_rows(str(tmp_path), "parquet")


def test_what_is_no_data_is_passed_over_in_folders_alone(tmp_path: Path) -> None:
    for name in ("a", "_b", ".c", "d.crc", "_e/f", "g/h", "g/_i"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = {
        glob: [os.path.relpath(path, tmp_path) for path, _ in match_files((f"{tmp_path}/{glob}",))]
        for glob in ("", "*", "_*", "**")
    }
    assert found == {"": ["a", "g/h"], "*": ["a"], "_*": ["_b"], "**": ["a", "g/h"]}


def test_a_folder_may_lie_below_hidden_ones_and_have_letters_of_globs(tmp_path: Path) -> None:
    folder = tmp_path / "_hidden" / "a[1]*"
    folder.mkdir(parents=True)
    (folder / "_SUCCESS").touch()
    with pytest.raises(InputError, match="no file matches"):
        match_files((str(folder),))
    (folder / "a").touch()
    assert [path for path, _ in match_files((str(folder),))] == [str(folder / "a")]


def test_an_arrow_file_cut_short_is_reported(layouts: Path, tmp_path: Path) -> None:
    whole = (layouts / "arrow" / "a").read_bytes()
    for cut in (3, 10, 200, -1, -20):
        (tmp_path / "a").write_bytes(whole[:cut])
        with pytest.raises(InputError, match="is not an Arrow IPC file or stream, or is damaged"):
            sorted_rows(str(tmp_path), "arrow")


def test_a_stream_of_arrow_may_come_from_any_filesystem(layouts: Path) -> None:
    for name, number in (("a", 300), ("b.arrows", 100)):
        path = str(layouts / "arrow" / name)
        with open(path, "rb") as file:
            runs, _ = find_reader("arrow").splits(file, path, plan())
        rows = 0
        for start, stop in runs:
            with open(path, "rb") as file:
                found = find_reader("arrow").batches(file, FileSplit(path, start, stop, 1), plan())
                rows += sum(batch.num_rows for batch in found)
        assert rows == number
