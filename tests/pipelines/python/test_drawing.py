"""Drawings: what is on the axes, whatever matplotlib makes of it."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import dptrees
from dptrees.pipelines.python.answers import (
    COLORS,
    CURVES,
    HISTOGRAM,
    MOST_BARS,
    NODES,
    QUANTILES,
    Drawing,
)
from dptrees.pipelines.report.report import TEMPLATES
from tests.pipelines.python.conftest import fixed, read_config

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    from matplotlib import pyplot

    yield
    pyplot.close("all")


def drawn(form: str, **columns: list[Any]) -> Any:
    return Drawing(table=pa.table(columns), title="age: cdf", form=form).on()


def errors(estimate: list[float]) -> dict[str, list[Any]]:
    return {
        "estimate": estimate,
        "ci_low": [None, *(each - 1 for each in estimate[1:])],
        "ci_high": [each + 2 for each in estimate],
    }


def test_cdf_is_steps_with_a_band() -> None:
    axes = drawn(CURVES, upper=[10, 20, 30], **errors([1.0, 5.0, 9.0]))
    (line,), (band,) = axes.lines, axes.collections
    assert line.get_xdata().tolist() == [10, 20, 30] and line.get_drawstyle() == "steps-post"
    assert line.get_ydata().tolist() == [1, 5, 9]
    assert band.get_paths()[0].vertices[:, 1].max() == 11
    assert axes.get_title() == "age: cdf" and axes.get_legend() is None


def test_keys_are_distinguished() -> None:
    axes = drawn(CURVES, key=["a", "a", "b"], upper=[1, 2, 1], **errors([1.0, 2.0, 3.0]))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    keys = [str(number) for number in range(11)]
    with pytest.raises(dptrees.Error, match="11 keys are too many"):
        drawn(CURVES, key=keys, upper=[1] * 11, **errors([1.0] * 11))


def test_texts_are_placed_as_days_or_numbers() -> None:
    axes = drawn(CURVES, upper=["2013-01-01", "2013-01-02"], **errors([1.0, 2.0]))
    assert axes.lines[0].get_xdata()[0] == datetime.datetime(2013, 1, 1)
    axes = drawn(CURVES, upper=["1.5", "2.5"], **errors([1.0, 2.0]))
    assert axes.lines[0].get_xdata().tolist() == [1.5, 2.5]
    axes = drawn(CURVES, upper=["low", "high"], **errors([1.0, 2.0]))
    assert list(axes.lines[0].get_xdata()) == ["low", "high"]


def test_categories_are_bars_with_whiskers() -> None:
    axes = drawn(NODES, label=["UA", "AA", "DL"], **errors([3.0, 5.0, 4.0]))
    assert [bar.get_width() for bar in axes.patches] == [3, 5, 4]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["UA", "AA", "DL"]
    (whiskers,) = axes.collections
    ends = [path.vertices[:, 0].tolist() for path in whiskers.get_paths()]
    assert ends == [[3, 5], [4, 7], [3, 6]]
    keyed = drawn(NODES, key=["a"], label=["UA"], **errors([3.0]))
    assert [text.get_text() for text in keyed.get_yticklabels()] == ["a: UA"]
    many = [str(number) for number in range(MOST_BARS + 1)]
    with pytest.raises(dptrees.Error, match=r"61 nodes are too many .* top\(20\)"):
        drawn(NODES, label=many, **errors([1.0] * len(many)))


def test_days_are_a_line_with_a_band() -> None:
    for labels in (["2013-01", "2013-02", "2013-03"], ["2013/01/01"] * 3):
        axes = drawn(NODES, label=labels, **errors([3.0, 5.0, 4.0]))
        (line,), (_,) = axes.lines, axes.collections
        assert line.get_xdata()[0] == datetime.datetime(2013, 1, 1)


def test_quantiles_are_a_line_with_a_band() -> None:
    axes = drawn(QUANTILES, q=[0.1, 0.9], value=[3, 7], ci_low=[2, 6], ci_high=[4, 9])
    assert axes.lines[0].get_ydata().tolist() == [3, 7]
    assert axes.get_xlabel() == "part of the rows"


def test_nothing_to_draw() -> None:
    with pytest.raises(dptrees.Error, match="age: cdf: there is nothing to draw"):
        drawn(CURVES, upper=[], estimate=[], ci_low=[], ci_high=[])


def test_shares_compare_groups() -> None:
    columns = errors([10.0, 20.0, 2.0, 4.0]) | {"count": [10, 20, 2, 4]}
    table = pa.table({"key": ["a", "a", "b", "b"], "upper": [1, 2, 1, 2], **columns})
    drawing = Drawing(table=table, title="t", form=CURVES, column="age", keys="sex", share=True)
    axes = drawing.on()
    assert [line.get_ydata().tolist() for line in axes.lines] == [[0.5, 1.0], [0.5, 1.0]]
    assert axes.get_ylabel() == "part of the rows below" and axes.get_xlabel() == "age"
    assert axes.get_legend().get_title().get_text() == "sex"
    assert axes.yaxis.get_major_formatter()(0.125) == "12.5 %"
    empty = pa.table(
        {"upper": [1], "estimate": [0.5], "ci_low": [0.0], "ci_high": [1.0], "count": [0]}
    )
    with pytest.raises(dptrees.Error, match="nothing that shares could be of"):
        Drawing(table=empty, title="t", form=CURVES, share=True).on()
    with pytest.raises(dptrees.Error, match="share is for a CDF"):
        Drawing(table=empty, title="t", form=QUANTILES, share=True).on()


def test_a_level_of_an_ordered_tree_is_a_histogram_of_any_number_of_cells() -> None:
    labels = [f"[{each}, {each + 1})" for each in range(200)]
    columns = errors([float(each) for each in range(200)]) | {"count": list(range(200))}
    axes = drawn(HISTOGRAM, label=labels, **columns)
    (line,), (band,) = axes.lines, axes.collections
    assert line.get_ydata().tolist() == [float(each) for each in range(200)]
    assert line.get_drawstyle() == "steps-mid" and len(band.get_paths()) == 1
    shown = [text.get_text() for text in axes.get_xticklabels()]
    assert len(shown) <= 12 and set(shown) <= set(labels)


AGE = {"column": "age", "type": "integer", "lower": 0, "upper": 100}


def test_a_whole_band_and_a_whole_level_of_a_release() -> None:
    config = {
        "privacy": {"epsilon": 1, "neighbors": "add_remove"},
        "trees": [
            {"name": "age", "domain": AGE, "optimize_for": "estimates"},
            {"name": "grown", "domain": AGE},
        ],
    }
    release = dptrees.release({"age": [number % 90 for number in range(9_000)]}, config)
    points, band = release["age"].cdf(), release["age"].cdf(simultaneous=True)
    one = release["age"].cdf(50, simultaneous=True)
    place = points["upper"].index(50)
    assert band["ci_high"][place] == pytest.approx(one.interval[1])
    assert all(high > low for high, low in zip(band["ci_high"], points["ci_high"], strict=True))
    axes = band.plot()
    assert "all values at once" in axes.get_title() and axes.get_xlabel() == "age"
    leaves = max(release["age"].nodes()["level"])
    assert len(release["age"].nodes(level=leaves).plot().lines) == 1
    with pytest.raises(
        dptrees.Error, match=r"no band .* whole levels have one \(optimize_for: estimates\)"
    ):
        release["grown"].cdf(simultaneous=True)


def test_statistics_are_points_with_whiskers() -> None:
    release = (
        dptrees.of({"x": [1, 2, 3] * 500, "k": ["a", "b", "c"] * 500}, epsilon=1)
        .by("k", ["a", "b", "c"])
        .metrics("x", ["mean", "median"], (0, 9))
        .release()
    )
    means = release["x"].mean()
    axes = means.plot()
    assert axes.get_xlabel() == "mean of x" and axes.get_ylabel() == "k"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b", "c"]
    whiskers, points = axes.lines[::2], axes.lines[1::2]
    assert [line.get_xdata()[0] for line in points] == means["value"]
    assert [list(line.get_xdata()) for line in whiskers] == [
        list(ends) for ends in zip(means["ci_low"], means["ci_high"], strict=True)
    ]
    assert [line.get_color() for line in points] == list(COLORS[:3])
    assert release["x"].median().plot().get_xlabel() == "median of x"
    assert release["x"].quantiles(0.9, key="a").plot().get_xlabel() == "90 % quantile of x"
    with pytest.raises(dptrees.Error, match="has several units; draw one of them"):
        release["x"].describe().plot()
    with pytest.raises(dptrees.Error, match="share is for a CDF"):
        means.plot(share=True)


def test_keys_have_the_colors_of_the_page() -> None:
    style = (TEMPLATES / "charts" / "chart.css").read_text()
    listed = re.findall(r"--s\d: (#\w+)", style.splitlines()[0])
    assert tuple(listed) == COLORS
    axes = drawn(CURVES, key=["a", "b"], upper=[1, 1], **errors([1.0, 2.0]))
    assert [line.get_color() for line in axes.lines] == list(COLORS[:2])


# Trees of every kind, and queries of them; each tree answers some.
KINDS = (
    *("cdf", "dates", "exponential", "exponential-intervals", "hierarchy", "sparse-paths"),
    *("box-paper", "box-dense", "distinct", "mean", "sketch", "table"),
)
QUERIES: dict[str, dict[str, Any]] = {
    **{key: {} for key in ("cdf", "quantiles", "median", "describe", "children")},
    **{key: {} for key in ("mean", "variance", "std", "total")},
    **{"top": {"n": 3}, "nodes": {"level": 1}, "above": {"rows": 5}, "count": {"values": ["UA"]}},
    **{"node": {"node": "NY"}, "sum": {"nodes": ["NY"]}, "box": {"sides": {"delay": (0, 10)}}},
    **{"range": {"lower": 0, "upper": 5}, "share": {"lower": 0, "upper": 5}},
}
ALONE = {"mechanism": "exponential", "quantiles": [0.25, 0.5]}
DRAWN = {
    "exponential": {"quantiles", "median"},
    "dates": {"quantiles", "median"},
    "box-paper": {"top", "nodes", "above", "box", "carrier quantiles", "carrier median"},
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("work")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_answer_is_drawn_or_refused(name: str) -> None:
    """Also where ends of intervals or estimates are not known, of numbers, dates and categories."""
    config = read_config(name)
    if name == "dates":
        (tree,) = config["trees"]
        config["trees"] = [{"name": "t0", "domain": tree["domain"], **ALONE}]
    release, drawn = fixed("rows.parquet", config), set()
    for part, tree in tree_parts(release):
        for query, arguments in QUERIES.items():
            with contextlib.suppress(dptrees.Error):
                getattr(tree, query)(**arguments).plot()
                drawn.add(f"{part}{query}")
            matplotlib.pyplot.close("all")
    assert drawn >= DRAWN.get(name, set()) and drawn, drawn


def tree_parts(release: Any) -> Iterator[tuple[str, Any]]:
    """Yield the trees, and the columns of boxes, with the column's name."""
    for tree in map(release.__getitem__, release):
        yield "", tree
        for column in tree._tree.question.columns:
            with contextlib.suppress(dptrees.Error):
                yield f"{column} ", tree.column(column)
