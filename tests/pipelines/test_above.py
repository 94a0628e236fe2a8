"""``dptrees query above`` and `TreeAnswers.above`: verdicts from intervals, and how often they are
false."""

from __future__ import annotations

import csv
import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

import dptrees
from dptrees.dpcore.questions.answer_errors import NOT_PUBLISHED
from dptrees.dpcore.questions.released import Answer
from dptrees.pipelines.python.answers import Answers
from dptrees.pipelines.query.above import SURELY, SURELY_NOT, UNDECIDED, Statement
from dptrees.pipelines.show.answers import AnswerEntry, csv_lines
from tests.pipelines.conftest import ROWS as EACH
from tests.pipelines.conftest import Workspace, assert_refused, update

FALSE_ALARM = 1e-6
LEAVES = ("a/p", "a/q", "b/p", "b/q")
RHO = {"rho": 0.02, "neighbors": "add_remove"}
EPSILON = {"epsilon": 0.5, "delta": 1e-6, "neighbors": "add_remove"}


def node(low: float, high: float) -> Answer:
    return Answer(
        label="", estimate=0.0, std_error=1.0, ci_low=low, ci_high=high, count=0, fraction=None
    )


@pytest.mark.parametrize(
    ("low", "high", "threshold", "verdict"),
    [
        (500, 500, 500, SURELY),  # a known count
        (500, 500, 501, SURELY_NOT),
        (500, 500, 500.5, SURELY_NOT),
        (499, 510, 500, UNDECIDED),
        (499.2, 510, 500, SURELY),  # no whole number lies between
        (490, 499.9, 500, SURELY_NOT),
        (490, 500, 500, UNDECIDED),
        (490, 500.4, 500.2, SURELY_NOT),
        (500 + 1e-9, 500 + 1e-9, 501, SURELY_NOT),  # known but for rounding
        (500 - 1e-9, 500 - 1e-9, 500, SURELY),
        (0, math.inf, 1, UNDECIDED),
        (-7.5, -5.5, -5, SURELY_NOT),
        (-5, -5, -5.5, SURELY),
    ],
)
def test_counts_are_whole_numbers(low: float, high: float, threshold: float, verdict: str) -> None:
    assert Statement(threshold, node(low, high)).verdict == verdict


def test_verdicts_are_those_of_every_count_in_the_interval() -> None:
    """By enumeration of the counts that an interval holds."""
    random = np.random.default_rng(0)
    for _ in range(2000):
        low, width = random.uniform(-5, 20), random.choice([0.0, 0.3, 1.0, 2.5, 9.0])
        threshold = random.uniform(-3, 25)
        counts = range(math.ceil(low), math.floor(low + width) + 1)
        reached = {count >= threshold for count in counts}
        if reached:
            expected = {(True,): SURELY, (False,): SURELY_NOT}.get(tuple(reached), UNDECIDED)
            assert Statement(threshold, node(low, low + width)).verdict == expected


# --- how often verdicts are false -----------------------------------------------------------------

KEYS, ROWS = 2000, 30


def counted() -> tuple[pa.Table, dict[str, int]]:
    """Rows of KEYS keys, with ROWS or ROWS - 1 rows in each of the four leaves, and these numbers
    by key and leaf."""
    numbers = ROWS - (np.arange(KEYS * len(LEAVES)) * 7 % 11 % 2)
    names = np.array([f"k{key}/{leaf}" for key in range(KEYS) for leaf in LEAVES])
    whole = np.repeat(names, numbers)
    keys, *labels = np.array([each.split("/") for each in whole.tolist()]).T
    leaf = np.char.add(np.char.add(labels[0], "/"), labels[1])
    cell = np.searchsorted(LEAVES, leaf)
    columns = {"path": whole, "key": keys, "leaf": leaf, "cell": cell}
    return pa.table(columns), dict(zip(names.tolist(), numbers.tolist(), strict=True))


GROUPS = {"column": "key", "keys": [f"k{key}" for key in range(KEYS)]}
TREES = {
    "hierarchy": {
        "domain": {"kind": "hierarchy", "column": "leaf", "separator": "/", "leaves": [*LEAVES]},
        "group_by": GROUPS,
    },
    "ordered": {
        "domain": {
            "column": "cell",
            "type": "integer",
            "lower": 0,
            "upper": 4,
            "out_of_range": "drop",
        },
        "group_by": GROUPS,
    },
    "sparse": {"domain": {"kind": "sparse", "column": "path", "depth": 3}},
}
PRIVACY = {"hierarchy": RHO, "ordered": EPSILON, "sparse": EPSILON | {"epsilon": 3}}


@pytest.fixture(scope="module", params=TREES)
def stated(request: pytest.FixtureRequest) -> tuple[Any, dict[str, int]]:
    rows, numbers = counted()
    config = {"privacy": PRIVACY[request.param], "trees": [{"name": "t"} | TREES[request.param]]}
    return dptrees.release(rows, config)["t"], numbers


def false_verdicts(found: Answers, numbers: dict[str, int]) -> np.ndarray[Any, Any]:
    """(keys, leaves) flags of nodes whose true count contradicts the verdict."""
    flags = {}
    keys = found["key"] if "key" in found.table.column_names else None
    for place, (label, verdict) in enumerate(zip(found["label"], found["verdict"], strict=True)):
        leaf = LEAVES[int(label)] if label.isdecimal() else label
        name = leaf if keys is None else f"{keys[place]}/{leaf}"
        if name != NOT_PUBLISHED:
            wrong = {SURELY: numbers[name] < ROWS, SURELY_NOT: numbers[name] >= ROWS}
            flags[name] = wrong.get(verdict, False)
    return np.array([flags.get(name, False) for name in numbers]).reshape(KEYS, len(LEAVES))


@pytest.mark.parametrize("confidence", [0.95, 0.6])
def test_false_verdicts(stated: tuple[Any, dict[str, int]], confidence: float) -> None:
    """Counts lie at the threshold and one below it, where verdicts are most often false. Keys have
    noise of their own, so one leaf of each is an independent trial."""
    tree, numbers = stated
    found = tree.at_confidence(confidence).above(ROWS)
    wrong, most = false_verdicts(found, numbers), stats.binom.isf(FALSE_ALARM, KEYS, 1 - confidence)
    assert (wrong.sum(axis=0) <= most).all()
    assert wrong.any()  # some are false: the intervals are not far too wide
    # Intervals of half the confidence would be found out.
    planted = false_verdicts(tree.at_confidence((2 * confidence - 1) / 4).above(ROWS), numbers)
    assert (planted.sum(axis=0) > stats.binom.isf(FALSE_ALARM, KEYS, 0.05)).any()


def test_simultaneous_verdicts(stated: tuple[Any, dict[str, int]]) -> None:
    """The four leaves of a key together: any false one counts."""
    tree, numbers = stated
    together = tree.at_confidence(1 - 0.05 / len(LEAVES)).above(ROWS)
    wrong = false_verdicts(together, numbers).any(axis=1).sum()
    separate = false_verdicts(tree.above(ROWS), numbers).any(axis=1).sum()
    assert wrong <= stats.binom.isf(FALSE_ALARM, KEYS, 0.05)
    assert wrong < separate
    if tree.keys:
        one = tree.above(ROWS, key="k0", simultaneous=True)
        assert one.table.equals(together.of_key("k0").table.drop_columns(["key"]))


# --- the command ----------------------------------------------------------------------------------

TOWNS = ("n/a", "n/b", "s/c", "s/d")


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A release of 600 rows of n/a, 480 of n/b, 120 of s/c and none of s/d."""
    made = Workspace(tmp_path_factory.mktemp("above"))
    town = np.repeat(["n/a", "n/b", "s/c"], [EACH // 2, EACH * 2 // 5, EACH // 10])
    made.write_rows(town=pa.array(town), sum=pa.array(np.full(EACH, -3)))
    towns = {"kind": "hierarchy", "column": "town", "separator": "/", "leaves": [*TOWNS]}
    cells = {"column": "x", "lower": 0, "upper": 100, "cells": 8}
    sides = [cells, {"column": "sum", "type": "integer", "lower": -8, "upper": 8}]
    trees = [
        {"name": "towns", "domain": towns},
        {"name": "sums", "domain": towns, "measure": {"column": "sum", "lower": -4, "upper": 0}},
        {"name": "cells", "domain": cells},
        {"name": "keyed", "domain": cells, "group_by": {"column": "place", "keys": ["north"]}},
        {"name": "heavy", "domain": {"kind": "sparse", "column": "town", "depth": 2}},
        {"name": "box", "domain": {"kind": "hypercube", "columns": sides}, "rows": 1000},
        {"name": "q", "domain": cells, "quantiles": [0.5], "mechanism": "exponential"},
    ]
    privacy = {"epsilon": 35, "delta": 1e-6, "neighbors": "add_remove"}
    made.make(update(trees=trees, privacy=privacy))
    return made


def verdicts(made: Workspace, tree: str, *arguments: object) -> dict[str, str]:
    outcome = made.succeed("query", made.output, "above", *arguments, "--tree", tree, "--json")
    return {each["label"]: each["verdict"] for each in json.loads(outcome.out)["answers"]}


def test_towns(released: Workspace) -> None:
    answers = verdicts(released, "towns", 300)
    assert answers == {"n/a": SURELY, "n/b": SURELY, "s/c": SURELY_NOT, "s/d": SURELY_NOT}
    assert verdicts(released, "towns", 300, "--simultaneous") == answers
    assert verdicts(released, "towns", "300.5", "--path", "s") == {
        "s/c": SURELY_NOT,
        "s/d": SURELY_NOT,
    }
    assert verdicts(released, "towns", 500, "--level", "level 1") == {"n": SURELY, "s": SURELY_NOT}


def test_people_see_the_others_in_one_sentence(released: Workspace) -> None:
    outcome = released.succeed("query", released.output, "above", "300", "--tree", "towns")
    heading, *lines, note = outcome.out.splitlines()
    assert heading.split()[:3] == ["threshold", "verdict", "node"]
    assert [line.split()[:3] for line in lines] == [["300", SURELY, each] for each in TOWNS[:2]]
    assert note == (
        "All other nodes surely hold fewer. Verdicts and intervals hold with 95 % confidence, for "
        "each number separately."
    )
    outcome = released.succeed(
        *("query", released.output, "above", "9999", "--tree", "towns", "--simultaneous")
    )
    assert outcome.out == (
        "All nodes surely hold fewer. Verdicts and intervals hold with 95 % confidence, for all "
        "nodes at once.\n"
    )


def test_nodes_that_were_not_published(released: Workspace) -> None:
    """They are bounded for certain: no node of more rows than that can be missing."""
    outcome = released.succeed("query", released.output, "above", 300, "--tree", "heavy", "--json")
    *_, rest = json.loads(outcome.out)["answers"]
    assert (rest["label"], rest["estimate"], rest["verdict"]) == (NOT_PUBLISHED, None, SURELY_NOT)
    most = int(rest["ci_high"])
    assert 0 < most < 300
    assert verdicts(released, "heavy", most)[NOT_PUBLISHED] == UNDECIDED
    assert verdicts(released, "heavy", most + 1)[NOT_PUBLISHED] == SURELY_NOT
    assert verdicts(released, "heavy", 300, "--simultaneous")["n/a"] == SURELY
    # What lies inside a region that was not divided is not bounded.
    assert verdicts(released, "box", 5)[NOT_PUBLISHED] == UNDECIDED


@pytest.fixture(scope="module")
def unpublished() -> tuple[Any, int]:
    """A sparse tree of 400 nodes below p and one below r, of 36 rows each; and the most rows of a
    node that was not published. Some of these have as many rows."""
    rows = [f"p/q{node}" for node in range(400) for _ in range(36)] + ["r/s"] * 500
    domain = {"kind": "sparse", "column": "c", "separator": "/", "depth": 2}
    privacy = {"epsilon": 1, "delta": 1e-6, "neighbors": "add_remove"}
    config = {"privacy": privacy, "trees": [{"name": "t", "domain": domain}]}
    tree = dptrees.release(pa.table({"c": rows}), config)["t"]
    return tree, tree.above(36).table["ci_high"].to_pylist()[-1]


@pytest.mark.parametrize(
    "below", [{"path": "p"}, {"path": "p", "level": 2}, {"path": ""}, {"path": "", "level": 2}]
)
@pytest.mark.parametrize("simultaneous", [False, True])
def test_nodes_below_a_path_that_were_not_published(
    unpublished: tuple[Any, int], below: dict[str, Any], simultaneous: bool
) -> None:
    """What is true of all nodes of a level is true of those below a path."""
    tree, most = unpublished
    found = tree.above(36, **below, simultaneous=simultaneous)
    assert len(found["label"]) - 1 < 400  # some of 36 rows are not there
    assert (found["label"][-1], found["verdict"][-1]) == (NOT_PUBLISHED, UNDECIDED)
    assert found["ci_high"][-1] == most
    for rows, verdict in ((most, UNDECIDED), (most + 1, SURELY_NOT)):
        assert tree.above(rows, **below, simultaneous=simultaneous)["verdict"][-1] == verdict


def test_a_page_claims_nothing_of_unpublished_nodes_below_a_path(
    unpublished: tuple[Any, int], tmp_path: Path
) -> None:
    tree, most = unpublished
    tree._owner.save(tmp_path / "out")
    made = Workspace(tmp_path)
    for rows in (36, int(most)):
        outcome = made.succeed("query", tmp_path / "out", "above", rows, "--path", "p")
        assert NOT_PUBLISHED in outcome.out
    outcome = made.succeed("query", tmp_path / "out", "above", int(most) + 1, "--path", "p")
    assert NOT_PUBLISHED not in outcome.out and "nodes surely hold fewer." in outcome.out


def test_thresholds_of_their_own(released: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "by.csv"
    file.write_text('n/b,300\n"n",5000\n\ns/d,1.5\n')
    by = ("--by", file)
    assert verdicts(released, "towns", *by) == {"n/b": SURELY, "n": SURELY_NOT, "s/d": SURELY_NOT}
    heavy = verdicts(released, "heavy", *by)
    assert (heavy["n/b"], heavy["n"], heavy["s/d"]) == (SURELY, SURELY_NOT, UNDECIDED)
    tree = dptrees.open(released.output)["towns"]
    found = tree.above({"n/b": 300, "n": 5000, "s/d": 1.5}, simultaneous=True)
    assert found["threshold"] == [300, 5000, 1.5]
    file.write_text('30,1\n"[0, 100)",5000\n')
    assert list(verdicts(released, "cells", *by).values()) == [SURELY, SURELY_NOT]


def test_sums_may_be_negative(released: Workspace) -> None:
    """Sums are -3 for each row, of three files: -1,800, -1,440, -360 and 0."""
    found = verdicts(released, "sums", "-700")
    assert found == {"n/a": SURELY_NOT, "n/b": SURELY_NOT, "s/c": SURELY, "s/d": SURELY}


def test_known_counts_are_certain(released: Workspace, tmp_path: Path) -> None:
    config = {
        "privacy": {"epsilon": 0.01, "neighbors": "substitute"},
        "trees": [
            {
                "name": "t",
                "domain": {"column": "x", "lower": 0, "upper": 1, "cells": 2, "missing": "first"},
            }
        ],
    }
    tree = dptrees.release(pa.table({"x": [0.25] * 500}), config)["t"]
    for rows, verdict in zip((499.5, 500, 500.5), (SURELY, SURELY, SURELY_NOT), strict=True):
        assert tree.above(rows, level=0)["verdict"] == [verdict]


REFUSED = {
    ("cells",): "needs either a number of rows, or --by",
    ("cells", "5", "--by", "x.csv"): "needs either a number of rows, or --by",
    ("cells", "--by", "x.csv"): "--by x.csv: cannot be read: No such file",
    ("cells", "0"): "threshold: 0 must be above 0",
    ("cells", "-5"): "threshold: -5 must be above 0",
    ("cells", "inf"): "threshold: inf is not a number",
    ("cells", "many"): "threshold: 'many' is not a number",
    ("cells", "5", "--level", "9"): "level: 9 is not between",
    ("cells", "5", "--path", "n"): "is no hierarchy",
    ("towns", "5", "--path", "x"): "no node of this path",
    ("towns", "5", "--key", "x"): "has no keys",
    ("keyed", "5"): "needs a key",
    ("keyed", "5", "--key", "all", "--wide"): "--wide: is for counts and quantiles",
    ("q", "5"): "tree q",
    ("cells", "5", "--simultaneous", "--confidence", "0.9995"): "nodes are too many to hold",
    ("box", "--by", "BY"): "nodes of partition box have no names",
    ("towns", "--by", "BY", "--level", "1"): "leave level and path out",
}


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_refused(released: Workspace, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    file = tmp_path / "by.csv"
    file.write_text("n,5\n")
    tree, *rest = (str(file) if each == "BY" else each for each in arguments)
    outcome = released.run("query", released.output, "above", *rest, "--tree", tree)
    assert_refused(released, outcome, REFUSED[arguments])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "must name at least one node"),
        ("n\n", "line 1 of .*: has 1 fields"),
        ("n,5\nn,6\n", "line 2 of .*: 'n' is there twice"),
        ("path,threshold\n", "line 1 of .*: 'threshold' is not a number"),
        ("zz,4\n", "no node of this path"),
        ('n,5\n\n"n/a,5\n', "line 3 of .*: is not CSV"),
        ('"n"x,5\n', "line 1 of .*: is not CSV"),
    ],
)
def test_files_that_are_refused(
    released: Workspace, tmp_path: Path, text: str, sentence: str
) -> None:
    file = tmp_path / "by.csv"
    file.write_text(text)
    outcome = released.run("query", released.output, "above", "--by", file, "--tree", "towns")
    assert outcome.code == 2 and re.search(sentence, outcome.err)


# Text breaks at each, by `str.splitlines`.
BREAKS = ("\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
# One of them in the middle of a value, or no character.
NAMES = [f"w1{each}x" for each in BREAKS] + ["w1", "", "w1x"]


@pytest.fixture(scope="module")
def sketched(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A sketch in which the i-th name has 10 (i + 1) rows, and one with bits."""
    made = Workspace(tmp_path_factory.mktemp("sketched"))
    names = [name for place, name in enumerate(NAMES) for _ in range(10 * (place + 1))]
    sketch = {"kind": "sketch", "column": "name"}
    codes = {"kind": "sketch", "column": "code", "bits": [8, 8]}
    config = {
        "privacy": {"epsilon": 4000, "neighbors": "add_remove"},
        "trees": [
            {"name": "s", "domain": sketch, "memory": "64 KiB"},
            {"name": "codes", "domain": codes, "memory": "64 KiB"},
            {"name": "kinds", "domain": {"column": "kind", "categories": ["", "a"]}},
        ],
    }
    table = pa.table({"name": names, "code": [7] * len(names), "kind": ["", "a"] * 525})
    dptrees.release(table, config).save(made.output)
    return made


def test_names_of_a_file_are_values_to_the_letter(sketched: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "by.csv"
    with open(file, "w", encoding="utf-8", newline="") as written:
        csv.writer(written).writerows([name, 5] for name in NAMES)
    arguments = ("query", sketched.output, "above", "--by", file, "--tree", "s", "--json")
    found = json.loads(sketched.succeed(*arguments).out)["answers"]
    assert [each["label"] for each in found] == NAMES
    assert [each["count"] for each in found] == [10 * (place + 1) for place in range(len(NAMES))]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_file_of_values_has_one_a_line(sketched: Workspace, tmp_path: Path, end: str) -> None:
    names = [name for name in NAMES if name and "\n" not in name and "\r" not in name]
    file = tmp_path / "among.txt"
    file.write_bytes(end.join([*names, ""]).encode())
    arguments = ("query", sketched.output, "top", "-n", 99, "--among", file, "--tree", "s")
    found = json.loads(sketched.succeed(*arguments, "--json").out)["answers"]
    assert {each["label"]: each["count"] for each in found} == {
        name: 10 * (NAMES.index(name) + 1) for name in names
    }


def test_an_empty_value_is_not_all_rows(sketched: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "by.csv"
    file.write_text('"",3\n')
    for question in (
        ("count", "w1", "", "--tree", "s"),
        ("above", "--by", file, "--tree", "s"),
        ("top", "--tree", "kinds"),
        ("above", 5, "--tree", "kinds"),
    ):
        outcome = sketched.succeed("query", sketched.output, *question)
        assert re.search(r'(^|  )""  ', outcome.out, re.MULTILINE), outcome.out
        assert "(all)" not in outcome.out


def test_no_zero_is_negative() -> None:
    answer = Answer(
        label="", estimate=-0.0, std_error=0.0, ci_low=-0.0, ci_high=-0.0, count=0, fraction=-0.0
    )
    found = AnswerEntry(before={}, answer=answer).to_program()
    assert "-" not in json.dumps(found)
    assert "-" not in "".join(csv_lines([found]))


def test_a_sketch_has_verdicts_of_named_values_alone(sketched: Workspace) -> None:
    """The largest codes of a sketch with bits are listed, but chosen by their estimates."""
    for tree in ("s", "codes"):
        outcome = sketched.run("query", sketched.output, "above", 5, "--tree", tree)
        assert_refused(sketched, outcome, "a sketch, where only values named beforehand have")


@pytest.mark.parametrize(
    ("rows", "written"),
    [
        (2**63, 2.0**63),
        (10**30, 1e30),
        (Fraction(5, 2), 2.5),
        (np.int64(30), 30),
        (np.uint8(30), 30),
        (np.float32(2.5), 2.5),
        (2**53 - 1, 2**53 - 1),
    ],
)
def test_thresholds_are_numbers_of_any_type(released: Workspace, rows: Any, written: float) -> None:
    tree = dptrees.open(released.output)["towns"]
    for given in (rows, {"n/a": rows}, pd.Series({"n/a": rows}), {"n/a": rows, "n/b": 0.5}):
        found = tree.above(given)
        assert found["threshold"][0] == written
        assert found["verdict"][0] == (SURELY if rows < 600 else SURELY_NOT)


def test_names_of_a_series(released: Workspace) -> None:
    tree = dptrees.open(released.output)["cells"]
    assert tree.above(pd.Series([1, 5000.5], index=[30, 80]))["threshold"] == [1, 5000.5]
    with pytest.raises(dptrees.Error, match="a node is there twice"):
        tree.above(pd.Series([1, 2], index=["30", "30"]))


def test_a_large_threshold_is_printed_in_short(released: Workspace) -> None:
    verdict = verdicts(released, "towns", "1e30")
    assert set(verdict.values()) == {SURELY_NOT}
    by = ("--by", released.folder / "by.csv")
    by[1].write_text("n/a,1e30\n")
    for form in ((), ("--json",), ("--csv",)):
        outcome = released.succeed("query", released.output, "above", *by, "--tree", "towns", *form)
        assert "1e+30" in outcome.out


def test_python_refuses_what_is_no_number(released: Workspace) -> None:
    tree = dptrees.open(released.output)["towns"]
    for rows in (True, np.True_, "5", {"n": None}, float("nan"), 10**400, 10**5000, -(10**400)):
        with pytest.raises(dptrees.Error, match=r"threshold: .* is not a number of rows"):
            tree.above(rows)
    assert dptrees.open(released.output)["keyed"].above(1)["key"][0] == "north"
