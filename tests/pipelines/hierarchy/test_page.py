"""The report of hierarchies: true to the tables, found by paths, bounded, the same bytes again."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.hierarchy.calendar import universe_from_calendar
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import (
    universe_from_codes,
    universe_from_columns,
    universe_from_paths,
)
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import NODES
from dptrees.dpcore.release.released import ReleaseReader, release_counts
from dptrees.dpcore.trees.chunks import SPINE
from dptrees.pipelines.report import report
from dptrees.pipelines.report.report import check_chosen_paths, write_report_html
from dptrees.pipelines.show import page_nodes as report_nodes
from dptrees.pipelines.show.page_nodes import MAX_CHOSEN_NODES, MAX_NODES
from tests.dpcore.hierarchy_questions import hierarchy_question, make_release_plan
from tests.dpcore.mechanisms import changed
from tests.pipelines.node_pages import EVIL, ages, page_nodes, page_words, rows_by_label
from tests.pipelines.report_page import ReleaseTables, parse_elements

PLACES = HierarchyDomain(
    universe=universe_from_codes(
        pa.array(["0101", "0102", "0103", "0204", "0305", "0306"]), (2, 2)
    ),
    columns=("place",),
    unknown="other",
)
ROUTES = HierarchyDomain(
    universe=universe_from_columns(
        {"from": pa.array(["a/b", "a/b", EVIL, "\\"]), "to": pa.array([EVIL, "x", "y/", "z"])}
    ),
    columns=("from", "to"),
)
FILES = HierarchyDomain(
    universe=universe_from_paths(pa.array(["usr/bin/vi", "usr/bin/ed", "etc", "usr/lib"]), "/"),
    columns=("path",),
)
DAYS = HierarchyDomain(
    universe=universe_from_calendar(("month", "day"), date(2013, 1, 30), date(2013, 3, 3)),
    columns=("day",),
)


def hierarchy(
    name: str, domain: HierarchyDomain, *, public_level: int | None = None, **fields: Any
) -> HierarchyQuestion[IrregularMechanism]:
    unit = ADD_REMOVE_ROW if public_level is None else SUBSTITUTE_ROW
    return hierarchy_question(
        name=name, domain=domain, unit=unit, public_level=public_level, **fields
    )


def make_release(*questions: Question) -> ReleaseReader:
    """Leaf number n has 10 n + 50 rows."""
    counts = {
        each.name: 50 + 10 * np.arange(each.key_count * each.domain.cells) for each in questions
    }
    return release_counts(make_release_plan(*questions), counts, ReleaseKey(bytes(32)))


def make_page(*questions: Question) -> str:
    return write_report_html(ReleaseTables(make_release(*questions)))


def level_lines(page: str) -> list[list[str]]:
    """The cells of the table of levels."""
    rows = re.findall(r"<tr><th scope=.row.>(\d.*?)</tr>", page)
    return [re.split(r"(?:<[^>]*>)+", row.removesuffix("</td>")) for row in rows]


@pytest.mark.parametrize("domain", [PLACES, ROUTES, FILES, DAYS])
def test_nodes_are_the_released_rows_found_by_their_paths(domain: HierarchyDomain) -> None:
    tables = ReleaseTables(make_release(hierarchy("t", domain)))
    page = write_report_html(tables)
    shown = page_nodes(parse_elements(page).data["trees"][0])
    assert len(shown) == domain.tree.height + 1
    for level, nodes in enumerate(shown):
        rows = rows_by_label(tables.rows(NODES, "t"), level)
        assert list(nodes) == list(rows)
        for path, node in nodes.items():
            assert node["count"] == rows[path]["count"]
            for name, column in (("estimate", "estimate"), ("low", "ci_low"), ("high", "ci_high")):
                assert node[name] == pytest.approx(rows[path][column], abs=0.5)
            below = shown[level + 1] if level < domain.tree.height else {}
            assert node["children"] == sum(parent_path(domain, child) == path for child in below)


def parent_path(domain: HierarchyDomain, path: str) -> str:
    level, node = domain.tree.find(path)
    parents = domain.tree.parents(level, np.array([node]))
    return str(domain.tree.paths(level - 1, parents)[0])


def test_largest_error_of_a_level_is_that_of_its_rows() -> None:
    planned = hierarchy("files", FILES)
    tables = ReleaseTables(make_release(planned))
    lines = level_lines(write_report_html(tables))
    rows = tables.rows(NODES, "files").to_pylist()
    assert [line[0] for line in lines] == [
        f"{level} {name}" for level, name in enumerate(FILES.tree.level_names)
    ]
    for level, line in enumerate(lines):
        own = [row["std_error"] for row in rows if row["level"] == level]
        assert line[1] == str(len(own))
        assert line[-1] == f"{max(own):,.4g}"


def test_noise_of_single_children_is_reported_from_the_least_to_the_most() -> None:
    planned = hierarchy("places", PLACES)
    amounts = (Fraction(1, 4), Fraction(1, 4), Fraction(1, 2))
    planned = changed(planned, plan=replace(planned.plan, level_amounts=amounts))
    page = make_page(planned)
    (*_, leaves) = level_lines(page)
    assert leaves[2] == "1/2"
    # A leaf with siblings has epsilon 1/2; one that repeats its parent has 3/4.
    assert leaves[4] == "discrete Laplace, scale 1.333 to 2"
    assert leaves[5] == "{:.4g} to {:.4g}".format(*spreads(Fraction(4, 3), Fraction(2)))
    assert "A node with a single child has its child's count" in page_words(page)
    assert "single child" not in page_words(make_page(hierarchy("days", DAYS)))


def spreads(*scales: Fraction) -> list[float]:
    return [math.sqrt(DiscreteLaplace(scale=scale).variance) for scale in scales]


def test_public_counts_are_exact_and_said_to_be() -> None:
    domain = HierarchyDomain(universe=PLACES.universe, columns=("place",))
    page = make_page(hierarchy("places", domain, public_level=1))
    text = page_words(page)
    assert "agree on the counts that are declared public" in text
    which = f"the counts from root to {PLACES.tree.level_names[1]}"
    assert f"{which}, public by declaration and not protected" in text
    assert "none: public and exact" in text
    assert "some nodes are public and exact" in text
    shown = page_nodes(parse_elements(page).data["trees"][0])
    assert [node["exact"] for node in shown[1].values()] == [True, True, True]
    assert shown[1]["01"]["count"] == 50 + 60 + 70
    exact = {path for path, node in shown[2].items() if node["exact"]}
    assert exact == {"0204"}  # it repeats its parent


def test_each_key_has_its_own_rows() -> None:
    keyed = hierarchy("keyed", FILES, keys=("f", "m"), unknown_key="other")
    tables = ReleaseTables(make_release(keyed))
    page = write_report_html(tables)
    (tree,) = parse_elements(page).data["trees"]
    totals = {key["name"]: key["levels"][0]["count"][0] for key in tree["keys"]}
    assert set(totals) == {"f", "m", "other"}
    assert list(totals.values()) == sorted(totals.values(), reverse=True)
    for place, key in enumerate(tree["keys"]):
        for level, nodes in enumerate(page_nodes(tree, place)):
            rows = rows_by_label(tables.rows(NODES, "keyed"), level, key["name"])
            assert {path: node["count"] for path, node in nodes.items()} == {
                path: row["count"] for path, row in rows.items()
            }
    assert ("select", {"name": "key"}) in parse_elements(page).tags
    assert "3 of race, each with a tree of its own" in page_words(page)


# What the page leaves out, and what is requested


@pytest.fixture(scope="module")
def large() -> ReleaseTables:
    """A hierarchy in eight chunks, with more leaves than the page holds."""
    codes = (f"{place:05d}" for place in range(21_000))
    universe = universe_from_codes(pa.array(codes, pa.string()), (2, 1, 2))
    domain = HierarchyDomain(universe=universe, columns=("code",))
    question = replace(hierarchy("codes", domain), chunk_leaves=3_000)
    return ReleaseTables(make_release(question, hierarchy("files", FILES)))


def test_large_hierarchy_shows_its_upper_levels_and_its_largest_nodes(large: ReleaseTables) -> None:
    page = write_report_html(large)
    assert large.read == []
    shown = page_nodes(parse_elements(page).data["trees"][0])
    room = MAX_NODES // 2 - 1 - 21 * 11
    assert [len(level) for level in shown] == [1, 21, 210, room]
    names = large.plan.question("codes").domain.tree.level_names
    rows = rows_by_label(large.rows(NODES, "codes"), 3)
    largest = sorted(rows, key=lambda path: (-rows[path]["count"], path))[:room]
    assert sorted(shown[3]) == sorted(largest)
    assert f"the {room:,} largest of 21,000 nodes of level {names[3]}" in page_words(page)
    assert shown[2]["005"]["children"] == 100


def test_requested_nodes_come_with_their_ancestors_and_children(large: ReleaseTables) -> None:
    rows = rows_by_label(large.rows(NODES, "codes"), 3)
    large.read.clear()
    page = write_report_html(large, {"codes": ["00501", "007"]})
    assert set(large.read) == {(0, SPINE), (0, 0)}
    data = parse_elements(page).data["trees"][0]
    assert data["asked"] == ["00501", "007"]
    shown, plain = (
        page_nodes(data),
        page_nodes(parse_elements(write_report_html(large)).data["trees"][0]),
    )
    added = {path for path in shown[3] if path not in plain[3]}
    assert added == {"00501", *(f"007{place:02d}" for place in range(100))}
    for path in added:
        assert shown[3][path]["count"] == rows[path]["count"]
    assert list(shown[3]) == sorted(shown[3])
    assert "requested: 2 paths with the nodes above and right below" in page_words(page)


def test_requested_nodes_of_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_nodes, "MAX_NODES", 2)
    tables = ReleaseTables(make_release(hierarchy("keyed", PLACES, keys=("f", "m"))))
    (tree,) = parse_elements(write_report_html(tables, {"keyed": ["01", "", "other"]})).data[
        "trees"
    ]
    for place, key in enumerate(each["name"] for each in tree["keys"]):
        upper, lower = page_nodes(tree, place)[1:]
        assert list(upper) == ["01", "02", "03", "other"]
        assert list(lower) == ["0101", "0102", "0103"]
        for path, row in rows_by_label(tables.rows(NODES, "keyed"), 2, key).items():
            assert path not in lower or lower[path]["count"] == row["count"]


def test_paths_that_lead_nowhere_and_too_many_are_refused(large: ReleaseTables) -> None:
    planned = large.plan.question("codes")
    for path in ("99", "00501x", "/"):
        with pytest.raises(ValueError, match="has no node of this path"):
            check_chosen_paths(large, planned, [path])
    fitting = MAX_CHOSEN_NODES // 4
    check_chosen_paths(large, planned, ["00501"] * fitting)
    with pytest.raises(ValueError, match="too many for one page"):
        check_chosen_paths(large, planned, ["00501"] * (fitting + 1))


def test_requested_tree_is_on_a_page_of_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MAX_TREES", 2)
    trees = [hierarchy(name, FILES) for name in ("one", "two", "three", "four")]
    tables = ReleaseTables(make_release(*trees))
    plain = write_report_html(tables)
    assert [each["name"] for each in parse_elements(plain).data["trees"]] == ["one", "two"]
    assert "This page shows the first 2 of 4 trees; 2 are only in the tables" in page_words(plain)
    page = write_report_html(tables, {"three": ["usr"]})
    assert [each["name"] for each in parse_elements(page).data["trees"]] == ["one", "three"]
    assert "This page shows 2 of 4 trees" in page_words(page)


def test_page_of_very_many_long_labels_is_below_5_mb() -> None:
    names = [f'{place:05d}"</script>{EVIL}' + "\U0001f600" * 60 for place in range(50_000)]
    universe = universe_from_columns(
        {"a": pa.array([name[:3] for name in names]), "b": pa.array(names)}
    )
    planned = hierarchy("long", HierarchyDomain(universe=universe, columns=("a", "b")))
    page = write_report_html(
        ReleaseTables(make_release(planned, ages())), {"long": [names[0][:3]] * 9}
    )
    assert MAX_NODES * 50 < len(page.encode()) < 5_000_000
