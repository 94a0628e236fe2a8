"""Scripts of readers: one table in every format, checked and released."""

from __future__ import annotations

import bz2
import gzip
import json
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

from tests.golden.rows import table, write_config
from tests.golden.script import COLOURS, script
from tests.golden.shell import Shell
from tests.optional import table_library

TREES = (
    "name: n, domain: {column: n, type: integer, lower: 0, upper: 100}, "
    "group_by: {column: colour, keys: [red, blue, green]}",
    "name: x, domain: {column: x, lower: 0, upper: 100, cells: 50}",
    "name: day, domain: {column: day, lower: 2024-01-01, upper: 2025-01-01}",
    "name: at, domain: {column: at, lower: 2024-01-01 00:00:00, upper: 2024-04-01 00:00:00, "
    "cells: 91}",
)
NAMES = ["n", "x", "colour", "day", "at"]


def small() -> pa.Table:
    """Rows of the columns that are read."""
    return table(120).select(NAMES)


def read(
    run: Shell, name: str, section: str, *trees: str, release: bool = True, **more: str
) -> None:
    """Check and release rows of an input."""
    path = write_config(name, *(trees or TREES), input=f"{{{section}}}", **more)
    run(f"plan {path}") if more or "header" in section or "_format" in section else None
    run(f"check {path}")
    if release:
        run.release(path)
        run.files(f"out/{name}")


@script("inputs")
def formats(run: Shell) -> None:
    """Parquet, Arrow, JSON lines and CSV, compressed or not, in folders and lists."""
    rows = small()
    pq.write_table(rows, "a.parquet")
    for each, count in (("file", pa.ipc.new_file), ("stream", pa.ipc.new_stream)):
        with pa.OSFile(f"{each}.arrow", "wb") as sink, count(sink, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=50)
    lines = "".join(json.dumps(each, default=str) + "\n" for each in rows.to_pylist())
    lines += '{"n": "7", "x": true}\n[1]\n\nnothing\n{"n": 7.5, "colour": {"a": 1}, "day": "x"}\n'
    Path("a.json").write_text(lines)
    Path("a.json.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    Path("a.json.bz2").write_bytes(bz2.compress(lines.encode()))
    for kind in ("zstd", "lz4"):
        with pa.CompressedOutputStream(f"a.json.{kind}", kind) as stream:
            stream.write(lines.encode())
    pyarrow.csv.write_csv(rows, "a.csv")
    read(run, "parquet", "format: parquet, path: a.parquet")
    read(run, "arrow", "format: arrow, path: [file.arrow, stream.arrow]")
    read(run, "json", "format: json, path: a.json")
    read(run, "jsons", "format: json, path: 'a.json.*'")
    read(run, "csv", "format: csv, path: a.csv")
    read(run, "fail", "format: json, path: a.json, malformed: fail")
    run("check csv.yaml --json")
    run("check csv.yaml --rows 10")
    Path("parts/year=2023/colour=red").mkdir(parents=True)
    Path("parts/year=2024/colour=b%6Cue").mkdir(parents=True)
    pq.write_table(rows.drop_columns(["colour"]), "parts/year=2023/colour=red/a.parquet")
    less = rows.drop_columns(["colour", "x"])
    pq.write_table(less, "parts/year=2024/colour=b%6Cue/b.parquet")
    Path("parts/_SUCCESS").touch()
    year = "name: year, domain: {column: year, type: integer, lower: 2020, upper: 2025}"
    read(
        run,
        "parts",
        "format: parquet, path: parts/, missing_column: 'null', require: _SUCCESS",
        *TREES,
        year,
    )
    read(run, "refused", "format: parquet, path: parts/", *TREES, year)
    types = "{n: int64, x: double, colour: string, day: date32, at: 'timestamp[us]'}"
    read(
        run,
        "contract",
        f"format: parquet, path: a.parquet, schema: {types}, min_files: 1, max_age: 900d",
    )
    nested = pa.table(
        {
            "a": pa.array([{"b": i % 9, "c": "x"} for i in range(60)]),
            "t": pa.array([i % 2 == 0 for i in range(60)]),
        }
    )
    pq.write_table(nested, "nested.parquet")
    read(
        run,
        "nested",
        "format: parquet, path: nested.parquet",
        "name: b, domain: {column: a.b, type: integer, lower: 0, upper: 9}",
        "name: t, domain: {column: t, categories: [false, true]}",
    )


@script("inputs")
def types_of_columns(run: Shell) -> None:
    """Unusual types and values of columns."""
    numbers = list(range(60))
    rows = pa.table(
        {
            "dictionary": pa.array([f"c{i % 4}" for i in numbers]).dictionary_encode(),
            "large": pa.array([f"c{i % 4}" for i in numbers], pa.large_string()),
            "bytes": pa.array([b"\xff" if i == 3 else f"c{i % 4}".encode() for i in numbers]),
            "decimal": pa.array([i / 4 for i in numbers]).cast(pa.decimal128(10, 2)),
            "floats": pa.array(
                [float("nan") if i == 5 else float("inf") if i == 6 else i / 2 for i in numbers],
                pa.float32(),
            ),
            "small": pa.array([None if i == 9 else i % 50 for i in numbers], pa.uint8()),
            "zone": pa.array([i * 86_400_000_000 for i in numbers], pa.timestamp("us", "UTC")),
            "nanos": pa.array([i * 3_600_000_000_000 for i in numbers], pa.timestamp("ns")),
            "lists": pa.array([[i] for i in numbers]),
            "nothing": pa.nulls(60),
        }
    )
    pq.write_table(rows, "types.parquet")
    integer = "type: integer, lower: 0, upper: 40"
    read(
        run,
        "types",
        "format: parquet, path: types.parquet",
        *(
            f"name: {each}, domain: {{column: {each}, categories: [c0, c1, c2], unknown: first}}"
            for each in ("dictionary", "large", "bytes")
        ),
        *(
            f"name: {each}, domain: {{column: {each}, {integer}, missing: last, "
            "out_of_range: drop}"
            for each in ("decimal", "floats", "small", "nothing")
        ),
        "name: zone, domain: {column: zone, lower: 1970-01-01 00:00:00Z, "
        "upper: 1970-03-01 00:00:00Z, cells: 59}",
        "name: nanos, domain: {column: nanos, lower: 1970-01-01 00:00:00, "
        "upper: 1970-01-03 00:00:00, cells: 48}",
        "name: keyed, domain: {column: decimal, lower: 0, upper: 20, cells: 4}, "
        "group_by: {column: small, keys: [1, 2, 3], unknown: other}",
        "name: sparse, domain: {kind: sparse, columns: [large, small]}",
        "name: values, domain: {kind: distinct, column: floats}",
        privacy="{epsilon: 8, delta: 1e-4, neighbors: add_remove}",
    )
    for name, tree in {
        "lists": "domain: {column: lists, lower: 0, upper: 4, cells: 4}",
        "texts": "domain: {column: large, lower: 0, upper: 4, cells: 4}",
        "zones": "domain: {column: zone, lower: 1970-01-01 00:00:00, "
        "upper: 1970-03-01 00:00:00, cells: 59}",
        "floats-range": "domain: {column: floats, values: [0, 9]}",
        "unit": "domain: {column: small, values: [0, 9]}",
    }.items():
        privacy = (
            "{epsilon: 1, neighbors: add_remove, unit: lists, max_rows: 2}"
            if name == "unit"
            else "{epsilon: 1, neighbors: add_remove}"
        )
        read(run, name, "format: parquet, path: types.parquet", f"name: a, {tree}", privacy=privacy)


@script("inputs")
def dialects(run: Shell) -> None:
    """CSV files of other programs, and their malformed rows."""
    rows = small()
    excel = ["sep=;", "n;x;colour;day;at"]
    tabs = ["# made by hand", "skipped", "n\tx\tcolour\tday\tat"]
    for each in rows.to_pylist():
        x = "" if each["x"] is None else f"{each['x'] * 100:,.2f}"
        german = x.replace(",", "_").replace(".", ",").replace("_", ".")
        day, at = each["day"], each["at"]
        excel.append(f"{each['n']};{german};{each['colour']};{day:%d.%m.%Y};{at:%d.%m.%Y %H:%M}")
        tabs.append(
            f"{each['n']}\t{each['x']}\t'{each['colour']}'\t{day:%Y%m%d}\t"
            f"{at:%Y-%m-%d %I:%M:%S %p}\t"
        )
    excel += [
        "1;2;3",
        "3;1.23,4;red;05.01.2024;05.01.2024 10:00",
        'a;"b',
        "NA;1;red;31.02.2024;x",
        ";;;;",
        "7;8;Köln;01.01.2024;01.01.2024 10:00;9",
    ]
    tabs += ["# a comment", "12\t\\N\tre\\\td\t20240105\tnoon\t", "", "5\t6"]
    x = TREES[1].replace("upper: 100", "upper: 10000")
    Path("excel.csv").write_bytes("\r\n".join(excel).encode("cp1252"))
    Path("tabs.csv").write_text("\n".join(tabs))
    Path("utf16.csv").write_bytes("\n".join(excel[1:]).encode("utf-16"))
    Path("bare.csv").write_text("".join(f"{i},red\n" for i in range(50)))
    Path("quoted.csv").write_text('n,colour\n1,"re\nd"\n2,"blue"\n3,"a ""b"" c"\n4,"open\n')
    german = (
        "separator: ';', decimal: ',', thousands: '.', null_values: {colour: [green], n: [NA]}, "
        "date_format: {day: '%d.%m.%Y', at: '%d.%m.%Y %H:%M'}"
    )
    options = {
        "excel": f"path: excel.csv, {german}, encoding: cp1252",
        "utf16": f"path: utf16.csv, {german}, encoding: utf-16",
        "tabs": "path: tabs.csv, separator: tab, quote: \"'\", escape: '\\', skip_lines: 2, "
        "comment: '#', trailing_separator: true, trim: true, null_values: [red], "
        "date_format: {day: '%Y%m%d', at: '%Y-%m-%d %I:%M:%S %p'}",
        "default": "path: excel.csv",
        "strict": f"path: excel.csv, {german}, encoding: cp1252, malformed: fail",
        "latin": f"path: excel.csv, {german}, encoding: utf-8",
    }
    for name, section in options.items():
        read(run, name, f"format: csv, {section}", TREES[0], x, *TREES[2:])
    two = ("name: n, domain: {column: n, type: integer, lower: 0, upper: 100}, " + COLOURS,)
    read(run, "bare", "format: csv, path: bare.csv, header: false, columns: [n, colour]", *two)
    read(run, "bare2", "format: csv, path: bare.csv", *two)
    read(run, "lines", "format: csv, path: quoted.csv, newlines: true", *two)
    read(run, "ends", "format: csv, path: quoted.csv, quote: false", *two)
    shaky = '1,red\n 2,red \n3.0,RED\n1e1,\n"1,234",blue\n007,green\n,\nx y,?\n-5,red\n'
    shaky += "500,blue\n7,red,8\n"
    Path("shaky.csv").write_text("n,colour\n" + shaky * 5)
    read(run, "shaky", "format: csv, path: shaky.csv", *two)
    run("check shaky.yaml --json")
    person = "{epsilon: 1, neighbors: add_remove, unit: n, max_rows: 2}"
    path = write_config(
        "own",
        "name: c, domain: {column: colour, categories: [red, blue]}",
        input="{format: csv, path: shaky.csv}",
        privacy=person.replace("unit: n", "unit: n, unit_type: integer"),
    )
    run(f"check {path}")
    run.release(path)
    run.files("out/own")
    for name, content in {
        "page": b"<html><body>",
        "zip": b"PK\x03\x04aaaa",
        "parquet": b"PAR1aaaa",
        "empty": b"",
        "array": b'[{"n": 1}]',
        "nul": b"n,colour\n\0\0",
    }.items():
        Path(f"{name}.csv").write_bytes(content)
        for kind in ("csv", "json", "parquet", "arrow"):
            read(run, f"{name}-{kind}", f"format: {kind}, path: {name}.csv", *two, release=False)


@script("inputs")
def lakes(run: Shell) -> None:
    """Tables of Delta, Iceberg and SQLite."""
    deltalake = table_library("deltalake", "DPTREES_REQUIRE_TABLES")
    table_library("adbc_driver_sqlite", "DPTREES_REQUIRE_TABLES")
    iceberg = table_library("pyiceberg.catalog.sql", "DPTREES_REQUIRE_TABLES")
    rows = small().drop_columns(["at"])
    deltalake.write_deltalake("lake", rows, partition_by=["colour"])
    deltalake.write_deltalake("lake", rows.slice(0, 20), mode="append")
    read(run, "delta", "format: delta, table: lake, version: 0", *TREES[:3])
    read(run, "newest", "format: delta, table: lake", *TREES[:3])
    read(run, "absent", "format: delta, table: lake, version: 9", *TREES[:3])
    read(run, "nowhere", "format: delta, table: nowhere", *TREES[:3])
    with sqlite3.connect("rows.db") as database:
        database.execute("CREATE TABLE visits (n INTEGER, x REAL, colour TEXT, day TEXT)")
        values = [
            (each["n"], each["x"], each["colour"], str(each["day"])) for each in rows.to_pylist()
        ]
        database.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", values)
    connection = Path("place")
    connection.write_text("rows.db")
    connection.chmod(0o600)
    source = "format: adbc, driver: sqlite, connection: 'file:place'"
    read(run, "sqlite", f"{source}, table: visits", *TREES[:2])
    read(
        run,
        "query",
        f"{source}, query: 'SELECT n, x, colour FROM visits WHERE n < 50', repeatable: true",
        *TREES[:2],
    )
    read(run, "nothing", f"{source}, table: nothing", *TREES[:2])
    here = Path.cwd()
    catalog = iceberg.SqlCatalog(
        "default", uri=f"sqlite:///{here}/catalog.db", warehouse=f"file://{here}/warehouse"
    )
    catalog.create_namespace("shop")
    created = catalog.create_table("shop.visits", schema=rows.schema)
    created.append(rows)
    location = created.metadata_location.removeprefix("file://")
    read(run, "iceberg", f"format: iceberg, table: '{location}'", *TREES[:3])


@script("inputs")
def lists_of_keys(run: Shell) -> None:
    """Long lists of keys, numbers far apart, files of keys and tuples."""
    numbers = range(400)
    pq.write_table(
        pa.table(
            {
                "text": [f"k{i * 41 % 5000}" for i in numbers],
                "far": [(i % 9) * 10**11 + i % 3 for i in numbers],
                "one": [i % 30 for i in numbers],
                "two": [f"t{i % 40}" for i in numbers],
                "leaf": [f"{i * 7 % 5000:05d}" for i in numbers],
            }
        ),
        "keyed.parquet",
    )
    Path("texts.txt").write_text("".join(f"k{i}\n" for i in range(5000)))
    pq.write_table(pa.table({"far": [i * 10**11 for i in range(9)]}), "far.parquet")
    Path("two.csv").write_text("two\n" + "".join(f"t{i}\n" for i in range(30)))
    pq.write_table(pa.table({"leaf": list(range(5000))}), "leaves.parquet")
    count = "domain: {column: one, values: [0, 29]}, objective: counts, mechanism: histogram"
    total = "domain: {column: one, values: [0, 29]}, objective: mean"
    read(
        run,
        "keys",
        "format: parquet, path: keyed.parquet",
        f"name: texts, {total}, group_by: {{column: text, keys_file: texts.txt}}",
        f"name: far, {count}, group_by: {{column: far, keys_file: far.parquet, unknown: other}}",
        f"name: two, {count}, group_by: {{column: two, keys_file: two.csv, unknown: other}}",
        f"name: both, {total}, group_by: {{columns: [one, two], "
        f"keys: {{one: {list(range(30))}, two: [{', '.join(f't{i}' for i in range(40))}]}}}}",
        "name: values, domain: {column: far, categories: [0, 100000000000, 1, 5], unknown: last}",
        "name: codes, domain: {kind: hierarchy, column: leaf, digits: [2, 3], levels: [a, b], "
        "table: leaves.parquet}",
        "name: names, domain: {kind: hierarchy, columns: [two, one], unknown: other, "
        f"leaves: {{two: [{', '.join(f't{i}' for i in range(40))}], one: {list(range(25))}}}}}",
        f"name: private, {total}, group_by: {{columns: [one, two], keys: private, "
        "type: [integer, text], fraction: 0.3}",
        privacy="{epsilon: 32, delta: 0.001, neighbors: add_remove}",
    )
