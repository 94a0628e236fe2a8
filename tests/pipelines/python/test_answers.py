"""Questions in Python: what they give, as whom, and what they refuse."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dptrees
from dptrees.pipelines.python.answers import Answers
from dptrees.pipelines.python.release import Release
from tests.golden.configurations import BOX, BY, CITIES, DAYS, NUMBERS
from tests.pipelines.python.conftest import fixed, yaml

TREES = {
    "delay": f"{{domain: {NUMBERS}, quantiles: [0.5]}}",
    "keyed": f"{{domain: {NUMBERS}, {BY}}}",
    "city": f"{{domain: {CITIES}}}",
    "day": f"{{domain: {DAYS}}}",
    "box": f"{{domain: {BOX}}}",
}
CONFIG = {
    "release": "asked",
    "privacy": {"epsilon": 4.0, "delta": 1e-6, "neighbors": "add_remove"},
    "trees": [{"name": name, **yaml.safe_load(tree)} for name, tree in TREES.items()],
}
ERRORS = ["estimate", "std_error", "ci_low", "ci_high", "count", "fraction"]
KEYS = ["UA", "AA", "DL", "other"]


@pytest.fixture(scope="module")
def release(golden_rows: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(golden_rows)
        yield fixed("rows.parquet", CONFIG)


def test_cdf(release: Release) -> None:
    tree = release["delay"]
    whole, three = tree.cdf(), tree.cdf([-20, 30, 200])
    assert whole.table.column_names == ["upper", *ERRORS] and len(whole) == 220
    assert three.table.column_names == ["label", *ERRORS]
    at = {upper: row for upper, row in zip(whole["upper"], whole, strict=True)}
    assert three["count"] == [0, at[30]["count"], at[200]["count"]]
    assert three["estimate"][1:] == pytest.approx([at[30]["estimate"], at[200]["estimate"]])
    assert tree.cdf(np.array([30]))["ci_low"] == pytest.approx([at[30]["ci_low"]])
    band = tree.cdf(30, simultaneous=True)
    assert band.interval[0] < at[30]["ci_low"] and band.estimate == three["estimate"][1]
    wide = tree.at_confidence(0.999)
    assert wide.confidence == 0.999 and wide.cdf(30).interval[1] > at[30]["ci_high"]


def test_keys(release: Release) -> None:
    tree = release["keyed"]
    assert tree.keys == KEYS and release["delay"].keys == []
    assert tree.cdf().table.column_names == ["key", "upper", *ERRORS]
    assert len(tree.cdf()) == 4 * 220 and len(tree.cdf(key="AA")) == 220
    assert tree.cdf(key="AA").table.column_names == ["upper", *ERRORS]
    assert tree.cdf().of_key("AA").to_dicts() == [
        {"key": "AA"} | row for row in tree.cdf(key="AA").to_dicts()
    ]
    totals = tree.range(-20, 200)
    assert totals["key"] == KEYS and abs(sum(totals["estimate"]) - 19_600) < 600
    assert tree.range(-20, 200, key="UA").estimate == totals["estimate"][0]
    assert tree.quantiles([0.25, 0.75])["key"] == [key for key in KEYS for _ in range(2)]
    assert tree.top(2)["key"] == [key for key in KEYS for _ in range(2)]
    with pytest.raises(dptrees.Error, match="'ZZ' is not a listed key"):
        tree.cdf(key="ZZ")
    with pytest.raises(dptrees.Error, match="there is no key 'ZZ'"):
        tree.cdf().of_key("ZZ")
    with pytest.raises(dptrees.Error, match="delay has no keys"):
        release["delay"].range(0, 1, key="UA")


def test_an_answer_to_something_else_says_so(release: Release) -> None:
    reported = "requested \\[0.5, 9\\), answered \\[0, 9\\): tree keyed has no edges"
    with pytest.warns(UserWarning, match=reported) as caught:
        release["keyed"].range(0.5, 9)
    assert len(caught) == 1 and caught[0].filename == __file__  # once for all keys
    with pytest.warns(UserWarning, match="requested below 999, answered"):
        release["delay"].cdf([30, 999])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release["delay"].range(0, 9)


def test_hierarchy(release: Release) -> None:
    tree = release["city"]
    states = tree.children()
    assert states["label"] == ["CT", "NJ", "NY", "other"]
    assert tree.node("NY").count == states["count"][2]
    assert sum(tree.children("NY")["count"]) == tree.node("NY").count
    assert tree.nodes(level="state")["estimate"] == states["estimate"]
    assert set(tree.nodes()["level"]) == {0, 1, 2}
    assert tree.top(1, level="state").count == max(states["count"])
    assert release["day"].nodes(level="month")["label"][0] == "2013-01"
    for query, sentence in (
        (lambda: tree.node("XX"), "the universe has no node of this path"),
        (lambda: tree.cdf([1]), "city is a hierarchy, not ordered"),
        (lambda: tree.cdf(), "cdf: tree city was released without this table"),
        (lambda: tree.top(0), "n: 0 is not above 0"),
        (lambda: tree.nodes(level="county"), "county"),
        (lambda: tree.box({"a": (1, 2)}), "is no hypercube, so it has no boxes"),
        (lambda: tree.column("a"), "has one; leave"),
    ):
        with pytest.raises(dptrees.Error, match=sentence):
            query()


def test_goes_wherever_arrow_goes(release: Release) -> None:
    found = release["city"].children()
    assert pa.table(found) == found.to_arrow() == found.table
    assert found.to_dicts() == list(found) == found.table.to_pylist()
    assert found["label"][0] == "CT"
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    assert found.to_pandas()["label"].tolist() == found["label"]
    assert isinstance(found.to_pandas(), pandas.DataFrame)
    assert polars.DataFrame(found)["label"].to_list() == found["label"]
    with pytest.raises(dptrees.Error, match="there is no column 'lable'; there are label"):
        found["lable"]
    with pytest.raises(dptrees.Error, match="there are 4 answers"):
        _ = found.estimate


def test_without_pandas(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pandas", "matplotlib"):
        monkeypatch.setitem(sys.modules, package, None)
    found = release["city"].children()
    with pytest.raises(dptrees.Error, match="to_pandas: needs pandas: pip install pandas"):
        found.to_pandas()
    with pytest.raises(dptrees.Error, match="plot: needs matplotlib: pip install matplotlib"):
        found.plot()


def answers(**columns: list[Any]) -> Answers:
    return Answers(table=pa.table(columns), title="t: nodes", confidence=0.95)


def test_shown_as_text_and_as_html() -> None:
    found = answers(
        label=["<a>\x1b[2J", "b"], estimate=[12345.678, None], std_error=[23.4, None], count=[9, 0]
    )
    assert repr(found).split("\n") == [
        "t: nodes, 95 % intervals",
        "     label  estimate  std_error  count",
        r"<a>\x1b[2J    12,346         23      9",
        "         b         -          -      0",
    ]
    shown = found._repr_html_()
    assert "&lt;a&gt;\\x1b[2J" in shown and "<td>12,346</td>" in shown
    long = answers(label=[str(each) for each in range(1000)])
    assert "the first 20 of 1,000" in repr(long) and repr(long).count("\n") == 21


def test_trees_without_a_cdf() -> None:
    """The errors are the same as on the command line."""
    bounds = {"column": "y", "lower": 0, "upper": 10}
    trees = [
        {"name": "x", "domain": {"column": "x", "type": "category", "categories": ["a", "b"]}},
        {"name": "y", "domain": bounds, "objective": "mean"},
    ]
    config = {"privacy": {"epsilon": 2, "neighbors": "add_remove"}, "trees": trees}
    release = dptrees.release({"x": ["a"] * 40 + ["b"] * 50, "y": [1.0, 2.0, 3.0] * 30}, config)
    for name, words in (
        ("x", "the categories of tree x have no order"),
        ("y", "cdf: tree y has a mean alone"),
    ):
        with pytest.raises(dptrees.Error, match=words):
            release[name].cdf()
    with pytest.raises(dptrees.Error, match="tree y"):
        release["y"].share(3, 4)
    assert release["x"].top(1).table["label"].to_pylist() == ["b"]
