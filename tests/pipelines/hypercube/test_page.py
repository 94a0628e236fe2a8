"""The part of a report about a box: true to the tables, bounded, and drawn in a real browser."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.boxes.parts import box_sums
from dptrees.dpcore.boxes.released import ReleasedHypercube
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.pipelines.kind_pages.box_charts import Densities, halved_edges
from dptrees.pipelines.kind_pages.box_pages import MAX_PARTS
from dptrees.pipelines.kind_pages.ordered_charts import FigureAxis
from dptrees.pipelines.query.release_folder import ReleaseFolder
from tests.chromium import Chromium
from tests.pipelines.conftest import Workspace
from tests.pipelines.hypercube.conftest import AGE, DAY, KIND, ROWS, box, rows, write_inputs
from tests.pipelines.node_pages import EVIL, page_words
from tests.pipelines.report_page import parse_elements

FORMULA = "$$x^2$$"


def read_tree(workspace: Workspace, name: str) -> ReleasedHypercube:
    folder = ReleaseFolder(str(workspace.output))
    question = folder.plan.question(name)
    return ReleasedHypercube(question, folder.part)  # type: ignore[arg-type]


def read_page(workspace: Workspace) -> str:
    return (workspace.output / "report.html").read_text()


def figures(page: str) -> dict[str, list[dict[str, Any]]]:
    """What the script reads of every figure, by the names of the trees."""
    found: list[dict[str, Any]] = parse_elements(page).data["trees"]
    return dict(zip(("one", "two", "four"), (tree["figures"] for tree in found), strict=True))


# Parts, curves and grids


def test_merged_parts_tile_the_box_with_the_same_counts(boxes: Workspace) -> None:
    partition = read_tree(boxes, "two").partition
    for most in (1, 2, 17, 500, 10**9):
        merged, every = partition.coarsened(most), partition.parts
        assert len(merged.counts) <= most and merged.counts.sum() == every.counts.sum() == ROWS
        covered = np.zeros([axis.cells for axis in partition.domain.axes], np.int64)
        for x, x_end, y, y_end in zip(
            *(merged.starts[0], merged.stops[0], merged.starts[1], merged.stops[1]), strict=True
        ):
            covered[x:x_end, y:y_end] += 1
        assert (covered == 1).all()
        if most > len(every.counts):
            assert sorted(merged.counts) == sorted(every.counts)


def test_parts_below_a_depth_are_merged_into_what_is_seen(boxes: Workspace) -> None:
    partition = read_tree(boxes, "two").partition
    for finest in (0, *partition.depths):
        merged = partition.coarsened(10**9, finest)
        # One level below the last that may be split, at most.
        deepest = min([depth for depth in partition.depths if depth >= finest])
        assert len(merged.counts) <= 2**deepest and merged.counts.sum() == ROWS
    atoms = Densities(tree=read_tree(boxes, "two")).rectangles(10**9)
    assert len(atoms.rows) <= len(partition.parts.counts) and atoms.rows.sum() == ROWS


def test_grids_are_the_sums_of_parts(boxes: Workspace) -> None:
    partition = read_tree(boxes, "two").partition
    edges = [np.array([0, 3, 31, 64]), np.array([5, 6, 40])]
    grid = partition.parts.grids(edges)[0, 1]
    for i in range(3):
        for j in range(2):
            sides = [(edges[0][i], edges[0][i + 1]), (edges[1][j], edges[1][j + 1])]
            assert grid[i, j] == pytest.approx(box_sums(partition, sides).even.rows)


def test_grids_of_four_columns_hold_all_rows(boxes: Workspace) -> None:
    for grid in Densities(tree=read_tree(boxes, "four")).grids(4, 48):
        assert grid.rows.sum() == pytest.approx(ROWS)
        assert max(grid.rows.shape) <= 49


def test_steps_of_a_histogram_are_few_and_hold_all_rows(boxes: Workspace) -> None:
    for most in (3, 20, 1000):
        histogram = Densities(tree=read_tree(boxes, "one")).histogram(0, most)
        assert len(histogram.rows) <= most and histogram.rows.sum() == pytest.approx(ROWS)
        assert histogram.edges[0] == 0 and histogram.edges[-1] == 366
    # Every day is a part: a step of each, in rows per day.
    days = {each["values"]: each["counts"] for each in rows()["day"].value_counts().to_pylist()}
    assert histogram.density.max() == pytest.approx(max(days.values()))


def test_a_curve_has_intervals_where_they_are_known(boxes: Workspace) -> None:
    curve = Densities(tree=read_tree(boxes, "one")).curve(1000, 50)
    assert curve.low is not None and curve.high is not None
    at = curve.rows[curve.places]
    assert (curve.low <= at + 1e-6).all() and (at <= curve.high + 1e-6).all()
    assert len(curve.places) == 50 and curve.rows[-1] == ROWS


def test_a_figure_begins_where_the_rows_are() -> None:
    axis = FigureAxis(domain=StepDomain(kind="integer", column="n", lower=0, upper=1000))
    edges, rows_below = np.array([0, 100, 200, 1000]), np.array([0.0, 1.0, 999.0, 1000.0])
    assert axis.window(edges, rows_below) == (100, 200)
    assert axis.window(np.array([0, 1000]), np.array([0.0, 9.0])) == (0, 1000)
    named = FigureAxis(domain=CategoryDomain(column="c", categories=("a", "b", "c", "d")))
    assert named.window(np.array([0, 1, 4]), np.array([0.0, 9.0, 9.0])) == (0, 4)


def test_where_cells_lie_on_an_axis() -> None:
    zone = timezone.utc
    times = StepDomain(kind="timestamp",
        column="t", lower=datetime(2024, 1, 1, tzinfo=zone),
        upper=datetime(2024, 1, 3, tzinfo=zone), cells=48,
    )  # fmt: skip
    day = 86_400_000.0
    start = datetime(2024, 1, 1, tzinfo=zone).timestamp() * 1000
    assert FigureAxis(domain=times).at(np.array([0, 24, 48])).tolist() == [
        *(start, start + day, start + 2 * day),
    ]
    assert FigureAxis(domain=times).unit == ("hour", day / 24)
    named = FigureAxis(domain=CategoryDomain(column="c", categories=("a", "b")))
    assert named.at(np.array([0, 2])).tolist() == [-0.5, 1.5]
    assert halved_edges(0, 5, 5, 48).tolist() == [0, 1, 2, 3, 4, 5]
    assert halved_edges(3, 2**40, 2**40, 2).tolist() == [0, 2**39, 2**40]


# The page


def test_what_is_drawn_of_one_two_and_four_columns(boxes: Workspace) -> None:
    drawn = {name: list(own) for name, own in figures(read_page(boxes)).items()}
    assert drawn == {
        "one": ["curve", "column0"],
        "two": ["map", "column0", "column1"],
        # Three trees share the page: heat maps of the first columns alone.
        "four": [
            *(f"column{place}" for place in range(4)),
            *(f"pair{place}" for place in range(3)),
        ],
    }


def test_the_script_reads_the_released_counts(boxes: Workspace) -> None:
    for own in figures(read_page(boxes)).values():
        for name, each in own.items():
            if name.startswith("column"):
                (series,) = each["series"]
                assert sum(series["count"]) == pytest.approx(ROWS, rel=1e-3)
            if name.startswith("pair"):
                assert sum(each["cells"]["rows"]) == pytest.approx(ROWS, rel=1e-2)
            if name == "map":
                cells = each["cells"]
                assert sum(cells["rows"]) == pytest.approx(ROWS, rel=1e-3)
                assert len(cells["rows"]) <= MAX_PARTS // 3
                for side in cells["sides"]:
                    assert len(side["which"]) == len(cells["rows"])
                    assert max(side["which"]) < len(side["texts"]) == len(side["ends"])


def test_many_columns_and_hostile_names_on_a_page_of_bounded_size(workspace: Workspace) -> None:
    names = [EVIL, FORMULA, *(f"c{place}" for place in range(18))]
    random = np.random.default_rng(5)
    table = pa.table({name: random.integers(0, 8, 2000) for name in names})
    columns = [{"column": name, "type": "integer", "lower": 0, "upper": 8} for name in names]
    path = write_inputs(workspace, table, box("wide", columns, counts="sparse", depth=24))
    workspace.succeed("release", path)
    page = read_page(workspace)
    assert len(page.encode()) < 600_000 and EVIL not in page
    (tree,) = parse_elements(page).data["trees"]
    names = [*(f"column{each}" for each in range(12)), *(f"pair{each}" for each in range(10))]
    assert list(tree["figures"]) == names
    text = page_words(page)
    assert "The first 12 of 20 columns are here" in text and EVIL in text


def test_of_counts_that_are_all_zero_nothing_is_drawn(workspace: Workspace) -> None:
    empty = pa.table({name: pa.nulls(9, kind) for name, kind in zip(*_types(), strict=True)})
    trees = [
        box(f"t{len(columns)}", columns, counts="dense")
        for columns in ([DAY], [AGE, KIND], [DAY, AGE, KIND])
    ]
    workspace.succeed("release", write_inputs(workspace, empty, *trees))
    page = read_page(workspace)
    assert page.count("All released counts are zero: there is nothing to draw") == 3
    assert [each["figures"] for each in parse_elements(page).data["trees"]] == [{}, {}, {}]


def _types() -> tuple[list[str], list[pa.DataType]]:
    schema = rows(3).schema
    return schema.names, schema.types


# In a browser


PLACE = """
(() => { const box = document.getElementById("%s"); box.scrollIntoView({block: "center"});
  const at = box.getBoundingClientRect(); return [at.x + at.width * %f, at.y + at.height * %f];
})()
"""


def said_at(chromium: Chromium, figure: str, x: float, y: float) -> str:
    """What a chart says once the mouse is there."""
    left, top = chromium.value(PLACE % (figure, x, y))
    chromium.mouse("mouseMoved", left, top)
    said = f"document.getElementById('{figure}-read').textContent"
    chromium.wait(f"{said}.includes(' rows')")
    return str(chromium.value(said))


def test_a_browser_draws_boxes_beside_other_trees(
    chromium: Chromium, workspace: Workspace, tmp_path: Path
) -> None:
    trees = [
        box("three", [DAY, AGE, KIND], counts="sparse"),
        {"name": "ages", "domain": dict(AGE)},
        box("two", [AGE, {**KIND, "categories": ["alpha", "beta", FORMULA, EVIL]}]),
        box("one", [DAY]),
    ]
    workspace.succeed("release", write_inputs(workspace, rows(), *trees))
    chromium.open(workspace.output / "report.html")
    assert chromium.value("document.querySelectorAll('[data-figure]').length") == 4 + 2 + 3 + 2
    assert "kind alpha" in said_at(chromium, "figure-2-map", 0.4, 0.9)
    assert chromium.complaints() == []


def test_tooltips_report_the_rows_of_a_heat_map(chromium: Chromium, boxes: Workspace) -> None:
    chromium.open(boxes.output / "report.html")
    said = said_at(chromium, "figure-2-pair0", 0.4, 0.4)
    reported = re.search(r"day \[(\S+), (\S+)\), at \[([^,]+), ([^)]+)\): ([\d,.]+) rows", said)
    assert reported is not None, said
    first, last, start, stop, count = reported.groups()
    requested = read_tree(boxes, "four").box({"day": (first, last), "at": (start, stop)})
    assert (
        float(count.replace(",", "")) == pytest.approx(requested.count, abs=0.6) and requested.count
    )
    assert chromium.complaints() == []
    # No sideways scrolling where the window is narrow.
    chromium.call(
        "Emulation.setDeviceMetricsOverride",
        **{"width": 380, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    chromium.open(boxes.output / "report.html")
    assert chromium.value("document.documentElement.scrollWidth") <= 380
    chromium.call("Emulation.clearDeviceMetricsOverride")
