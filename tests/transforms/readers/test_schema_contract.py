"""The contract about the columns of an input."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.transforms.contract import SchemaContract, arrow_type, unencoded
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.read import check_contract


def test_names_of_types() -> None:
    """Every type has the name that Arrow writes; an encoding is not a part of it."""
    zoned, moment = pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ns")
    plain = [pa.int8(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.time64("us")]
    for type in (*plain, moment, zoned, pa.decimal128(10, 2), pa.decimal256(50, 0)):
        assert arrow_type(str(type)) == str(type) == unencoded(str(type))
    for type in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        assert unencoded(str(type)) == "string"
    assert arrow_type("large_string") == arrow_type("utf8") == "string"


def test_what_is_no_type() -> None:
    for text in ("", "integer", "list<int64>", "decimal128(99, 2)", "int64 "):
        with pytest.raises(ValueError, match=r"must be the name|precision"):
            SchemaContract(types={"a": text})
    with pytest.raises(ValueError, match="at least one column"):
        SchemaContract(types={})


def write(path: Path, **columns: pa.Array) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_files_that_keep_the_contract(tmp_path: Path) -> None:
    contract = SchemaContract(types={"n": "int64", "s": "string", "at.zip": "string"})
    address = pa.array([{"zip": "10115"}])
    for type in (pa.string(), pa.large_string()):
        columns = {"n": pa.array([1]), "s": pa.array(["a"], type), "at": address}
        path = write(tmp_path / str(type) / "a.parquet", **columns, more=pa.array([1.0]))
        check_contract(contract, [path], "parquet", {})


def test_a_folder_of_the_path_is_a_string(tmp_path: Path) -> None:
    path = write(tmp_path / "year=2024" / "a.parquet", n=pa.array([1]))
    check_contract(SchemaContract(types={"year": "string", "n": "int64"}), [path], "parquet", {})
    with pytest.raises(InputError, match="has column 'year' of type string, and it must have"):
        check_contract(SchemaContract(types={"year": "int64"}), [path], "parquet", {})


def test_the_last_of_many_files_breaks_it(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{n:02}.parquet", n=pa.array([n])) for n in range(40)]
    check_contract(SchemaContract(types={"n": "int64"}), paths, "parquet", {})
    write(Path(paths[-1]), n=pa.array(["kumquat"]))
    with pytest.raises(InputError) as caught:
        check_contract(SchemaContract(types={"n": "int64"}), paths, "parquet", {})
    assert caught.value.sentence == (
        f"input.schema: {paths[-1]} has column 'n' of type string, and it must have type int64"
    )
    assert not caught.value.again
    write(Path(paths[20]), m=pa.array([1]))  # the first one in order is named
    with pytest.raises(InputError, match=r"20\.parquet has no column 'n', which must have type"):
        check_contract(SchemaContract(types={"n": "int64"}), paths, "parquet", {})
