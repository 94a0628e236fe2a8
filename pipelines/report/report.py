"""The report of a release: one HTML page that shows what was released and what it guarantees.

The page is made from the plan and the released tables alone, needs no network, is the same bytes
for the same release, and shows a bounded part of it. Its policy runs only scripts whose text has
a listed hash, so a label that became an element would not run (W3C, "Content Security Policy
Level 3", "Trusted Types").

Source: rho-zCDP implies (rho + 2 sqrt(rho ln(1 / delta)), delta)-DP and k^2 rho for k rows, Bun,
Steinke 2016, Propositions 1.3 and 1.9. (epsilon, delta)-DP implies (k epsilon, k e^((k - 1)
epsilon) delta)-DP for k rows, Vadhan 2017, Lemma 2.2.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import chain
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from dptrees.dpcore.arithmetic.elementary import exp
from dptrees.dpcore.privacy.conversion import zcdp_epsilon
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.guarantee import budget_text, guarantee_in_words, stated_guarantee
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.config.registry import find_kind
from dptrees.pipelines.kinds.periods import cost_in_words
from dptrees.pipelines.show.charts import capitalized
from dptrees.pipelines.show.figures import column_titles, percent, titled
from dptrees.pipelines.show.page_nodes import MAX_TREES, ReleasedTables, clip
from dptrees.pipelines.show.tree_page import PageRoom, TreePage, merged

__all__ = ["content_security_policy"]

_NOTHING_ELSE = ("default-src 'none'", "base-uri 'none'", "form-action 'none'")
# No script of the page makes elements of text.
_TEXT_ONLY = ("require-trusted-types-for 'script'", "trusted-types 'none'")


def content_security_policy(script: str, style: str) -> str:
    """The policy of a page with one inline script and one inline style.

    Args:
        script: the whole text of the script element, with line feeds only: a browser reads
            carriage returns as line feeds before it computes a hash.
        style: likewise of the style element.

    Returns:
        the directives, which need no escaping in an attribute with double quotes.

    Raises:
        ValueError: a text holds a carriage return.

    >>> policy = content_security_policy("alert(1)", "p { margin: 0 }")
    >>> policy.split("; ")[3]
    "script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"
    """
    if "\r" in script or "\r" in style:
        raise ValueError("script, style: a carriage return; lines must end in line feeds")
    own = f"script-src {_hashed(script)}", f"style-src {_hashed(style)}"
    return "; ".join((*_NOTHING_ELSE, *own, *_TEXT_ONLY))


def _hashed(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


_COUNT = (
    "A number near the estimate, adjusted so that the numbers fit together. Usually, counts are "
    "whole numbers, are never negative, and the counts of the parts add up to the count of the "
    "whole."
)
_ESTIMATE = (
    "A number that is computed from noisy measurements, without further adjustment. It can be "
    "fractional, and negative. To add up numbers yourself, use estimates."
)


def word_meanings(plan: ReleasePlan, confidence: float) -> Mapping[str, str]:
    """Return the meanings of the words that a reader of the page needs.

    Args:
        plan: of the release.
        confidence: of its intervals.
    """
    level = percent(confidence)
    return {
        "Privacy unit": f"What the guarantee protects. Here it is {protected_in_words(plan)}.",
        **_budget_meanings(plan),
        "Confidence interval": (
            f"A range of values around a published number. With a confidence of {level}, the range "
            f"contains the true number. This holds for each number separately. The sign ± is half "
            "of the range."
        ),
        "Estimate": _ESTIMATE,
        "Count": _COUNT,
    }


def _budget_meanings(plan: ReleasePlan) -> Mapping[str, str]:
    """Return the meanings of the numbers that the guarantee states."""
    budget = "The privacy budget: how much the release may reveal about a privacy unit. "
    smaller = "Smaller values protect more."
    if plan.promised is not None:
        delta = "A small allowance beyond the limit of epsilon. "
        return {"Epsilon": budget + smaller, "Delta": delta + smaller}
    if plan.budget.measure is Measure.EPSILON:
        return {"Epsilon": budget + smaller}
    law = "It is the parameter of zero-concentrated differential privacy. "
    return {"Rho": budget + law + smaller}


def guarantee_in_short(plan: ReleasePlan) -> str:
    """Return the guarantee in sentences that a reader may quote.

    Args:
        plan: of the release.
    """
    is_rho = plan.promised is None and plan.budget.measure is not Measure.EPSILON
    name = "rho" if is_rho else "epsilon"
    return (
        "In short: every result on this page, unless it is marked as exact, contains random noise. "
        "The noise limits what anyone can learn from this release about "
        f"{protected_in_words(plan)}. The smaller {name} is, the stronger is this limit."
    )


def protected_in_words(plan: ReleasePlan) -> str:
    """Return what the guarantee protects, of each period if each is protected by itself.

    Args:
        plan: of the release.
    """
    if plan.unit.is_row:
        return "one row"
    return f"all rows of one {plan.unit.name} together{_period_in_words(plan)}"


def _period_in_words(plan: ReleasePlan) -> str:
    """Return which periods a unit is protected in; nothing of a release without periods."""
    if plan.run is None:
        return ""
    return " in one period" if plan.run.max_periods is None else " in all periods"


TEMPLATES = Path(__file__).parents[1] / "templates"


def write_report_html(
    release: ReleasedTables, requested_paths: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Return the page of a release, self-contained; it depends on the released tables alone.

    Args:
        release: its plan, manifest and tables.
        requested_paths: paths that the page shows in addition to those that fit, by the name of
            their tree; `check_chosen_paths` has checked them.

    Returns:
        the HTML text, below 600 KB, but for very long names.
    """
    plan, requested_paths = release.plan, requested_paths or {}
    questions = _shown_trees(plan, requested_paths)
    pages = list(_pages(release, questions, requested_paths))
    script = _texts(("page/page.js", "charts/chart.js"), *(page.scripts for page in pages))
    style = _texts(("page/page.css", "charts/chart.css"), *(page.styles for page in pages))
    page = _render(
        name=plan.name,
        **_credits(release),
        total=_total(pages),
        bounds=_bounds(plan),
        period=_period(release),
        confidence=percent(questions[0].confidence),
        tree_count=len(plan.questions),
        trees_left_out=_trees_left_out(plan, questions),
        trees=[_page_values(page) for page in pages],
        words=word_meanings(plan, questions[0].confidence),
        reading=merged({str(page.said["name"]): page.notes for page in pages}),
        version=_version(release.manifest),
        digest=plan.digest.hex()[:16],
        data=_Raw(_embedded(pages)),
        policy=_Raw(content_security_policy(script, style)),
        style=_Raw(style),
        script=_Raw(script),
        **_guarantee(plan),
    )
    return page + _paths_comment(requested_paths) if requested_paths else page


_PATHS = re.compile(r"<!-- paths (.*) -->\n$")


def _paths_comment(paths: Mapping[str, Sequence[str]]) -> str:
    """The end of a page that names its chosen paths, so that it can be made again."""
    text = json.dumps({name: list(each) for name, each in paths.items()})
    for character in "-<>":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f"<!-- paths {text} -->\n"


def is_report_html(page: bytes, release: ReleasedTables) -> bool:
    """Whether a page is exactly the one that this program makes from a release, with the chosen
    paths that the page names."""
    try:
        named = _PATHS.search(page.decode())
        paths = json.loads(named[1]) if named else {}
        return page == write_report_html(release, paths).encode()
    except (ValueError, TypeError, LookupError, AttributeError):
        return False  # it was edited


def _pages(
    release: ReleasedTables,
    questions: Sequence[Question],
    requested_paths: Mapping[str, Sequence[str]],
) -> Iterator[TreePage]:
    titles = column_titles(release.manifest)
    for question in questions:
        room = PageRoom(trees=len(questions), paths=requested_paths.get(question.name, ()))
        yield find_kind(question).page(release, titled(question, titles), room)


def _page_values(page: TreePage) -> dict[str, object]:
    """What the templates say of a tree."""
    shared = {"template": page.template, "headline": page.headline, "charts": page.charts}
    return page.said | shared


def _credits(release: ReleasedTables) -> dict[str, object]:
    """The title of the page, and whose data it is about, where the configuration said so."""
    recorded = release.manifest.get("report")
    report = recorded if isinstance(recorded, dict) else {}
    names = ("source", "date", "contact")
    credits = {name.capitalize(): str(report[name]) for name in names if name in report}
    return {"title": str(report.get("title", release.plan.name)), "credits": credits}


def _total(pages: Sequence[TreePage]) -> dict[str, str] | None:
    """The least noisy total of rows, with its error: all trees count nearly the same ones."""
    headlines = {str(page.said["name"]): page.headline for page in pages if page.headline}
    by_tree = {
        name: each
        for name, each in headlines.items()
        if each.rows and each.noun in ("rows", "counted rows")
    }
    if not by_tree:
        return None
    tree = min(by_tree, key=lambda name: by_tree[name].error)
    found = by_tree[tree]
    named = tree if len(pages) > 1 else ""
    return {"rows": found.rows, "tree": named, "noun": capitalized(found.noun)}


def _period(release: ReleasedTables) -> dict[str, str] | None:
    """Which run of a series this is, and the date that its configuration was given."""
    run, given = release.plan.run, release.manifest.get("parameters")
    if run is None:
        return None
    items = given.items() if isinstance(given, dict) else ()
    named = "; ".join(f"{name} {clip(str(value))}" for name, value in items)
    return {"place": f"{run.period} of {run.periods}", "named": named}


def _bounds(plan: ReleasePlan) -> str:
    """Which rows are counted, beside their number; nothing where all are."""
    return "" if plan.unit.is_row else f"{plan.counted_in_words} of each {plan.unit.name}"


def _render(**values: object) -> str:
    return _templates().get_template("page/page.html.j2").render(**values)


@cache
def _templates() -> Environment:
    """The templates of the page, each compiled once in a process."""
    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )


def _texts(*names: Iterable[str]) -> str:
    """The content of files of the page, each once and in their order."""
    each_once = dict.fromkeys(chain.from_iterable(names))
    return "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in each_once)


def _shown_trees(plan: ReleasePlan, requested_paths: Mapping[str, Sequence[str]]) -> list[Question]:
    """Return the first trees, as many as the page fits, and the trees of requested paths."""
    others = [question.name for question in plan.questions if question.name not in requested_paths]
    kept = {*requested_paths, *others[: max(0, MAX_TREES - len(requested_paths))]}
    return [question for question in plan.questions if question.name in kept]


def _trees_left_out(plan: ReleasePlan, shown: Sequence[Question]) -> str:
    size = len(plan.questions)
    if len(shown) == size:
        return ""
    first = "the first " if shown == list(plan.questions[: len(shown)]) else ""
    return (
        f"This page shows {first}{len(shown)} of {size} trees; {size - len(shown)} are only in "
        "the tables of the release."
    )


def check_chosen_paths(release: ReleasedTables, question: Question, paths: Sequence[str]) -> None:
    """Refuses paths of a tree that its page cannot show.

    Raises:
        ValueError: its nodes have no paths; one leads to no node, or to none that was published; or
            they are too many.
    """
    check = find_kind(question).check_paths
    if check is None:
        raise ValueError(
            f"path: tree {question.name} is {question.kind}, and its nodes have no paths"
        )
    trees = len(_shown_trees(release.plan, {question.name: paths}))
    check(release, question, PageRoom(trees=trees, paths=paths))


class _Raw(str):
    """Text that is HTML already, and is not escaped again."""

    def __html__(self) -> str:
        return str(self)


def _guarantee(plan: ReleasePlan) -> dict[str, str]:
    whole = plan.whole_budget
    amount = float(whole.amount)
    many = "is in k rows" if plan.unit.is_row else f"has k values of {plan.unit.name}"
    several = f"A person who {many} is protected with k squared times rho."
    if plan.promised is not None:
        epsilon, delta = (f"{float(each):.6g}" for each in plan.promised)
        numbers = f"Epsilon is {epsilon} and delta {delta}, {_composition(plan)}."
        first = plan.selection is not None or plan.bounds is not None
        if first or len(plan.composed) < len(plan.questions):
            several = (
                f"A person who {many} is protected with k times epsilon and at most k e^((k - 1) "
                "epsilon) times delta."
            )
    elif plan.budget.measure is Measure.EPSILON:
        numbers = (
            f"Epsilon is {amount:.6g}: between two data sets that the guarantee compares, the "
            "probability of any result changes by a factor of at most "
        )
        numbers += f"{exp(amount):.4g}." if amount < 700 else f"e^{amount:.6g}."
        several = f"A person who {many} is protected with k times epsilon."
    else:
        loss = zcdp_epsilon(whole.amount, Fraction(1, 10**6))
        numbers = f"Rho is {amount:.6g}, which implies epsilon = {loss:.4g} at delta = 0.000001."
    return {
        "in_short": guarantee_in_short(plan),
        "guarantee": guarantee_in_words(plan),
        "in_numbers": numbers,
        "several": several,
        "budget": budget_text(plan),
        "stated": stated_guarantee(plan).removeprefix(budget_text(plan)).lstrip(),
        **_protected(plan),
    }


def _protected(plan: ReleasePlan) -> dict[str, str]:
    """What is protected, what of it is hidden, and where its budgets are summed up."""
    unit, period = plan.unit, _period_in_words(plan)
    counted = "" if plan.dataset is None else f" A ledger tracks the total for {plan.dataset}."
    if unit.is_row:
        return {
            "protected": "one row, not one person",
            "hidden": "a row is in the data, and which values it has",
            "left_out": "",
            "counted": counted,
        }
    return {
        "protected": protected_in_words(plan),
        "hidden": f"a value of {unit.name} is in the data, and which values its rows have{period}",
        "left_out": _left_out(plan)
        + "".join(f" {words}" for words in cost_in_words(plan.questions)),
        "counted": counted,
    }


def _left_out(plan: ReleasePlan) -> str:
    unit = plan.unit.name
    if plan.counts_units:
        values = f"{capitalized(_counted_rows(plan))} of each {unit}"
        return f"{values}, put together from all its rows, is all that counts."
    return (
        f"{capitalized(_counted_rows(plan))} of each {unit} are counted. All numbers are about the "
        "counted rows, not about the dropped ones."
    )


def _counted_rows(plan: ReleasePlan) -> str:
    """How much of a unit is counted."""
    rows, run = plan.counted_in_words, plan.run
    if run is None:
        return rows
    if run.max_periods is None:
        return f"{rows} in one period"
    return f"{rows} per period, in at most {run.max_periods} of the {run.periods} periods,"


def _composition(plan: ReleasePlan) -> str:
    """What a stated epsilon and delta consist of."""
    rho = f"rho is {float(plan.budget.amount):.6g}"
    first = ["the choice of bounds"] if plan.bounds is not None else []
    first += ["the selection of keys"] if plan.selection is not None else []
    if first:
        return f"which {', '.join(first)} and the trees spend, added up"
    if not plan.composed:
        return "which is the sum over the trees"
    if len(plan.composed) == len(plan.questions):
        return f"certified by composing the exact laws of all noise; {rho}"
    return (
        "the sum of the budgets of trees with their own budget and of the amount that is "
        "certified for the other trees by composing the exact laws of their noise; for these "
        f"{rho}"
    )


def _version(manifest: Mapping[str, object]) -> str:
    version = manifest.get("dptrees", "")
    return version if isinstance(version, str) else ""


# What the page's script reads


def _embedded(pages: Sequence[TreePage]) -> str:
    """The trees and their figures as JSON that may be inside a script element."""
    trees = [
        page.data | {"figures": {name: chart.data for name, chart in page.charts.items()}}
        for page in pages
    ]
    text = json.dumps({"trees": trees}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A script element ends at its closing tag, and a comment in it would hide that tag.
    return text.replace("</", "<\\/").replace("<!--", "<\\u0021--")
