"""``dptrees query``: every question, as text and as JSON, against the tables of the release."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.pipelines.conftest import Workspace, assert_refused, update

ANSWER = ["label", "estimate", "std_error", "ci_low", "ci_high", "count", "fraction"]


def query_json(workspace: Workspace, *question: object) -> dict[str, Any]:
    """Return the JSON answer to a question, after checking its text and its CSV against it."""
    kind, *rest = question
    outcome = workspace.run("query", workspace.output, kind, "--json", *rest)
    assert outcome.code == 0
    answer: dict[str, Any] = json.loads(outcome.out)
    rounded = [each for each in answer["answers"] if each.get("asked") != each.get("answered")]
    assert outcome.err.count("dptrees: note: requested ") == outcome.err.count("\n")
    assert bool(rounded) == bool(outcome.err)
    text = workspace.run("query", workspace.output, *question)
    assert (text.code, text.err) == (0, outcome.err)
    check_text(text.out, answer["answers"])
    written = workspace.run("query", workspace.output, kind, "--csv", *rest)
    assert (written.code, written.err) == (0, outcome.err)
    check_csv(written.out, answer["answers"])
    return answer


def check_text(text: str, answers: list[dict[str, Any]]) -> None:
    """Check that a printed table shows the answers, one a line, and says what its intervals are."""
    remarks = list(dict.fromkeys(each["remark"] for each in answers if "remark" in each))
    heading, *lines = text.splitlines()
    assert lines[len(lines) - len(remarks) :] == remarks
    *lines, note = lines[: len(lines) - len(remarks)]
    assert re.fullmatch(r"Intervals hold with [0-9.]+ % confidence, for (each|all) .*\.", note)
    assert re.search(r" % interval\b", heading)
    assert len(lines) == len(answers)
    for line, answer in zip(lines, answers, strict=True):
        assert "e+" not in line
        if "count" in answer:
            assert (answer["in_words"] or answer["label"] or "(all)") in line
            assert re.search(rf"\b{answer['count']:,}\b", line)


def check_csv(text: str, answers: list[dict[str, Any]]) -> None:
    """Check that CSV holds the answers in full."""
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert text.count("\r\n") == text.count("\n") == len(rows) == len(answers) + 1
    assert rows[0] == list(answers[0])
    for row, answer in zip(rows[1:], answers, strict=True):
        for cell, value in zip(row, answer.values(), strict=True):
            if isinstance(value, (int, float)):
                assert float(cell) == value
            else:
                assert cell.removeprefix("'") == ("" if value is None else value)


def table(workspace: Workspace, kind: str, tree: str, key: str | None = None) -> pa.Table:
    """Return the released rows of a tree, of one key."""
    rows = workspace.made().rows(kind, tree)
    return rows if key is None else rows.filter(pc.equal(rows["key"].cast(pa.string()), key))


@pytest.mark.parametrize(("tree", "key"), [("all", None), ("places", "north"), ("places", "south")])
def test_cdf(released: Workspace, tree: str, key: str | None) -> None:
    key_options = ("--key", key) if key else ()
    answer = query_json(released, "cdf", "25", "50", "100", "--tree", tree, *key_options)
    assert (answer["tree"], answer["key"]) == (tree, key)
    rows = table(released, "cdf", tree, key)
    for upper, row in zip((25, 50, 100), answer["answers"], strict=True):
        assert list(row) == [*ANSWER, "asked", "answered", "in_words"]
        (released_row,) = rows.filter(pc.equal(rows["upper"], upper)).to_pylist()
        for name in ("estimate", "std_error", "ci_low", "ci_high", "count", "fraction"):
            assert row[name] == pytest.approx(released_row[name], rel=1e-12)
    assert [row["label"] for row in answer["answers"]] == ["[0, 25)", "[0, 50)", "[0, 100)"]
    words = [row["in_words"] for row in answer["answers"]]
    assert words == ["below 25", "below 50", "all values"]


def answers(workspace: Workspace, *question: object) -> list[dict[str, Any]]:
    """The answers to a question about the tree of all rows."""
    found: list[dict[str, Any]] = query_json(workspace, *question, "--tree", "all")["answers"]
    return found


def test_cdf_beyond_the_bounds(released: Workspace) -> None:
    for value in ("0", "-1e9", "-inf"):
        (row,) = query_json(released, "cdf", "--tree=all", "--", value)["answers"]
        assert (row["estimate"], row["std_error"], row["count"], row["fraction"]) == (0, 0, 0, 0)
    (row,) = answers(released, "cdf", "1e9")
    (root,) = answers(released, "node", "--level", "0", "--node", "0")
    assert row["count"] == root["count"] and row["fraction"] == 1
    assert row["estimate"] == pytest.approx(root["estimate"], rel=1e-12)


def test_range(released: Workspace) -> None:
    (row,) = answers(released, "range", "25", "75")
    rows = table(released, "cdf", "all")
    low, high = (rows.filter(pc.equal(rows["upper"], upper)).to_pylist()[0] for upper in (25, 75))
    assert row["label"] == "[25, 75)"
    assert row["count"] == high["count"] - low["count"]
    assert row["estimate"] == pytest.approx(high["estimate"] - low["estimate"], abs=1e-9)
    assert 0 < row["std_error"] < low["std_error"] + high["std_error"]
    assert row["ci_low"] < row["estimate"] < row["ci_high"]
    (row,) = answers(released, "range", "25", "25")
    assert (row["estimate"], row["std_error"], row["count"]) == (0, 0, 0)


def test_quantile(released: Workspace) -> None:
    """Any fraction may be requested; one that was released gets the released answer."""
    fractions = ("0.25", "0.5", "0.9")
    answer = query_json(released, "quantile", *fractions, "--tree", "places", "--key", "north")
    quartile, median, high = answer["answers"]
    assert list(median) == ["q", "value", "ci_low", "ci_high", "in_words"]
    rows = released.made().quantiles()
    assert rows is not None
    north = rows.filter(pc.equal(rows["key"].cast(pa.string()), "north")).to_pylist()
    for row, released_row in zip((quartile, median), north, strict=True):
        assert row.pop("in_words") is None
        assert row == {name: released_row[name] for name in row}
    assert quartile["value"] < median["value"] < high["value"]


def test_node_by_number_and_by_value(released: Workspace) -> None:
    rows = table(released, "nodes", "all")
    height = max(rows["level"].to_pylist())
    answer = query_json(released, "node", "--level", height, "--node", "8", "--tree", "all")
    (released_row,) = rows.filter(
        pc.and_(pc.equal(rows["level"], height), pc.equal(rows["node"], 8))
    ).to_pylist()
    (row,) = answer["answers"]
    assert {name: row[name] for name in ANSWER[:-1]} == {n: released_row[n] for n in ANSWER[:-1]}
    assert row["label"] == "[50, 56.25)"
    for value in ("50", "56.2"):
        by_value = ("node", "--level", height, "--value", value, "--tree", "all")
        assert query_json(released, *by_value) == answer


def test_top(released: Workspace) -> None:
    rows = table(released, "nodes", "places", "south")
    leaves = rows.filter(pc.equal(rows["level"], max(rows["level"].to_pylist())))
    largest = sorted(leaves["count"].to_pylist(), reverse=True)
    south = ("--tree", "places", "--key", "south")
    assert [row["count"] for row in query_json(released, "top", *south)["answers"]] == largest[:10]
    three = query_json(released, "top", "-n", "3", *south)["answers"]
    assert [row["count"] for row in three] == largest[:3]
    (root,) = query_json(released, "top", "--level", "0", *south)["answers"]
    assert root["fraction"] == 1 and root["count"] == sum(largest)
    assert len(query_json(released, "top", "-n", "1000000", *south)["answers"]) == 16


BAD_QUESTIONS = {
    "cdf 50": "choose one with --tree; it has all, places",
    "cdf 50 --tree al": "there is no tree 'al'; it has all, places",
    "cdf 50 --tree places": "key: tree places needs a key",
    "cdf 50 --tree all --key north": "key: tree all has no keys",
    "cdf 50 --tree places --key west": "'west' is not a listed key",
    "cdf abc --tree all": "'abc' must be a number",
    "cdf nan --tree all": "'nan' must be a number",
    "range 9 1 --tree all": "9 is above 1",
    "range 1 b --tree all": "'b' must be a number",
    "quantile 1.5 --tree all": "1.5 is not between 0 and 1",
    "quantile nan --tree all": "nan is not between 0 and 1",
    "quantile half --tree all": "'half' is not a number",
    "node --level 9 --node 0 --tree all": "level: 9 is not between 0",
    "node --level=-1 --node 0 --tree all": "level: -1 is not between 0",
    "node --level 0 --node 1 --tree all": "level 0 has no node 1",
    "node --level 0 --node=-1 --tree all": "level 0 has no node -1",
    "node --level 0 --value b --tree all": "'b' must be a number",
    "top -n 0 --tree all": "n: 0 is not above 0",
    "top --level 9 --tree all": "level: 9 is not between 0",
}


def test_bad_questions(released: Workspace) -> None:
    for question, words in BAD_QUESTIONS.items():
        for form in ((), ("--json",)):
            outcome = released.run("query", released.output, *question.split(), *form)
            assert_refused(released, outcome, f"dptrees: {released.output}: ", words)


def test_no_release(workspace: Workspace) -> None:
    workspace.output.mkdir()
    for place in (workspace.output, workspace.folder / "none", workspace.key):
        assert_refused(workspace, workspace.run("query", place, "cdf", "50"), f"dptrees: {place}: ")


def test_other_domains_are_queried_in_their_own_notation(workspace: Workspace) -> None:
    """Dates, and integers as keys: what the command line gives is text."""
    days = pa.array(["2024-03-01", "2024-05-20"] * 500).cast(pa.date32())
    sizes = pa.array([7, 7, 12, 12] * 250)
    workspace.write_rows(x=pa.nulls(1000), place=pa.nulls(1000), day=days, size=sizes)
    domain = {"column": "day", "lower": date(2024, 1, 1), "upper": date(2024, 12, 31)}
    by = {"column": "size", "keys": [7, 12]}
    tree = {"name": "days", "domain": domain, "group_by": by, "quantiles": [0.5, 0.9]}
    outcome = workspace.release(update(trees=[tree | {"consistency": "top_down"}]))
    assert (outcome.code, outcome.err) == (0, "")
    (row,) = query_json(workspace, "cdf", "2024-04-01", "--tree", "days", "--key", "7")["answers"]
    assert row["label"] == "[2024-01-01, 2024-04-01)"
    assert abs(row["estimate"] - 750) < 10 * row["std_error"]
    assert row["std_error"] < 30
    (row,) = query_json(workspace, "quantile", "0.9", "--tree", "days", "--key", "12")["answers"]
    assert row["ci_low"] <= "2024-05-20" <= row["ci_high"]
    assert "2024-03-01" < row["value"] < "2024-12-31"


def test_report_is_made_anew(again: Workspace) -> None:
    page = again.output / "report.html"
    before = page.read_bytes()
    page.unlink()
    outcome = again.run("report", again.output)
    assert (outcome.code, outcome.out, outcome.err) == (0, f"{page}\n", "")
    assert page.read_bytes() == before
