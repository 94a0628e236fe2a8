"""Sketches by the command: plan, release, queries, page, checks, and bad input."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dptrees
from dptrees.pipelines.sections.document import ConfigurationError
from tests.pipelines.conftest import NONCE, Workspace
from tests.pipelines.plans import plan_of
from tests.pipelines.refusals import not_refused

# Noise of this budget is 0 but for one draw of 10^12.
EXACT = {"epsilon": 4000, "neighbors": "add_remove"}
SIZE = {"hashes": 3, "width": 4096, "type": "count_sketch"}


def tree(name: str = "words", *, size: dict[str, Any] = SIZE, **domain: Any) -> dict[str, Any]:
    domain = {"kind": "sketch", "column": "word"} | domain
    return {"name": name, "domain": domain, **size}


TREES = (
    tree(),
    tree("days", column="day", type="date"),
    tree("codes", column="code", bits=[8, 8]),
    tree("least", size={"hashes": 3, "width": 1024, "type": "count_min"}),
)


class Words(Workspace):
    """Rows of words, days and codes, some of them missing."""

    def write_rows(self, **_: Any) -> None:
        self.rows.mkdir(exist_ok=True)
        numbers = np.random.default_rng(4).zipf(1.5, 1200) % 300
        table = {
            "word": pa.array([None if n == 0 else f"w{n}" for n in numbers]),
            "day": pa.array([date(2020, 1, 1 + n % 28) for n in numbers]),
            "code": pa.array([-1 if n == 7 else int(n) * 200 for n in numbers]),
        }
        for index in range(3):
            pq.write_table(pa.table(table).slice(400 * index, 400), self.file(index))

    def configured(self, *trees: dict[str, Any], **privacy: Any) -> str:
        return self.configure(
            lambda settings: settings.update(trees=list(trees), privacy=privacy or EXACT)
        )

    def answers(self, *query: str) -> dict[str, float]:
        found = json.loads(self.succeed("query", self.output, *query, "--json").out)
        return {each["label"]: each["estimate"] for each in found["answers"]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Words:
    """A release without noise. Tests only read it."""
    workspace = Words(tmp_path_factory.mktemp("words"))
    outcome = workspace.succeed("release", workspace.configured(*TREES), *NONCE)
    workspace.summary = outcome.out  # type: ignore[attr-defined]
    return workspace


def truth(workspace: Words, column: str) -> Counter[Any]:
    return Counter(workspace.values()[column].drop_null().to_pylist())


def test_counts_of_values_are_those_of_the_rows(made: Words, tmp_path: Path) -> None:
    words, days, codes = (truth(made, name) for name in ("word", "day", "code"))
    asked = ["w1", "w2", "w299", "none"]
    found = made.answers("count", "--tree", "words", *asked)
    assert found == {word: words[word] for word in asked}
    found = made.answers("count", "--tree", "days", "2020-01-02", "2020-01-03T00:00:00")
    assert list(found.values()) == [days[date(2020, 1, 2)], days[date(2020, 1, 3)]]
    found = made.answers("count", "--tree", "codes", "200", "00c8/16", "0100/8")
    prefix = sum(count for code, count in codes.items() if code >> 8 == 1)
    assert list(found.values()) == [codes[200], codes[200], prefix]
    listed = tmp_path / "words.txt"
    listed.write_text("".join(f"w{n}\n" for n in range(300)))
    found = made.answers("top", "--tree", "words", "-n", "5", "--among", str(listed))
    assert list(found.values()) == [count for _, count in words.most_common(5)]
    found = made.answers("top", "--tree", "codes", "-n", "4")
    del codes[-1]
    assert list(found.values()) == [count for _, count in codes.most_common(4)]
    low = made.answers("count", "--tree", "least", *asked)
    assert all(abs(low[word] - words[word]) <= 5 for word in asked)


def test_all_commands_know_sketches(made: Words) -> None:
    assert "a value's count has a standard error of" in made.summary  # type: ignore[attr-defined]
    verified = made.succeed("verify", made.output)
    assert "not compared" in verified.out or "follow" in verified.out, verified.out
    path = made.configured(*TREES)
    checked = made.succeed("check", path)
    assert "missing" in checked.out, checked.out
    page = (made.output / "report.html").read_text()
    assert "The count of a value of word has a standard error of" in page
    assert "Heaviest codes of code" in page
    planned = json.loads(made.succeed("plan", path, "--json").out)["trees"]
    assert planned[0]["memory_bytes"] == 8 * 3 * 4096 and planned[2]["levels"] == ["/8", "/16"]
    target = made.succeed("plan", path, "--target-error", "words=500", "--json")
    assert json.loads(target.out)["trees"][0]["target"]["unit"] == "rows"
    replayed = made.succeed("verify", made.output, "--key", str(made.key), "--data", path)
    assert "bit for bit" in replayed.out or "same" in replayed.out, replayed.out


def test_what_a_sketch_cannot_answer_is_said(made: Words) -> None:
    cases = [
        (("top", "--tree", "words"), "cannot be listed: give the values to look at, with --among"),
        (("node", "--path", "", "--tree", "words"), "is a sketch, without nodes; use count VALUE"),
        (("cdf", "3", "--tree", "words"), "tree words is a sketch, and has no order"),
        (("count", "x", "--tree", "days"), "value: 'x' is not one of dates or timestamps"),
        (("count", "x", "--tree", "codes"), "value: 'x' is no code or prefix of column code"),
        (("count", "70000", "--tree", "codes"), "is no code or prefix"),
        (("top", "--tree", "codes", "--level", "3"), "level: '3' is none of root, /8, /16"),
        (("count", "w1", "--tree", "words", "--key", "k"), "key: tree words has no keys"),
    ]
    for query, words in cases:
        outcome = made.run("query", made.output, *query)
        assert outcome.code == 2 and words in outcome.err, (query, outcome.err)


def test_csv_columns_are_read_as_the_type_says(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,number,day,flag\n07,07,2020-01-05,true\n7,7,2020-01-06,false\n,,,\n")
    asked: dict[str, tuple[str, list[Any], list[int]]] = {
        "text": ("text", ["7", "07"], [1, 1]),
        "number": ("integer", [7, "7", 7.0], [2, 2, 2]),
        "day": ("date", [date(2020, 1, 5), "2020-01-06"], [1, 1]),
        "flag": ("boolean", [True, "false"], [1, 1]),
    }
    trees = [tree(name, column=name, type=kind) for name, (kind, _, _) in asked.items()]
    config = {"privacy": EXACT, "trees": trees, "input": {"format": "csv", "path": str(rows)}}
    release = dptrees.release(None, config)
    for name, (_, values, counts) in asked.items():
        assert release[name].count(values)["estimate"] == counts, name


def test_values_that_are_none_of_the_column_are_refused() -> None:
    """All digits of times are read: those behind the microsecond are another value's."""
    moments = pa.array([1577836800000000001, 1577836800000000000], pa.timestamp("ns"))
    table = pa.table({"day": moments, "word": ["a", "b"], "code": [10.0, 10.5]})
    config = {
        "privacy": EXACT,
        "trees": [
            tree("day", column="day", type="timestamp"),
            tree("word", column="word"),
            tree("whole", column="code", type="integer"),
            tree("code", column="code", bits=[4, 4]),
        ],
    }
    made = dptrees.release(table, config)
    assert made["day"].count(["2020-01-01", "2020-01-01T00:00:00.000000000"])["estimate"] == [1, 1]
    written = "2020-01-01 00:00:00.000000001"
    asked = [written, pd.Timestamp(written), f"{written[:-1]}2", "2020-01-01T01:00:00.000000001+01"]
    assert made["day"].count(asked)["estimate"] == [1, 1, 0, 1]
    # Floats are read as whole numbers, as a column of pandas with missing integers is.
    assert made["whole"].count([10, "10.0", 10.0])["estimate"] == [1, 1, 1]
    assert made["code"].count(["10", "10.0"])["estimate"] == [1, 1]
    assert made["word"].top_among(["a", "b", "a"], 5)["label"] == ["a", "b"]
    bad: list[tuple[str, Any]] = [
        *(("day", each) for each in (f"{written}1", pd.NaT, "1.1")),
        *(("word", each) for each in (pd.NaT, pd.Timestamp(written), ["a"])),
        *((name, each) for name in ("whole", "code") for each in ("1_0", "\uff11", "x", "1.5")),
    ]
    for name, value in bad:
        for query in (made[name].count, lambda each, of=name: made[of].top_among(each, 1)):
            with pytest.raises(dptrees.Error, match=r"^value: .* is (not one of|no code or)"):
                query([value])
    for number, words in ((0, "0 is not above 0"), (-1, "-1 is not above"), (1.5, "1.5 is no wh")):
        with pytest.raises(dptrees.Error, match=f"^n: {words}"):
            made["word"].top_among(["a"], number)
        with pytest.raises(dptrees.Error, match=f"^n: {words}"):
            made["code"].top(number)


def test_the_heaviest_code_below_a_light_prefix_of_a_wide_level() -> None:
    """More than sixteen prefixes are heavier than its own."""
    # One of 2^24 codes shares three of its five cells with a chance of 2^24 * 10 / 2^48 < 1e-6.
    size = {"hashes": 5, "width": 2**16, "type": "count_sketch"}
    spread = np.arange(40).repeat(1000) * 2**16 + np.arange(40_000) % 1009
    heavy = np.full(900, 200 * 2**16 + 7)
    trees = [tree("codes", size=size, column="code", bits=[16, 16])]
    made = dptrees.release(
        pa.table({"code": np.concatenate([spread, heavy])}), {"privacy": EXACT, "trees": trees}
    )
    codes = made["codes"]
    assert codes.top(1)["label"] == ["0.200.0.7/32"]
    with pytest.raises(dptrees.Error, match=r"^n: 257 is more than 256, the most prefixes"):
        codes.top(257)
    (answer,) = codes._tree.top(1, 2)
    assert "the largest 256 prefixes of each level were followed" in str(answer.remark)
    (answer,) = codes._tree.top(1, 1)
    assert "followed" not in str(answer.remark)


def test_bad_input() -> None:
    rows = [
        (tree(lower=0), "domain.lower: unknown key; known are kind, column, type, bits, notation"),
        (tree(type="number"), "domain.type: 'number' must be text, integer, boolean, date or time"),
        (
            tree(bits=[30]),
            "domain.bits: a descent needs at most 20 bits in the first level, and at",
        ),
        (tree(bits=[16, 16], type="text"), "domain.type: does not go with bits"),
        (tree(notation="hex"), "domain.notation: goes with bits"),
        (tree() | {"group_by": {"column": "x", "keys": ["a"]}}, "group_by: a sketch has no keys"),
        (tree() | {"quantiles": [0.5]}, "quantiles: belongs to an ordered domain; a sketch has"),
        (tree() | {"memory": "1 MiB"}, "memory: goes without width"),
        (tree(size={"memory": "1 MB"}), "memory: '1 MB' must be a number of bytes from 16 to 8"),
        *(
            (tree(size={"width": width}), f"width: {shown} must be a power of two from 2 to 2^30")
            for width, shown in ((100, "100"), (1, "1"), (2**31, "2147483648"), (True, "true"))
        ),
        (tree(size={"width": 2**30, "hashes": 3}), "width: 3221225472 cells of all tables are"),
        (tree(size={"type": "minimum"}), "type: 'minimum' must be count_min or count_sketch"),
    ]
    rows = [(bad, f"x.yaml: trees[0].{words}") for bad, words in rows]
    assert not not_refused(lambda bad: plan_of(bad, **EXACT), rows, ConfigurationError)


def test_the_widest_table_has_one_hash_function() -> None:
    (planned,) = plan_of(tree(size={"width": 2**30}), **EXACT).questions
    assert (planned.shape.rows, planned.cells) == (1, 2**30)


def test_counts_of_equal_cells_are_not_exact(tmp_path: Path) -> None:
    """Noise that is 0 but for one draw of 10^12 may leave all cells 0."""
    workspace = Words(tmp_path)
    one = tree("none", column="less", bits=[1], size={"hashes": 1, "width": 2})
    for index in range(3):
        pq.write_table(pa.table({"less": pa.array([-1, -2])}), workspace.file(index))
    summary = workspace.succeed("release", workspace.configured(one), *NONCE).out
    assert "0 ± 0" in summary and "exact" not in summary, summary
    assert "0, exact" not in (workspace.output / "report.html").read_text()


def test_types_of_columns_are_refused_in_words(tmp_path: Path) -> None:
    workspace = Words(tmp_path)
    outcome = workspace.run("release", workspace.configured(tree(column="code")), *NONCE)
    words = "column 'code' has type int64, but this sketch needs strings"
    assert outcome.code == 2 and words in outcome.err, outcome.err
