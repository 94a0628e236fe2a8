"""Domains of hierarchies: tables, leaves that are listed, weights and refusals."""

from __future__ import annotations

import re
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import dptrees
from dptrees.dpcore.hierarchy.calendar import universe_from_calendar
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import (
    universe_from_codes,
    universe_from_columns,
    universe_from_parents,
    universe_from_paths,
)
from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.irregular.planner import NodeWeights
from dptrees.pipelines.kinds.hierarchy_domain import (
    hierarchy_weights,
    invariant_level,
    read_hierarchy,
)
from dptrees.pipelines.python.config import plain
from dptrees.pipelines.sections.document import RuleBroken, parse_document
from dptrees.pipelines.sections.public_tables import read_leaves, read_universe
from tests.memory import stays_below
from tests.pipelines.hierarchy.tables import write_tables_of_the_document
from tests.pipelines.refusals import not_refused

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "configuration"
TABLE = pa.table(
    {
        "code": ["0101", "0203", "0102"],
        "state": ["RI", "CT", "RI"],
        "county": ["Kent", "Hartford", "Bristol"],
        "path": ["a/b", "c", "a/d"],
        "unit": ["x", "y", "z"],
        "parent_unit": pa.array([None, "x", "y"]),
    }
)
CODES = universe_from_codes(TABLE["code"], (2, 2), levels=("state", "county"))
COLUMNS = universe_from_columns({name: TABLE[name] for name in ("state", "county")})
PATHS = universe_from_paths(TABLE["path"], "/")
PARENTS = universe_from_parents(TABLE["unit"], TABLE["parent_unit"])


@pytest.fixture(autouse=True)
def leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with the table as Parquet and as CSV."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(TABLE, "leaves.parquet")
    pa_csv.write_csv(TABLE, "leaves.csv")


def read(text: str) -> HierarchyDomain:
    return read_hierarchy(parse_document(text, "a test"))


# --- every kind ---


@pytest.mark.parametrize(
    ("text", "universe", "columns"),
    [
        ("{column: code, digits: [2, 2], levels: [state, county]", CODES, ("code",)),
        (
            "{column: place, digits: [2, 2], levels: [state, county], table_column: code",
            CODES,
            ("place",),
        ),
        ("{columns: [state, county]", COLUMNS, ("state", "county")),
        (
            "{columns: [s, c], table_columns: [state, county], levels: [state, county]",
            COLUMNS,
            ("s", "c"),
        ),
        ('{column: path, separator: "/"', PATHS, ("path",)),
        ("{column: unit, parent: parent_unit", PARENTS, ("unit",)),
        ("{column: employer, parent: parent_unit, table_column: unit", PARENTS, ("employer",)),
    ],
)
def test_tables(text: str, universe: Universe, columns: tuple[str, ...]) -> None:
    for kind in ("parquet", "csv"):
        domain = read(f"{text}, kind: hierarchy, table: leaves.{kind}}}")
        assert domain == HierarchyDomain(universe=universe, columns=columns), kind


def test_columns_of_other_names_in_the_table_name_the_levels() -> None:
    text = "{columns: [s, c], table_columns: [state, county], table: leaves.csv}"
    assert read(text).tree.level_names == ("root", "s", "c")


def test_named_levels_of_paths_and_a_blank_as_separator() -> None:
    pa_csv.write_csv(pa.table({"p": ["usr bin", "etc init"]}), "paths.csv")
    domain = read('{column: p, separator: " ", levels: [top, sub], table: paths.csv}')
    assert domain.tree.level_names == ("root", "top", "sub")
    assert domain.tree.level_sizes == (1, 2, 2)


@pytest.mark.parametrize(
    ("bounds", "lower", "upper"),
    [
        ("lower: 2013-01-01, upper: 2014-01-01", date(2013, 1, 1), date(2014, 1, 1)),
        (
            "lower: 2013-01-01 06:00:00, upper: 2013-01-02",
            datetime(2013, 1, 1, 6),
            date(2013, 1, 2),
        ),
        (
            "lower: 2013-01-01T00:00:00Z, upper: 2013-01-02T01:00:00+01:00",
            datetime(2013, 1, 1, tzinfo=timezone.utc),
            datetime(2013, 1, 2, tzinfo=timezone.utc),
        ),
    ],
)
def test_calendars(bounds: str, lower: date, upper: date) -> None:
    levels = ("year", "month", "day", "hour")
    domain = read(f"{{column: t, calendar: [{', '.join(levels)}], {bounds}}}")
    assert domain.universe == universe_from_calendar(levels, lower, upper)
    assert domain.columns == ("t",)


def test_policies() -> None:
    text = "{column: path, separator: /, table: leaves.csv, unknown: other, missing: drop}"
    domain = read(text)
    rows = {"path": pa.array(["c", "elsewhere", None, "a/b"])}
    assert domain.leaf_ids(rows).tolist() == [2, 3, -1, 0]
    assert domain.tree.paths(2, np.arange(4)).to_pylist() == ["a/b", "a/d", "c", "other"]


def test_the_examples_of_the_document() -> None:
    write_tables_of_the_document()
    text = "".join(page.read_text(encoding="utf-8") for page in sorted(DOCUMENT.glob("*.md")))
    sizes = []
    for example in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        values: Any = parse_document(example, "a test")
        for tree in values if isinstance(values, list) else values.get("trees", []):
            if tree["domain"].get("kind") == "hierarchy":
                domain = read_hierarchy(tree["domain"])
                hierarchy_weights(domain, tree.get("level_weights"), tree.get("node_weights"))
                invariant_level(domain, tree.get("invariants"))
                sizes.append(domain.tree.level_sizes)
    blocks, routes, hours = (1, 1, 2, 2, 3, 4), (1, 2, 3), (1, 1, 12, 365, 8760)
    with_other = (1, 3, 4)
    relative = [blocks, blocks]
    named = [blocks, with_other, (1, 2, 2, 2), (1, 1, 2), hours]
    calendars = [(1, 53), (1, 7, 168)]  # weeks; hours of weekdays
    adaptive = [blocks, blocks]
    assert sizes == [*adaptive, *relative, *named, *calendars, blocks, routes]


# --- refusals ---

TABLED = "table: leaves.csv}"
CODE, PATH, DAY = "{column: code, ", "{column: path, separator: /, ", "{column: t, calendar: "
CODED = CODE + "digits: [2, 2], levels: [state, county], "
BOTH = "{columns: [state, county], "
UNIT = "{column: unit, parent: parent_unit, "
YEAR = "lower: 2013-01-01, upper: 2014-01-01"
HOURS = f"{DAY}[year, hour], {YEAR}"
MANY = ", ".join(f"l{i}" for i in range(33))
REFUSED = [
    ("[]", ": a list must be a section of keys and values"),
    (CODED + "kind: ordered, " + TABLED, ".kind: 'ordered' must be hierarchy"),
    (PATH + "seperator: '/', " + TABLED, ".seperator: unknown key; did you mean separa"),
    (PATH + "table: }", ".table: has no value"),
    ("{separator: /, " + TABLED, ": needs column or columns"),
    (BOTH + "digits: [2, 2], " + TABLED, ".digits: belongs to one column; each of several"),
    (CODED + "separator: /, " + TABLED, ".separator: does not go with digits; give one of the two"),
    (HOURS + ", parent: p, " + TABLED, ".calendar: does not go with parent; give one of the two"),
    (HOURS + ", " + TABLED, ".table: does not go with calendar, whose leaves follow from lower"),
    (HOURS + ", levels: [y, h]}", ".levels: belongs to columns, digits or separator; here"),
    (DAY + "[day], lower: 2013-01-01}", ".upper: is required with calendar"),
    (PATH + "lower: 2013-01-01, " + TABLED, ".lower: belongs to calendar"),
    (CODED + "upper: 2013-01-01, " + TABLED, ".upper: belongs to calendar"),
    (PATH[:-2] + "}", ".table: is required with separator, or leaves that are listed"),
    (CODE + "digits: [2, 2], " + TABLED, ".levels: is required with digits"),
    (UNIT + "levels: [a], " + TABLED, ".levels: belongs to columns, digits or separator; here the"),
    (BOTH + "table_column: a, " + TABLED, ".table_column: belongs to a column and its table"),
    (PATH + "table_columns: [a], " + TABLED, ".table_columns: belongs to columns; for one column"),
    (BOTH + "table_columns: [a], " + TABLED, ".table_columns: must hold as many names as columns"),
    (CODE + "digits: [2, 2], levels: [state], " + TABLED, ".levels: must hold as many names as"),
    (
        "{column: u, parent: unit, table_column: unit, " + TABLED,
        ".parent: 'unit' is the column of the nodes themselves",
    ),
    ("{column: 7, separator: /, " + TABLED, ".column: 7 must be a string; put it in quotes"),
    ("{columns: state, " + TABLED, ".columns: 'state' must be a list"),
    ("{columns: [], " + TABLED, ".columns: must have at least one value"),
    ("{columns: [a, 1], " + TABLED, ".columns[1]: 1 must be a string; put it in quotes"),
    ("{columns: [a, a], " + TABLED, ".columns[1]: a is listed twice"),
    ("{columns: [root, a], " + TABLED, ".columns: 'root' must be a text of at least one character"),
    (CODE + "digits: 4, levels: [a], " + TABLED, ".digits: 4 must be a list"),
    (CODE + "digits: [2, 0], levels: [a, b], " + TABLED, ".digits[1]: 0 must be a whole number"),
    (CODE + "digits: [9, 10], levels: [a, b], " + TABLED, ".digits: must be at most 18 together"),
    (CODE + "digits: [2, 2], levels: [a, root], " + TABLED, ".levels: 'root' must be a text of"),
    (PATH + f"levels: [{MANY}], " + TABLED, ".levels: must be at most 32, not 33"),
    ('{column: path, separator: "", ' + TABLED, ".separator: must not be empty"),
    ("{column: path, separator: 1, " + TABLED, ".separator: 1 must be a string; put it in "),
    (PATH + "table: [a.csv]}", ".table: a list must be a string"),
    (PATH + "unknown: last, " + TABLED, ".unknown: 'last' must be drop or other"),
    (PATH + "missing: 1, " + TABLED, ".missing: 1 must be drop or other"),
    (f"{DAY}[day, week], {YEAR}}}", ".calendar: must be some of year, quarter, month, day, hour;"),
    (f"{DAY}[week], {YEAR[:-5]}01-06}}", ".lower: 2013-01-01 must be the beginning of a week, a"),
    (DAY + "[weekday], lower: 2013-01-01}", ".lower: must be left out: days of the week come"),
    (f"{DAY}day, {YEAR}}}", ".calendar: 'day' must be a list"),
    (DAY + "[day], lower: 2014-01-01, upper: 2013-01-01}", ".lower: 2014-01-01 must be less than"),
    (
        DAY + "[month], lower: 2013-01-01, upper: 2013-01-02}",
        ".upper: 2013-01-02 must be the begin",
    ),
    (DAY + "[day], lower: 1.5, upper: 2013-01-02}", ".lower: 1.5 must be a date, or a date and"),
    (
        DAY + "[day], lower: 2013-01-01T00:00:00Z, upper: 2013-01-02}",
        ".lower: 2013-01-01 00:00:00+00:00 and upper 2013-01-02 must both have a time zone, or",
    ),
]


def test_sections_that_are_refused() -> None:
    assert not not_refused(read, REFUSED, RuleBroken)


def test_hours_over_millions_of_years_are_refused_at_once() -> None:
    section = "{column: t, calendar: [year, hour], lower: 2013-01-01, upper: 2002013-01-01}"
    row = (section, ".upper: '2002013-01-01' must be a date, or a date and time")
    assert stays_below(10e6, lambda: not_refused(read, [row], RuleBroken) == [])


DEEP = "/".join("a" * 33)
CHAIN = "n,up\n0,\n" + "".join(f"{i},{i - 1}\n" for i in range(1, 33))
BY_CODE = "{column: code, digits: [2, 2], levels: [state, county], table: t.csv}"
BY_PATH = "{column: p, separator: /, table: t.csv}"
NAMED = "{column: p, separator: /, levels: [top, sub], table: t.csv}"
BY_PARENT = "{column: n, parent: up, table: t.csv}"
BY_COLUMNS = "{columns: [s, c], table_columns: [a, b], table: t.csv}"
BAD_TABLES = [
    ("code\n0101\n0102,\n", BY_CODE, "t.csv is not a CSV file in UTF-8 with a header, in "),
    ("p\na/b\nc\na/b\n", BY_PATH, "column 'p': the leaf 'a/b' is listed more than once"),
    ("p\na/b\na\n", BY_PATH, "column 'p': 'a' is a leaf and has children as well"),
    (
        "p\nx/y\na//b\n",
        BY_PATH,
        "'p': a path must not begin or end with '/', nor have two in a row",
    ),
    (f"p\na\n{DEEP}\n", BY_PATH, "column 'p': a path must have at most 32 labels; 'a/a/a/a/a/a"),
    ("p\na/b\nc\n", NAMED, "every path must have as many labels as levels are named, 2; 'c' has 1"),
    ("a,b\nx,1\ny,1\nx,1\n", BY_COLUMNS, "columns a, b: the leaf 'x/1' is listed more than once"),
    ("a,b\nx,1\ny,\n", BY_COLUMNS, "column 'b' must not be null: every leaf has every level"),
    ("n,up\na,\nb,c\nc,b\n", BY_PARENT, "n, up: a node must not be its own ancestor, and 'b' is"),
    ("n,up\na,\nb,x\n", BY_PARENT, "'up': every parent must be one of the nodes, and 'x' is none"),
    ("n,up\na,\na,a\n", BY_PARENT, "column 'n': the node 'a' is listed more than once"),
    (
        CHAIN,
        BY_PARENT,
        "at most 32 levels are possible below the root, and '32' lies deeper",
    ),
    ("p\na/b\nother/c\n", BY_PATH.replace("{", "{unknown: other, "), "must not have the label"),
    ("p\na/b\nother/c\n", BY_PATH.replace("{", "{missing: other, "), "must not have the label"),
]


def test_bad_tables() -> None:
    def read_table(content: str, text: str) -> None:
        Path("t.csv").write_text(content)
        read(text)

    assert not not_refused(read_table, BAD_TABLES, RuleBroken)
    assert read(BY_PATH).cells == 2


# --- real data ---


def test_the_blocks_of_rhode_island(shared_data: Path) -> None:
    """By the section, in parts as well as whole, and every code as a text and as a number."""
    table = shared_data / "ri_2010_blocks.csv"
    domain = read(
        "{kind: hierarchy, column: block, digits: [2, 3, 6, 1, 3], table_column: GEOID, "
        f"levels: [state, county, tract, block_group, block], table: '{table}', unknown: other}}"
    )
    assert domain.columns == ("block",)
    assert domain.tree.level_sizes == (1, 2, 6, 245, 816, 25182)
    weights = hierarchy_weights(domain, {"county": 1, "block": 2}, {"44001": 2})
    assert weights == NodeWeights(levels=(0, 0, 1, 0, 0, 2), nodes=((2, 0, 2),))
    assert invariant_level(domain, "state") == 1
    types = pa_csv.ConvertOptions(column_types={"GEOID": pa.string()})
    codes = pa_csv.read_csv(table, convert_options=types).column("GEOID")
    leaves = domain.leaf_ids({"block": codes})
    assert np.array_equal(np.sort(leaves), np.arange(25181))
    assert domain.universe.paths(5, leaves).to_pylist() == codes.to_pylist()
    assert np.array_equal(domain.leaf_ids({"block": codes.cast(pa.int64())}), leaves)
    tracts = sorted({code[:11] for code in codes.to_pylist()})
    assert [domain.universe.find(tract) for tract in tracts] == [(3, n) for n in range(244)]
    with pytest.raises(ValueError, match="a text of 16 digits"):
        read_universe(str(table), column="GEOID", digits=(2, 3, 6, 1, 4))


def test_integers_of_parquet_stay_integers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [10, 9]}), tmp_path / "n.parquet")
    leaves = read_leaves(str(tmp_path / "n.parquet"), ["n"])
    assert leaves["n"].type == pa.int64()


def test_csv_keeps_zeros_and_words_and_drops_the_mark_of_order(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_bytes('\ufeff"n",other\r\n"007",1\r\n"NA",\r\n"a\nb",2\r\n'.encode())
    leaves = read_leaves(str(tmp_path / "n.csv"), ["n", "other"])
    assert leaves["n"].to_pylist() == ["007", "NA", "a\nb"]
    assert leaves["other"].to_pylist() == ["1", None, "2"]


def read_codes(path: str) -> Universe:
    return read_universe(path, column="code", digits=(2, 2))


def test_bad_files(tmp_path: Path) -> None:
    """Each sentence begins with the file."""

    def read(name: str, content: bytes | None) -> None:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        try:
            read_codes(str(path))
        except ValueError as refused:
            assert str(refused).startswith(str(path))
            raise

    rows = [
        ("absent.csv", None, "does not exist"),
        ("absent.parquet", None, "does not exist"),
        ("a.csv", b"", "has no column 'code'"),
        ("a.csv", b"Code\n0101\n", "has no column 'code'"),
        ("a.csv", b"code,code\n0101,1\n", "has the column 'code' twice"),
        ("a.csv", b"code,b\n0101,1,2\n", "is not a CSV file in UTF-8 with a header"),
        ("a.csv", b"code\n\xff\xfe\n", "is not a CSV file in UTF-8 with a header"),
        ("a.csv", b"\xff\xfe\n", "is not a CSV file in UTF-8 with a header"),
        ("a.csv", b"code\n", "'code': a universe needs at least one leaf"),
        ("a.csv", b"code\n0101\n011\n", "every code must be a text of 4 digits"),
        ("a.csv", b"code,b\n0101,1\n,2\n", "'code' must not be null"),
        ("a.csv", b"code\n0101\n0101\n", "the leaf '0101' is listed more than once"),
        ("a.parquet", b"code\n0101\n", "is not a Parquet file"),
        ("", None, "cannot be read"),
    ]
    assert not not_refused(read, rows)


def test_bad_parquet(tmp_path: Path) -> None:
    def read(table: dict[str, list[object]]) -> None:
        pq.write_table(pa.table(table), tmp_path / "a.parquet")
        read_codes(str(tmp_path / "a.parquet"))

    rows = [
        ({"Code": ["0101"]}, "a.parquet has no column 'code'"),
        ({"code": [0.5]}, "'code' has type double, but a universe needs texts or integers"),
    ]
    assert not not_refused(read, rows)


def test_forms_that_do_not_fit() -> None:
    rows = [
        ({}, "needs either columns, or column"),
        ({"columns": ("a",), "column": "a"}, "needs either columns, or column"),
        ({"columns": ("a",), "digits": (2,)}, "needs either columns, or column"),
        ({"column": "a"}, "one of digits, separator and parent"),
        ({"column": "a", "digits": (2,), "separator": "/"}, "one of digits, separator and parent"),
        ({"column": "a", "parent": "b", "levels": ("b",)}, "levels have no names where parent"),
    ]
    assert not not_refused(lambda form: read_universe("absent.csv", **form), rows)


# --- more leaves than are held ---


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dptrees.dpcore.hierarchy.universe.MOST_WHOLE_LEAVES", 3)


def in_groups(folder: Path, codes: pa.Array) -> str:
    path = str(folder / "leaves.parquet")
    pq.write_table(pa.table({"code": codes, "beside": codes}), path, row_group_size=2)
    return path


def test_a_large_table_of_codes_is_read_in_parts(tmp_path: Path, small_limit: None) -> None:
    for codes in (["0203", "0101", "0102", "0701", "0100"], [203, 101, 102, 7, 1]):
        path = in_groups(tmp_path, pa.array(codes))
        found = read_codes(path)
        assert found.is_parted and found == universe_from_codes(pa.array(codes), (2, 2))
        assert not read_universe(path, columns=("code", "beside")).is_parted


@pytest.mark.parametrize(
    ("codes", "rule"),
    [
        (["0101", "0203", "0102", "0101"], "the leaf '0101' is listed more than once"),
        (["0101", "0203", "0102", "01"], "every code must be a text of 4 digits, unlike '01'"),
        ([101, 203, 102, -1], "every code must have at most 4 digits, unlike -1"),
        (["0101", "0203", "0102", None], "must not be null: every leaf has a code"),
        ([1.5, 2.5, 3.5, 4.5], "has type double, but a universe needs texts or integers"),
    ],
)
def test_a_large_table_is_refused_as_a_small_one(codes, rule, tmp_path, monkeypatch) -> None:
    path, reported = in_groups(tmp_path, pa.array(codes)), []
    for limit in (2**24, 3):
        monkeypatch.setattr("dptrees.dpcore.hierarchy.universe.MOST_WHOLE_LEAVES", limit)
        with pytest.raises(ValueError, match=rule) as refused:
            read_codes(path)
        reported.append(str(refused.value))
    assert reported[0] == reported[1]


def test_a_large_file_that_is_none_is_refused(tmp_path, small_limit) -> None:
    path = in_groups(tmp_path, pa.array(["0101", "0203", "0102", "0103"]))
    with pytest.raises(ValueError, match="has no column 'other'"):
        read_universe(path, column="other", digits=(2, 2))
    data = bytearray(Path(path).read_bytes())
    data[4:40] = bytes(36)
    Path(path).write_bytes(data)
    with pytest.raises(ValueError, match="is not a Parquet file"):
        read_codes(path)


LISTED = [["f", "a"], ["f", "b"], ["m", "a"], ["m", "b"]]
BOTH_COLUMNS = {"columns": ["sex", "work"]}


# --- leaves that are listed in the configuration ---


def read_section(domain: Any, **more: Any) -> Any:
    return read_hierarchy({"kind": "hierarchy", **domain, **more})


def test_combinations_and_lists_are_the_table(tmp_path: Path) -> None:
    path = tmp_path / "leaves.parquet"
    columns = {name: [leaf[place] for leaf in LISTED] for place, name in enumerate(("sex", "work"))}
    pq.write_table(pa.table(columns), path)
    table = read_section(BOTH_COLUMNS, table=str(path))
    for leaves in (LISTED, {"sex": ["f", "m"], "work": ["a", "b"]}, {"work": "ab", "sex": "fm"}):
        if isinstance(leaves, dict):
            leaves = {name: list(values) for name, values in leaves.items()}
        assert read_section(BOTH_COLUMNS, leaves=leaves).spec() == table.spec()


def test_leaves_of_one_column() -> None:
    codes = {"column": "c", "digits": [1, 2], "levels": ["x", "y"]}
    leaves_of: list[tuple[dict[str, Any], list[Any], tuple[int, ...]]] = [
        ({"column": "p", "separator": "/"}, ["a", "b/c", "b/d"], (1, 2, 3)),
        (codes, [101, 102, 205], (1, 2, 3)),
        (codes, ["101", "205"], (1, 2, 2)),
        ({"columns": ["sex"]}, [0, 1], (1, 2)),
    ]
    for domain, listed, sizes in leaves_of:
        assert read_section(domain, leaves=listed).tree.level_sizes == sizes


def test_leaves_that_are_refused() -> None:
    many = {"sex": list(range(400)), "work": list(range(400))}
    rows: list[tuple[dict[str, Any], str]] = [
        (BOTH_COLUMNS | {"leaves": {"sex": ["f"]}}, ".leaves...values of sex, work, and of no ot"),
        (BOTH_COLUMNS | {"leaves": ["f", "m"]}, ".leaves...each must be a list of 2"),
        (BOTH_COLUMNS | {"leaves": [["f", "a"], [1, "b"]]}, "sex must have strings, or whole"),
        (BOTH_COLUMNS | {"leaves": [["f", "a"]] * 2}, "'f/a' is listed more than once"),
        (BOTH_COLUMNS | {"leaves": []}, ".leaves...at least one"),
        (BOTH_COLUMNS, ".table: is required with columns, or leaves that are listed"),
        (BOTH_COLUMNS | {"leaves": LISTED, "table": "t"}, ".table: does not go with leaves"),
        ({"column": "n", "parent": "p", "leaves": ["a"]}, ".leaves...need a table"),
        ({"column": "d", "calendar": ["day"], "leaves": ["a"]}, ".leaves...goes with columns"),
        (BOTH_COLUMNS | {"leaves": many}, "are 160,000; more than 131,072 are read from a table"),
    ]
    assert not not_refused(read_section, rows, RuleBroken)


def test_a_frame_of_leaves_in_python() -> None:
    frame = pa.table({"sex": ["f", "m", "m"], "work": ["a", "a", "b"]})
    assert plain({"leaves": frame}) == {"leaves": [["f", "a"], ["m", "a"], ["m", "b"]]}
    pandas = pytest.importorskip("pandas")
    odd = frame.to_pandas().iloc[[2, 0, 1]]
    assert plain({"leaves": odd})["leaves"] == [["m", "b"], ["f", "a"], ["m", "a"]]
    assert plain({"leaves": pandas.DataFrame({"code": [3, 4]})}) == {"leaves": [3, 4]}
    domain = {"kind": "hierarchy", **BOTH_COLUMNS, "leaves": odd}
    config = {
        "privacy": {"epsilon": 5, "neighbors": "add_remove"},
        "trees": [
            {"name": "t", "domain": domain, "measure": {"column": "x", "lower": 0, "upper": 9}}
        ],
    }
    rows = {"sex": ["m"] * 3_000, "work": ["b"] * 3_000, "x": [2] * 3_000}
    release = dptrees.release(rows, config)
    assert abs(release["t"].node("m/b").estimate - 6_000) < 100


# --- weights of levels and nodes, and invariants ---

TRACTS = ["0101001", "0101002", "0102001", "0203001", "0203002"]
WHERE = HierarchyDomain(
    universe=universe_from_codes(
        pa.array(TRACTS), (2, 2, 3), levels=("state", "county", "tract of land")
    ),
    columns=("code",),
    unknown="other",
)
# One county in each state.
CHAINS = HierarchyDomain(
    universe=universe_from_columns(
        {"state": pa.array(["RI", "CT"]), "county": pa.array(["Kent", "Hartford"])}
    ),
    columns=("state", "county"),
)


def section(text: str) -> object:
    return parse_document(text, "a test")


@pytest.mark.parametrize(
    ("levels", "nodes", "weights"),
    [
        ("{county: 1, tract of land: 2.5}", "~", NodeWeights(levels=(0, 0, 1, 2.5))),
        ("{root: 1}", "~", NodeWeights(levels=(1, 0, 0, 0))),
        ("[0, 1, 0, 2]", "~", NodeWeights(levels=(0, 1, 0, 2))),
        ("~", '{"0102": 3}', NodeWeights(levels=(1, 1, 1, 1), nodes=((2, 1, 3),))),
        (
            "[0, 0, 0, 0]",
            '{"": 1, "02": 0.5, other: 2, "0203001": 0}',
            NodeWeights(levels=(0,) * 4, nodes=((0, 0, 1), (1, 1, 0.5), (1, 2, 2), (3, 3, 0))),
        ),
    ],
)
def test_weights(levels: str, nodes: str, weights: NodeWeights) -> None:
    assert weights_of(levels, nodes) == weights


def weights_of(levels: str, nodes: str) -> NodeWeights | None:
    return hierarchy_weights(WHERE, section(levels), section(nodes))


def test_bad_weights() -> None:
    rows = [
        ("{contry: 1}", "~", ".level_weights: 'contry' is not a level; did you mean county?"),
        ("{x: 1}", "~", "'x' is not a level; known are root, state, county, tract of land"),
        ("{county: -1}", "~", ".level_weights.county: -1 must be a number from 0 to 1e15"),
        ("{county: many}", "~", ".level_weights.county: 'many' must be a number from 0 to 1e15"),
        ("{county: 0}", "~", ".level_weights: must contain a number above 0"),
        ("{}", "~", ".level_weights: must contain a number above 0"),
        ("[0, 0, 0, 0]", '{"01": 0}', ".level_weights: must contain a number above 0"),
        ("[1, 1]", "~", ".level_weights: must be 4 numbers, one for each of root, state, county"),
        ("[1, 1, .inf, 1]", "~", ".level_weights[2]: Infinity must be a number from 0 to 1e15"),
        ("county", "~", ".level_weights: 'county' must be a list"),
        ("~", '{"03": 1}', ".node_weights: '03' is not a path in the universe"),
        ("~", '{"01x": 1}', ".node_weights: '01x' is not a path in the universe"),
        ("~", '{"01": yes}', ".node_weights: '01': 'yes' must be a number from 0 to 1e15"),
        ("~", "[1]", ".node_weights: a list must be a section of keys and values"),
        ("~", "{}", ".node_weights: must hold at least one path"),
    ]
    assert not not_refused(weights_of, rows, RuleBroken)
    assert hierarchy_weights(WHERE, None, None) is None


def test_two_paths_of_one_node() -> None:
    row = (CHAINS, None, {"RI/Kent": 1, "\\RI/Kent": 1}, ".node_weights: ")
    assert not not_refused(hierarchy_weights, [row], RuleBroken)
    with pytest.raises(RuleBroken, match="is the path of an earlier node too"):
        hierarchy_weights(*row[:3])


def test_invariants() -> None:
    levels = {
        "~": None,
        "root": 0,
        "[root]": 0,
        "state": 1,
        "county": 2,
        "[state, county]": 2,
        "[county, root, state]": 2,
    }
    assert {text: invariant_level(WHERE, section(text)) for text in levels} == levels


def test_bad_invariants() -> None:
    rows = [
        (WHERE, "contry", ".invariants: 'contry' is not a level; did you mean county?"),
        (WHERE, "[state, contry]", ".invariants[1]: 'contry' is not a level; did you mean county?"),
        (WHERE, "1", ".invariants: 1 must be a string; put it in quotes"),
        (WHERE, "[]", ".invariants: must have at least one value"),
        (WHERE, "[state, state]", ".invariants[1]: state is listed twice"),
        (WHERE, "tract of land", ".invariants: 'tract of land' has the counts of the leaves"),
        (WHERE, "[county]", ".invariants: 'county' makes the counts of 'state' public as well"),
        (WHERE, "[root, county]", ".invariants: 'county' makes the counts of 'state' public"),
        # A level that repeats the leaves.
        (CHAINS, "state", "'state' has the counts of the leaves"),
    ]
    assert not not_refused(lambda d, text: invariant_level(d, section(text)), rows, RuleBroken)
