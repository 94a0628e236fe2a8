"""The report of sparse trees: true to the tables, bounded, clear on what was not published."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.released import NODES
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import ReleaseReader, release_counts
from dptrees.dpcore.sparse.domain import CodeDomain, SparseDomain
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain
from dptrees.dpcore.sparse.plan import plan_sparse
from dptrees.dpcore.sparse.question import SparseQuestion
from dptrees.pipelines.kind_pages import sparse_page as report_sparse
from dptrees.pipelines.kind_pages.sparse_page import ancestor_paths, own_labels, root_path
from dptrees.pipelines.report.report import check_chosen_paths, write_report_html
from dptrees.pipelines.show.page_nodes import MAX_CHOSEN_NODES, MAX_NODES
from tests.dpcore.hierarchy_questions import hierarchy_question
from tests.pipelines.conftest import Workspace
from tests.pipelines.node_pages import EVIL, ages, page_nodes, page_words, rows_by_label
from tests.pipelines.report_page import ReleaseTables, parse_elements

DELTA = Fraction(1, 10**6)
ADDRESSES = CodeDomain(column="address", widths=(8, 8, 16))
HASHES = CodeDomain(column="hash", widths=(3, 9, 1), notation="hex")
PLACES = LabelDomain(label_columns=("from", "to"))
URLS = PathDomain(column="url", depth=3, separator="|")
RHO = Budget(measure=Measure.RHO, amount=Fraction(1))
AGES, FILES = ages(Measure.RHO), hierarchy_question("paths", name="files", budget=RHO)


def sparse(
    name: str, domain: SparseDomain, *, prune: int = 0, weights: list[int] | None = None
) -> SparseQuestion:
    plan = plan_sparse(domain.names, Fraction(1), DELTA, ADD_REMOVE_ROW, weights=weights)
    return SparseQuestion(name=name, domain=domain, plan=plan, prune_below=prune)


def make_leaves(domain: SparseDomain) -> NodeCounts:
    """Counts from far below a threshold to far above, some nodes below parents of few rows."""
    if isinstance(domain, CodeDomain):
        codes = np.unique(np.random.default_rng(7).integers(0, 2**domain.bits, 300, np.uint64))
        keys = pa.array(codes)
    elif isinstance(domain, LabelDomain):
        above, below = ["a/b", "a", EVIL, "\\", "b"], ["", "x", "y/", "/", "\\/", EVIL, "z"]
        pairs = [(one, other) for one in above for other in below]
        columns = dict(zip(domain.columns, map(pa.array, zip(*pairs, strict=True)), strict=True))
        return repeated(domain.leaf_counts(columns))
    else:
        texts = ["", "a", "a|b", "a||c", "|b|c", "a.b|c|d", "a|b|c|cut", "x|y", "/|\\|"]
        return repeated(domain.leaf_counts({"url": pa.array(texts)}))
    return repeated(NodeCounts(keys=keys, counts=np.ones(len(keys), np.int64)))


def repeated(counts: NodeCounts) -> NodeCounts:
    size = len(counts.keys)
    return NodeCounts(keys=counts.keys, counts=20 + (37 * np.arange(size)) % 90)


def make_release(*questions: Any, leaves: dict[str, NodeCounts] | None = None) -> ReleaseReader:
    chosen = [question for question in questions if isinstance(question, SparseQuestion)]
    found = leaves or {question.name: make_leaves(question.domain) for question in chosen}
    plan = ReleasePlan(
        name="a-release",
        unit=ADD_REMOVE_ROW,
        budget=Budget(
            measure=Measure.RHO if len(found) < len(questions) else Measure.EPSILON,
            amount=Fraction(len(questions)),
        ),
        questions=questions,
        stated=(Fraction(30), Fraction(1, 10**3)),
    )
    others = [question for question in questions if question not in chosen]
    counts = {question.name: np.full(question.domain.cells, 50) for question in others}
    return release_counts(plan, counts | found, ReleaseKey(bytes(32)))


def released(tables: ReleaseTables, name: str, level: int) -> dict[str, dict[str, Any]]:
    return rows_by_label(tables.rows(NODES, name), level)


@pytest.mark.parametrize("weights", [None, "leaves"])
@pytest.mark.parametrize("domain", [ADDRESSES, HASHES, PLACES, URLS])
def test_nodes_are_the_released_rows_found_by_their_paths(
    domain: SparseDomain, weights: str | None
) -> None:
    heavy = [*[1] * (domain.height - 1), 10**6]
    planned = sparse("t", domain, weights=heavy if weights else None)
    tables = ReleaseTables(make_release(planned))
    page = write_report_html(tables)
    shown = page_nodes(parse_elements(page).data["trees"][0])
    implied = 0
    assert sum(map(len, shown)) == len(tables.rows(NODES, "t"))
    for level, nodes in enumerate(shown):
        rows = released(tables, "t", level)
        assert list(nodes) == list(rows)
        below = shown[level + 1] if level + 1 < len(shown) else {}
        for path, node in nodes.items():
            row = rows[path]
            assert node["estimate"] == row["estimate"]
            assert (node["low"], node["high"]) == (row["ci_low"], row["ci_high"])
            assert node["count"] == row["count"]
            own = [child["count"] for child in below.values() if child["parent"] == path]
            assert node["children"] == len(own)
            assert node["rest"] == (node["count"] - sum(own) if own else 0)
            assert path == "" or level == 0 or node["parent"] == ancestor_paths(domain, path)[-2]
            implied += node["estimate"] is None
    assert implied > 0 or not weights or domain is PLACES
    assert f"All {sum(map(len, shown))} nodes that were published are here." in page_words(page)


def test_levels_are_reported_with_their_noise_and_threshold() -> None:
    planned = sparse("t", ADDRESSES, weights=[1, 4, 9])
    tables = ReleaseTables(make_release(planned))
    page = write_report_html(tables)
    lines = re.findall(r"<tr><th scope=.row.>(\d.*?)</tr>", page)
    cells = [re.split(r"</t[hd]><td[^>]*>", line.removesuffix("</td>")) for line in lines]
    assert [row[0] for row in cells] == ["0 root", "1 /8", "2 /16", "3 /32"]
    for level, row in enumerate(cells):
        law, published = planned.plan.law(level), f"{len(released(tables, 't', level))}"
        assert law is not None
        assert row[1:3] == [published, published]
        assert "/" in row[3] or "%" in row[3]
        assert f"truncated discrete Laplace, scale {float(law.scale):,.4g}" in row[5]
        assert row[7] == f"{law.radius:,}"
        if level:
            heavy = planned.plan.heavy_count(level)
            assert planned.plan.publication_probability(level, heavy) >= 0.95
            assert planned.plan.publication_probability(level, heavy - 1) < 0.95
            assert row[8:] == [f"{law.radius}", f"{heavy}", f"{2 * law.radius}"]
    assert cells[0][8:] == ["", "", ""]
    assert "The root has no threshold: it is always published." in page_words(page)
    assert "Published at 95 %, from rows" in page_words(page)
    assert "folded into its parent" in page_words(page)


def test_node_that_is_not_in_the_tables_has_at_most_what_is_said() -> None:
    domain = CodeDomain(column="a", widths=(16,), notation="hex")
    planned = sparse("t", domain, prune=100)
    exact = NodeCounts(
        keys=pa.array(np.arange(20_000), pa.uint64()), counts=np.arange(20_000) % 200
    )
    tables = ReleaseTables(make_release(planned, leaves={"t": exact}))
    known = released(tables, "t", 1)
    absent = [code % 200 for code in range(20_000) if f"{code:04x}/16" not in known]
    most = planned.unpublished_most(1)
    # Folding hides more than the threshold does.
    assert 2 * planned.plan.radius(1) < 100 <= max(absent) <= most
    assert most == 2 * planned.plan.radius(1) + 99
    page = write_report_html(tables)
    assert parse_elements(page).data["trees"][0]["most"][1] == most
    assert "begins at 100 rows or more" in page_words(page)
    assert "Passes at 95 %, from rows" in page_words(page)
    with pytest.raises(ValueError, match=f"was published, so it has at most {most} rows"):
        check_chosen_paths(tables, planned, ["0000/16"])


# What the page leaves out, and what is requested


def test_nodes_with_the_largest_counts_come_with_their_ancestors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report_sparse, "MAX_NODES", 90)
    tables = ReleaseTables(make_release(sparse("t", ADDRESSES)))
    page = write_report_html(tables)
    shown = page_nodes(parse_elements(page).data["trees"][0])
    rows = tables.rows(NODES, "t").to_pylist()
    order = sorted(range(len(rows)), key=lambda n: (-rows[n]["count"], rows[n]["level"], n))
    expected = {rows[place]["label"] for place in order[:90]}
    assert {path for level in shown for path in level} == expected
    assert len(shown) > 2
    for level, nodes in enumerate(shown):
        below = pa.array(list(released(tables, "t", level + 1)), pa.string())
        parents = ADDRESSES.parent_paths(level + 1, below).to_pylist() if len(below) else []
        assert {path: node["children"] for path, node in nodes.items()} == {
            path: parents.count(path) for path in nodes
        }
    assert f"Here are 90 of {len(rows)} nodes that were published" in page_words(page)


@pytest.mark.parametrize("domain", [ADDRESSES, PLACES])
def test_requested_nodes_come_with_their_ancestors_and_children(
    domain: SparseDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_sparse, "MAX_NODES", 1)
    tables = ReleaseTables(make_release(sparse("t", domain)))
    height = domain.height
    leaf = min(released(tables, "t", height).values(), key=lambda row: row["count"])["label"]
    inner = ancestor_paths(domain, next(iter(released(tables, "t", height))))[1]
    check_chosen_paths(tables, sparse("t", domain), [leaf, inner, ""])
    data = parse_elements(write_report_html(tables, {"t": [leaf, inner, leaf]})).data["trees"][0]
    assert data["asked"] == [leaf, inner]
    shown = {path for level in page_nodes(data) for path in level}
    below = {path for path in released(tables, "t", 2) if ancestor_paths(domain, path)[1] == inner}
    assert below
    assert shown == {*ancestor_paths(domain, leaf), *ancestor_paths(domain, inner), *below}
    monkeypatch.setattr(report_sparse, "MAX_CHOSEN_NODES", 2)
    fewer = page_nodes(parse_elements(write_report_html(tables, {"t": [inner]})).data["trees"][0])
    assert [list(level) for level in fewer] == [[ancestor_paths(domain, "")[0]], [inner]]


def test_too_many_paths_are_refused() -> None:
    tables = ReleaseTables(make_release(sparse("t", PLACES)))
    path = next(iter(released(tables, "t", 1)))
    check_chosen_paths(tables, sparse("t", PLACES), [path] * (MAX_CHOSEN_NODES // 2))
    with pytest.raises(ValueError, match="too many for one page"):
        check_chosen_paths(tables, sparse("t", PLACES), [path] * (MAX_CHOSEN_NODES // 2 + 1))


def test_page_of_very_many_long_labels_is_below_5_mb() -> None:
    names = [f'{place:05d}"</script>{EVIL}' + "\U0001f600" * 60 for place in range(40_000)]
    exact = NodeCounts(keys=pa.array(names, pa.large_string()), counts=np.full(40_000, 500))
    domain = LabelDomain(label_columns=("name",))
    tables = ReleaseTables(make_release(sparse("long", domain), AGES, leaves={"long": exact}))
    page = write_report_html(tables, {"long": [""]})
    assert MAX_NODES * 50 < len(page.encode()) < 5_000_000
    shown = parse_elements(page).data["trees"][0]["keys"][0]["levels"]
    # Half of the page's space, and the root's children as far as the requested nodes leave space.
    assert sum(len(level["labels"]) for level in shown) >= MAX_NODES // 2
    assert shown[0]["children"] == [40_000]


# What is said


def test_page_of_all_kinds_of_trees() -> None:
    page = write_report_html(ReleaseTables(make_release(sparse("t", PLACES), AGES, FILES)))
    data, text = parse_elements(page).data, page_words(page)
    assert [tree["kind"] for tree in data["trees"]] == ["sparse", "ordered", "hierarchy"]
    assert [list(tree["figures"]) for tree in data["trees"]] == [[], ["density", "cdf"], []]
    assert page.count("const paths = ") == page.count("const page = ") == 1
    assert page.index("const page = ") < page.index("const paths = ") < page.index("addTrees(")
    assert text.count("The typical distance between an estimate and the true number.") == 1


@pytest.mark.parametrize("domain", [ADDRESSES, PLACES])
def test_page_without_any_published_node(domain: SparseDomain) -> None:
    tables = ReleaseTables(
        make_release(sparse("t", domain), leaves={"t": NodeCounts.empty(domain.key_type)})
    )
    page = write_report_html(tables, {"t": [""]})
    (tree,) = parse_elements(page).data["trees"]
    assert [level["children"] for level in tree["keys"][0]["levels"]] == [[0]]
    assert "All 1 nodes" not in page_words(page)
    assert "No node but the root was published." in page_words(page)


# The command


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace that holds a release of a sparse tree and an ordered one."""

    def change(settings: dict[str, Any]) -> None:
        tree = {"name": "places", "domain": {"kind": "sparse", "columns": ["place"]}}
        settings["privacy"]["delta"] = 1e-6
        settings["trees"] = [tree, settings["trees"][0]]

    made = Workspace(tmp_path_factory.mktemp("places"))
    made.make(change)
    return made


def test_report_of_a_folder_shows_what_is_requested(
    places: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = places.output / "report.html"
    plain = page.read_text()
    assert not any(sentinel in plain for sentinel in places.SENTINELS)
    assert places.run("report", places.output).code == 0
    assert page.read_text() == plain
    monkeypatch.setattr(report_sparse, "MAX_NODES", 2)
    outcome = places.run("report", places.output, "--path", "north")
    assert (outcome.code, outcome.err) == (0, "")
    tree = parse_elements(page.read_text()).data["trees"][0]
    assert tree["asked"] == ["north"]
    assert tree["keys"][0]["levels"][1]["labels"] == ["north"]


def test_what_cannot_be_shown_is_reported_in_one_sentence(places: Workspace) -> None:
    for arguments, sentence in (
        ("--path kumquat", "path 'kumquat': no node of this path was published"),
        ("--path a/b", "path 'a/b': it has 2 labels, and the tree 1 below its root"),
        ("--tree all --path a", "path: tree all is ordered"),
    ):
        outcome = places.run("report", places.output, *arguments.split())
        assert (outcome.code, outcome.out) == (2, "")
        assert sentence in outcome.err and outcome.err.count("\n") == 1


# --- paths, taken apart as their domains put them together ---

WIDE = CodeDomain(column="hash", widths=(20, 43, 1), notation="hex")


@pytest.mark.parametrize("domain", [ADDRESSES, HASHES, WIDE])
def test_paths_of_codes_are_taken_apart(domain: CodeDomain) -> None:
    codes = np.random.default_rng(1).integers(0, 2**domain.bits - 1, 500, np.uint64, endpoint=True)
    keys = pa.array([*codes.tolist(), 0, 2**domain.bits - 1], pa.uint64())
    lines = [[root_path(domain)] * len(keys)]
    for level in range(1, domain.height + 1):
        paths = domain.paths(level, domain.level_keys(level, keys))
        assert own_labels(domain, level, paths).equals(paths)
        lines.append(paths.to_pylist())
    for line in list(zip(*lines, strict=True))[-5:]:
        assert ancestor_paths(domain, line[-1]) == list(line)
        assert ancestor_paths(domain, line[1]) == list(line[:2])


@given(st.lists(st.lists(st.text(max_size=4), min_size=3, max_size=3), min_size=1, max_size=6))
def test_paths_of_any_labels_are_taken_apart(rows: list[list[str]]) -> None:
    domain = LabelDomain(label_columns=("a", "b", "c"))
    counts = domain.leaf_counts(
        {name: pa.array(own) for name, own in zip("abc", zip(*rows, strict=True), strict=True)}
    )
    for level in (3, 2, 1):
        keys = domain.level_keys(level, counts.keys)
        paths = domain.paths(level, keys)
        above = domain.paths(level - 1, domain.parent_keys(level, keys)).to_pylist()
        labels = set(own_labels(domain, level, paths).to_pylist())
        assert labels == {row[level - 1] for row in rows if all(row)}
        for path, parent in zip(paths.to_pylist(), above, strict=True):
            if path:
                assert ancestor_paths(domain, path)[-2:] == [parent, path]


def test_paths_that_no_node_can_have_are_refused() -> None:
    for domain, path in ((ADDRESSES, "10.0.0.0/12"), (PLACES, "a/b/c"), (URLS, "a|b|c|d")):
        with pytest.raises(ValueError, match=r"^path "):
            ancestor_paths(domain, path)
