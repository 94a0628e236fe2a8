"""The report: self-contained, escaped, bounded, the same bytes again, and true to the tables.

Golden pages have its words.
"""

from __future__ import annotations

import hashlib
import os
import re
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.released import CDF, NODES
from dptrees.dpcore.release.guarantee import guarantee_in_words
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import TreePlan
from dptrees.pipelines.config.configuration import parse_configuration
from dptrees.pipelines.report.report import _total, write_report_html
from dptrees.pipelines.show.figures import with_margin
from dptrees.pipelines.show.page_nodes import MAX_KEYS, clip
from dptrees.pipelines.show.tree_page import Headline, TreePage
from tests.pipelines.configuration_text import refusal, text_with
from tests.pipelines.conftest import Workspace, run_python, search_path, update
from tests.pipelines.report_page import Tables, parse_elements

EVIL = "</script><!--<script>alert(1)</script>"
FORMULA = "$$x^2$$"


def question(
    name: str,
    domain: OrderedDomain,
    fanouts: tuple[int, ...],
    keys: KeyList | None = None,
    quantiles: tuple[float, ...] = (0.5,),
) -> OrderedQuestion[UniformMechanism]:
    levels = len(fanouts) + 1
    plan = TreePlan(
        tree=UniformTree(leaves=domain.cells, fanouts=fanouts),
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
        level_amounts=(Fraction(1, levels),) * levels,
        keyed=keys is not None,
    )
    mechanism = UniformMechanism(plan=plan)
    return OrderedQuestion(
        name=name, domain=domain, mechanism=mechanism, keys=keys, quantiles=quantiles
    )


def make_plan(*questions: OrderedQuestion[UniformMechanism]) -> ReleasePlan:
    whole = Budget(measure=Measure.EPSILON, amount=Fraction(len(questions)))
    return ReleasePlan(name="a-release", unit=ADD_REMOVE_ROW, budget=whole, questions=questions)


class Made:
    """A small release and its page."""

    def __init__(self, *questions: OrderedQuestion[UniformMechanism], count: int = 50) -> None:
        self.plan = make_plan(*questions)
        self.counts = {
            each.name: np.full(each.key_count * each.domain.cells, count, np.int64)
            for each in questions
        }
        self.release = release_counts(self.plan, self.counts, ReleaseKey(bytes(32)))

    def rows(self, kind: str, tree: str) -> pa.Table:
        planned = self.plan.question(tree)
        places = {(chunk.key, chunk.index) for chunk in planned.forest.chunking}
        return pa.concat_tables(
            self.release._read(kind, tree, key, index) for key, index in sorted(places)
        )

    def page(self) -> str:
        return write_report_html(Tables(self.plan, self.rows, self.release.quantiles))


def columns(page: str, place: int = 0) -> list[dict[str, Any]]:
    """The columns of each line of the CDF of a tree that the page holds."""
    figures = parse_elements(page).data["trees"][place]["figures"]
    found: list[dict[str, Any]] = figures.get("cdf", figures.get("shares"))["series"]
    return found


AGES = question("age", StepDomain(kind="integer", column="years", lower=0, upper=12), (3, 4))
SHOPS = question(
    "shops",
    NumberDomain(column=f"price {EVIL}", lower=0, upper=1, cells=10),
    (10,),
    KeyList(column="shop", keys=(EVIL, FORMULA, "A"), unknown="other"),
    (0.1, 0.9),
)
SIZES = question(
    f"sizes {EVIL}", CategoryDomain(column="size", categories=("S", EVIL, FORMULA)), (3,)
)


@pytest.fixture(scope="module")
def made() -> Made:
    return Made(AGES, SHOPS, SIZES)


@pytest.fixture(scope="module")
def page(made: Made) -> str:
    return made.page()


def test_page_loads_nothing(page: str) -> None:
    tags = parse_elements(page).tags
    assert {"link", "iframe", "img", "base", "object", "embed"}.isdisjoint(tag for tag, _ in tags)
    assert not [tag for tag, attributes in tags if {"src", "action"} & set(attributes)]
    assert all(str(each["href"]).startswith("#") for _, each in tags if "href" in each)
    (policy,) = [each["content"] for _, each in tags if each.get("http-equiv")]
    assert str(policy).startswith("default-src 'none'") and "http" not in str(policy)
    assert "@import" not in page.split("</style>")[0]


def test_names_from_users_are_escaped(page: str) -> None:
    elements = parse_elements(page)
    assert [tag for tag, _ in elements.tags].count("script") == 2
    assert "alert(1)" not in "".join(elements.scripts[1:])
    assert f"sizes {EVIL}" in elements.text
    keys = {key["name"] for key in elements.data["trees"][1]["keys"]}
    assert keys == {EVIL, FORMULA, "A", "other"}


def test_links_lead_into_the_page(page: str) -> None:
    tags = parse_elements(page).tags
    ids = [each["id"] for _, each in tags if "id" in each]
    assert len(ids) == len(set(ids))
    links = {str(each["href"])[1:] for _, each in tags if "href" in each}
    assert links <= set(ids)
    assert {"tree-0", "tree-1", "tree-2", "guarantee", "reading", "policies", "words"} <= links


def test_the_guarantee_is_stated_once(made: Made, page: str) -> None:
    assert page.count(guarantee_in_words(made.plan)) == 1


PRICES = NumberDomain(column="price", lower=0, upper=1, cells=10)


def test_the_top_says_the_median_that_the_cdf_has() -> None:
    made = Made(question("prices", PRICES, (10,), None, ()))
    counts = made.rows(CDF, "prices")["count"].to_numpy()
    top = made.page().split("</style>")[1].split("</nav>")[0]
    text = " ".join(parse_elements(top).text.split())
    (root,) = [row for row in made.rows(NODES, "prices").to_pylist() if row["level"] == 0]
    assert with_margin(*(root[name] for name in ("estimate", "ci_low", "ci_high"))) in text
    found = re.search(r"(0\.\d+) ?median of price", text)
    assert found is not None
    below = np.interp(float(found[1]), np.arange(11) / 10, np.append(0, counts))
    assert below == pytest.approx(counts[-1] / 2, rel=0.05)


def test_curves_are_the_released_rows(made: Made, page: str) -> None:
    (curve,) = columns(page, 0)
    table = made.rows(CDF, "age")
    assert curve["at"] == [round(1000 * year / 12) for year in range(13)]
    assert curve["count"] == [0, *table["count"].to_pylist()]
    for name, column in {"estimate": "estimate", "low": "ci_low", "high": "ci_high"}.items():
        assert curve[name] == pytest.approx([0.0, *table[column].to_pylist()], abs=0.5)
    assert curve["texts"] == [str(year) for year in range(13)]


def test_lines_are_drawn_where_their_points_are(page: str) -> None:
    (curve,) = columns(page, 0)
    top = parse_elements(page).data["trees"][0]["figures"]["cdf"]["top"]
    (path,) = re.findall('class="line s0" d="([^"]+)"', page.split('id="tree-1"')[0])
    steps = [int(number) for number in re.findall(r"-?\d+", path)]
    points = np.cumsum(np.array(steps).reshape(-1, 2), axis=0)
    assert points[:, 0].tolist() == curve["at"]
    assert points[:, 1] == pytest.approx(
        [1000 - 1000 * count / top for count in curve["count"]], abs=1
    )


def test_curves_of_keys_hold_their_own_rows(made: Made, page: str) -> None:
    table = made.rows(CDF, "shops")
    totals = []
    for curve in columns(page, 1):
        own = [row["count"] for row in table.to_pylist() if row["key"] == curve["name"]]
        assert curve["count"][1:] == own
        totals.append(own[-1])
    assert totals == sorted(totals, reverse=True)


def test_nodes_are_the_released_rows(made: Made, page: str) -> None:
    tree = parse_elements(page).data["trees"][0]
    rows = made.rows(NODES, "age").to_pylist()
    assert len(tree["keys"][0]["levels"]) == 3
    for level, shown in enumerate(tree["keys"][0]["levels"]):
        own = sorted((row for row in rows if row["level"] == level), key=lambda row: row["node"])
        assert shown["count"] == [row["count"] for row in own]
        labels = [row["label"] for row in own]
        if level == 0:
            assert tree["labels"][level] == ["all values"]
            continue
        # The ends count values beyond the bounds too, and say so.
        assert tree["labels"][level][1:-1] == labels[1:-1]
        assert tree["labels"][level][0].startswith("below ")
        assert tree["labels"][level][-1].endswith(" and above")


def test_quantiles_stand_in_the_page(made: Made, page: str) -> None:
    rows = made.release.quantiles.to_pylist()
    shops = [row for row in rows if row["tree"] == "shops"]
    assert len(shops) == 2 * SHOPS.key_count
    text = " ".join(parse_elements(page).text.split())
    for row in shops:
        value, low, high = (
            SHOPS.domain.clamped_values([row[f"{name}_text"]])[0] or f"{row[name]:.2f}"
            for name in ("value", "ci_low", "ci_high")
        )
        assert f"{value} ({low} to {high})" in text or f"{value} ({low})" in text


DAYS = StepDomain(kind="date", column="day", lower=date(2013, 1, 1), upper=date(2013, 1, 9))
AXES = {
    ("2013-01-02", "2013-01-03"): DAYS,
    ("2013-01-01 01:00:00", "2013-01-01 06:00"): StepDomain(
        kind="timestamp",
        column="at",
        lower=datetime(2013, 1, 1),
        upper=datetime(2013, 1, 2),
        cells=24,
    ),
    ("M", "M"): CategoryDomain(column="size", categories=("S", "M", "L")),
    ("5", "5"): CategoryDomain(column="size", categories=(7, 5, 9)),
}


def test_axis_of_every_kind() -> None:
    for (text, tick), domain in AXES.items():
        page = Made(question("t", domain, (domain.cells,))).page()
        (curve,) = columns(page)
        assert curve["texts"][1] == text
        assert f">{tick}</text>" in page


def test_moments_have_a_course_and_numbers_a_density() -> None:
    made = Made(question("t", DAYS, (8,)), AGES)
    page = made.page()
    course, density = (tree["figures"]["density"] for tree in parse_elements(page).data["trees"])
    assert (course["draws"], density["draws"]) == ("line", "bars")
    for name, figure in (("t", course), ("age", density)):
        rows = made.rows(NODES, name).to_pylist()
        (own,) = figure["series"]
        level = max(row["level"] for row in rows)
        assert own["count"] == [row["count"] for row in rows if row["level"] == level]


def test_categories_have_bars_and_keys_a_table(made: Made, page: str) -> None:
    bars = page.split('id="tree-2"')[1]
    rows = [row for row in made.rows(NODES, SIZES.name).to_pylist() if row["level"] == 1]
    shown = re.findall(r'data-count="(-?\d+)"', bars)
    assert [int(count) for count in shown] == sorted((r["count"] for r in rows), reverse=True)
    ends = re.findall(r'soft" data-values="([^"]*)"', bars)
    estimates = sorted(float(each.split()[0]) for each in ends)
    assert estimates == pytest.approx(sorted(row["estimate"] for row in rows))
    by = KeyList(column="shop", keys=("a", "b"))
    keyed = Made(question("k", CategoryDomain(column="c", categories=("x", "y")), (2,), by)).page()
    assert "C by key" in " ".join(parse_elements(keyed).text.split())


def test_categories_without_an_order_have_bars_and_no_cdf() -> None:
    sizes = CategoryDomain(column="size", categories=("S", "M", "L"), ordered=False)
    by = KeyList(column="shop", keys=("a", "b"))
    trees = (question("one", sizes, (3,), None, ()), question("by", sizes, (3,), by, ()))
    elements = parse_elements(Made(*trees).page())
    assert [tree["figures"] for tree in elements.data["trees"]] == [{}, {}]
    text = " ".join(elements.text.split())
    assert "largest of 3 categories" in text and "Size by key" in text
    assert "CDF" not in text and "below each value" not in text


def test_tree_of_one_leaf_and_key_without_rows() -> None:
    one = question("one", StepDomain(kind="integer", column="a", lower=0, upper=1), ())
    assert "All levels are here." in Made(one).page()
    assert "unknown" in parse_elements(Made(SHOPS, count=0).page()).text


def test_same_release_gives_the_same_bytes(page: str) -> None:
    assert Made(AGES, SHOPS, SIZES).page() == page
    program = (
        "import runpy, hashlib;"
        f"t = runpy.run_path({str(Path(__file__))!r});"
        "p = t['Made'](t['AGES'], t['SHOPS'], t['SIZES']).page();"
        "print(hashlib.sha256(p.encode()).hexdigest())"
    )
    seed = {"PYTHONHASHSEED": "7", "PYTHONPATH": search_path()}
    other = run_python(program, env=os.environ | seed)
    assert other.stdout.strip() == hashlib.sha256(page.encode()).hexdigest(), other.stderr


def test_order_of_the_rows_changes_nothing(made: Made, page: str) -> None:
    def turned(table: pa.Table) -> pa.Table:
        return table.take(pa.array(np.arange(len(table))[::-1]))

    again = write_report_html(
        Tables(made.plan, lambda *planned: turned(made.rows(*planned)), made.release.quantiles)
    )
    assert again == page


def large_tables(planned: OrderedQuestion[UniformMechanism]) -> dict[str, pa.Table]:
    """Tables of the right schema for a large tree: all its rows lie in one hundredth of it."""
    tree = planned.plan.tree
    leaves = np.zeros(tree.leaves, np.int64)
    leaves[tree.leaves // 2 : tree.leaves // 2 + tree.leaves // 100] = 7
    parts = []
    for level, count in enumerate(tree.level_counts(leaves)):
        labels = pa.array(np.arange(len(count))).cast(pa.string())
        parts.append(make_columns(planned, count) | {"level": np.full(len(count), level, np.int32)})
        parts[-1] |= {"node": np.arange(len(count)), "label": labels}
    points = {"upper": planned.domain.upper_edges(0, tree.leaves)}
    points |= make_columns(planned, np.cumsum(leaves))
    return {NODES: pa.concat_tables(map(pa.table, parts)), CDF: pa.table(points)}


def make_columns(planned: OrderedQuestion[UniformMechanism], count: Any) -> dict[str, Any]:
    estimate = count.astype(np.float64)
    names = pa.nulls(len(count), pa.dictionary(pa.int32(), pa.string()))
    return {
        "tree": pa.array([planned.name] * len(count)),
        "key": names,
        "estimate": estimate,
        "std_error": np.full(len(count), 2.5),
        "ci_low": np.maximum(estimate - 5, 0),
        "ci_high": estimate + 5,
        "count": count,
    }


def test_large_tree_is_thinned_where_the_curve_bends() -> None:
    domain = NumberDomain(column="x", lower=0, upper=1, cells=10**6)
    planned = question("large", domain, (100, 100, 100), quantiles=())
    tables = large_tables(planned)
    plan = make_plan(planned)
    page = write_report_html(Tables(plan, lambda kind, _: tables[kind]))
    assert len(page.encode()) < 600_000
    (curve,) = columns(page)
    x, count = np.array(curve["at"]) / 1000, np.array(curve["count"])
    assert 100 < len(x) <= 1_000
    truth = np.interp(tables[CDF]["upper"].to_numpy(), x, count)
    # All rows lie in ten units of a drawing of 1,000.
    assert np.abs(truth - tables[CDF]["count"].to_numpy()).max() <= count[-1] / 20
    assert count[-1] == 70_000
    levels = parse_elements(page).data["trees"][0]["keys"][0]["levels"]
    assert [len(level["count"]) for level in levels] == [1, 100, 5_000 - 101]
    assert min(levels[2]["count"]) >= 0
    assert "4,899 largest of 10,000 nodes of level 2" in " ".join(parse_elements(page).text.split())


def test_page_of_many_trees_keys_and_long_names_is_bounded() -> None:
    names = tuple(f"{place} " + "\U0001f600" * 60 for place in range(50))
    keys = KeyList(column="k", keys=names)
    domain = CategoryDomain(column="c", categories=names)
    quantiles = tuple(np.linspace(0, 1, 50).tolist())
    trees = [question(f"t{place}", domain, (5, 10), keys, quantiles) for place in range(13)]
    page = Made(*trees).page()
    assert len(page.encode()) < 2_000_000
    text = " ".join(parse_elements(page).text.split())
    assert "This page shows the first 12 of 13 trees" in text
    assert "The largest 6 of 50 keys are here" in text
    assert all(len(tree["keys"]) <= MAX_KEYS for tree in parse_elements(page).data["trees"])


def test_pages_of_many_curves_are_below_600_kb() -> None:
    domain = NumberDomain(column="x", lower=0, upper=1, cells=4000)
    keys = KeyList(column="k", keys=tuple(f"key {place}" for place in range(40)))
    keyed = Made(question("keyed", domain, (40, 100), keys)).page()
    several = Made(*(question(f"t{place}", domain, (40, 100)) for place in range(12))).page()
    assert max(len(page.encode()) for page in (keyed, several)) < 600_000


def test_clip_bounds_bytes_and_replaces_what_is_invisible() -> None:
    assert clip("a\u202eb\x00") == "a\ufffdb\ufffd"
    assert clip("\u00e9" * 100, 5) == "\u00e9\u00e9\u2026"
    assert clip(None) == ""


def test_the_head_has_the_least_noisy_total_of_rows() -> None:
    """Sums are no rows, and a total whose error is not known is none."""

    def page(name: str, rows: str, error: float, noun: str = "rows") -> TreePage:
        headline = Headline(figure="1", label="x", rows=rows, noun=noun, error=error)
        return TreePage(said={"name": name}, data={}, template="", headline=headline)

    pages = [
        page("joint", "48,858 ± 65", 130.0),
        page("occupation", "48,846 ± 27", 54.0),
        page("hours", "2 ± 1", 2.0, "sum of hours"),
        page("parts", "", 0.0),
    ]
    assert _total(pages) == {"rows": "48,846 ± 27", "tree": "occupation", "noun": "Rows"}
    assert _total(pages[2:]) is None


# --- the section report of a configuration ---


REPORT = {"title": "Ages & <b>places</b>", "source": "a survey", "contact": "me@example.org"}


def with_report(section: str) -> str:
    return f"{text_with()}report: {section}"


def test_it_is_read_and_may_be_left_out() -> None:
    plain = parse_configuration(text_with())
    assert plain.report == {}
    read = parse_configuration(with_report("{title: Ages, date: 2024-02-03}"))
    assert read.report == {"title": "Ages", "date": "2024-02-03"}
    assert read.plan() == plain.plan()


def test_what_it_cannot_be() -> None:
    line = "must be one line of at most 200 characters"
    for section, sentence in (
        ("{}", "must hold title, source, contact, date or columns"),
        ("{title: 5}", "report.title"),
        ('{source: "two\\nlines"}', line),
        (f"{{contact: {'a' * 201}}}", line),
    ):
        assert sentence in refusal(with_report(section))


def test_the_manifest_keeps_it_and_the_page_reports_it(
    workspace: Workspace, released: Workspace
) -> None:
    workspace.make(update(report=REPORT))
    manifest, plain = workspace.manifest(), released.manifest()
    assert manifest["report"] == REPORT and "report" not in plain
    for name in ("spec", "record", "nonce"):
        assert manifest[name] == plain[name]
    page = (workspace.output / "report.html").read_text()
    elements = parse_elements(page)
    assert elements.text.count(REPORT["title"]) == 2
    assert "Source: a survey" in elements.text and "Contact: me@example.org" in elements.text
    assert "b" not in {tag for tag, _ in elements.tags}
    workspace.succeed("report", workspace.output)
    assert (workspace.output / "report.html").read_text() == page
    workspace.succeed("verify", workspace.output)
    other = workspace.release(update(report=REPORT | {"title": "b"}))
    assert other.code == 0 and "the page keeps the report section of the first run" in other.err
    assert workspace.manifest() == manifest
