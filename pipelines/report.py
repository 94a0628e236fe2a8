"""The report of a release: one HTML page that says what was released, how sure it is, and what the
guarantee means.

The page is made from the plan and the released tables alone, needs no network, and is the same
bytes for the same release. However large the release, the page holds a bounded part of it: curves
are thinned and counts are given from the top of the tree on, and the page says what it left out.

Source: rho-zCDP implies (rho + 2 sqrt(rho ln(1 / delta)), delta)-DP and k^2 rho for k rows, Bun,
Steinke 2016, Propositions 1.3 and 1.9.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from bokeh.document import Document
from bokeh.resources import Resources
from jinja2 import Environment, FileSystemLoader

from dpcore.accounting import epsilon_of
from dpcore.plan import Mechanism
from dpcore.planner import predicted_cdf_rmse
from dpcore.privacy import Measure
from dpcore.published_forest import Consistency
from dpcore.question import Question, ReleasePlan
from dpcore.samplers import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from pipelines.guarantee import budget_text, guarantee_in_words
from pipelines.report_extent import MAX_NODES, MAX_QUANTILES, MAX_TREES, clip, shown_keys
from pipelines.report_figure import cdf_figure, curves_of, points_per_key, value_texts
from pipelines.report_nodes import level_errors, node_data, node_levels, nodes_shown

Tables = Callable[[str], Iterable[pa.RecordBatch]]

POLICIES = {
    "clamp": "counted in the first or last cell",
    "drop": "row not counted in this tree",
    "first": "counted in the first cell",
    "last": "counted in the last cell",
    "other": "counted under the key other",
}
TEMPLATES = Path(__file__).parent / "templates"


def write_report_html(
    plan: ReleasePlan,
    nodes: Tables,
    cdf: Tables,
    quantiles: pa.Table | None,
    manifest: Mapping[str, object],
) -> str:
    """The page of a release, whole and self-contained; it depends on released tables alone.

    Args:
        plan: of the release.
        nodes: the rows of the table ``nodes`` of a tree, by its name.
        cdf: likewise of the table ``cdf``.
        quantiles: the table ``quantiles`` of all trees, None where none were asked for.
        manifest: of the release; the version is shown where it holds one.

    Returns:
        the HTML text, below 5 MB.
    """
    questions = plan.questions[:MAX_TREES]
    trees, data, document = [], [], Document()
    for question in questions:
        shown = shown_keys(question, len(questions))
        levels = node_levels(question, nodes(question.name), shown, MAX_NODES // len(questions))
        curves = curves_of(question, cdf(question.name), levels[0], shown, len(questions))
        document.add_root(cdf_figure(question, curves, shown))
        data.append(node_data(question, levels, shown))
        trees.append(
            _tree_context(question, shown, levels, len(questions))
            | {"quantiles": _quantile_rows(question, quantiles, len(questions))}
        )
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html.j2").render(
        name=plan.name,
        tree_count=len(plan.questions),
        left_out=len(plan.questions) - len(questions),
        trees=trees,
        policies=[row for question in questions for row in _policies(question)],
        version=_version(manifest),
        digest=plan.digest.hex()[:16],
        data=_Raw(_embedded(document, data)),
        style=_Raw((TEMPLATES / "report.css").read_text(encoding="utf-8")),
        script=_Raw((TEMPLATES / "report.js").read_text(encoding="utf-8")),
        bokeh=_Raw("\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)),
        **_guarantee(plan),
    )


class _Raw(str):
    """Text that is HTML already, and is not escaped again."""

    def __html__(self) -> str:
        return str(self)


def _guarantee(plan: ReleasePlan) -> dict[str, str]:
    amount, name = float(plan.budget.amount), plan.budget.measure.value
    if plan.stated is not None:
        epsilon, delta = (f"{float(each):.6g}" for each in plan.stated)
        numbers = f"Epsilon is {epsilon} and delta {delta}, certified by composing the exact laws "
        numbers += f"of all noise; rho is {amount:.6g}."
        several = "Someone who is in k rows is protected with k squared times rho."
    elif plan.budget.measure is Measure.EPSILON:
        numbers = f"Epsilon is {amount:.6g}: probabilities change by a factor of at most "
        numbers += f"{math.exp(amount):.4g}." if amount < 700 else f"e^{amount:.6g}."
        several = "Someone who is in k rows is protected with k times epsilon."
    else:
        loss = epsilon_of(plan.budget.amount, Fraction(1, 10**6))
        numbers = f"Rho is {amount:.6g}, which implies epsilon = {loss:.4g} at delta = 0.000001."
        several = "Someone who is in k rows is protected with k squared times rho."
    return {
        "guarantee": guarantee_in_words(plan),
        "in_numbers": numbers,
        "several_rows": several,
        "budget": budget_text(plan),
        "measure": name,
    }


def _policies(question: Question) -> Iterator[dict[str, str]]:
    spec = question.domain.spec()
    said = {name: _policy(spec.get(name)) for name in ("outside", "missing", "unknown")}
    yield {"column": clip(question.domain.column), "tree": clip(question.name)} | said
    if question.keys is not None:
        unknown = _policy(question.keys.unknown)
        row = {"column": clip(question.keys.column), "tree": f"{clip(question.name)} (keys)"}
        yield row | {"outside": "", "missing": unknown, "unknown": unknown}


def _policy(policy: object) -> str:
    return POLICIES.get(str(policy), "") if policy is not None else ""


def _version(manifest: Mapping[str, object]) -> str:
    version = manifest.get("dptrees", "")
    return version if isinstance(version, str) else ""


def _tree_context(
    question: Question, shown: Sequence[str | None], levels: Sequence[pa.Table], trees: int
) -> dict[str, object]:
    """What the template says of a tree."""
    plan, domain = question.plan, question.domain
    thinned = domain.cells > points_per_key(trees * len(shown))
    return {
        "name": clip(question.name),
        "column": clip(domain.column),
        "about": _about(question),
        "keys_left_out": _left_out(len(shown), question.key_count, "keys"),
        "confidence": f"{100 * question.confidence:.6g} %",
        "below": "Rows up to and with each category"
        if domain.kind == "category"
        else "Rows below each value",
        "thinned": f"Drawn with a part of its {domain.cells:,} points." if thinned else "",
        "share_note": _share_note(question),
        "nodes_shown": nodes_shown(question, levels),
        "levels": _noise_levels(question),
        "cdf_rmse": f"{predicted_cdf_rmse(plan):,.4g}",
        "cells": f"{domain.cells:,}",
        "keyed": plan.keyed,
    }


def _about(question: Question) -> str:
    domain, fanouts = question.domain, question.plan.tree.fanouts
    text = f"Column {clip(domain.column)} ({domain.kind}) in {domain.cells:,} cells"
    if question.keys is not None:
        text += f", once for each of {question.key_count:,} keys of {clip(question.keys.column)}"
    text += f"; fan-outs {' x '.join(map(str, fanouts))}" if fanouts else ""
    measure, amount = question.plan.budget.measure.value, float(question.plan.budget.amount)
    text += f"; {measure} = {amount:.6g}"
    if question.plan.mechanism is Mechanism.INDEPENDENT:
        text += "; every prefix has noise of its own"
    elif not question.plan.is_efficient:
        text += (
            f"; estimated as in a paper and not by least squares: {question.plan.estimator.value}"
        )
    if question.consistency is not Consistency.TOP_DOWN:
        text += f"; counts of the closest CDF ({question.consistency.value})"
    return f"{text}."


def _share_note(question: Question) -> str:
    if question.plan.public_total:
        return "The total is public and exact, so the band is that of the rows divided by it."
    return (
        "The band is that of the rows divided by the released total count; the error of this total "
        "is not in it."
    )


def _left_out(shown: int, size: int, noun: str) -> str:
    if shown == size:
        return ""
    return f"The first {shown:,} of {size:,} {noun} are here; the tables hold all of them."


def _noise_levels(question: Question) -> list[dict[str, str]]:
    plan = question.plan
    errors = level_errors(question)
    return [
        {
            "level": f"{level}",
            "nodes": f"{plan.tree.level_sizes[level]:,}",
            "budget": f"{float(plan.level_amounts[level]):.4g}",
            "noise": _noise(law, exact=plan.public_total and level == 0),
            "deviation": f"{math.sqrt(law.variance):,.4g}" if law else "",
            "error": f"{errors[level]:,.4g}",
        }
        for level, law in enumerate(plan.laws)
    ]


def _noise(law: NoiseLaw | None, *, exact: bool) -> str:
    if law is None:
        return "none: public and exact" if exact else "not measured"
    if isinstance(law, DiscreteLaplace):
        return f"discrete Laplace, scale {float(law.scale):,.4g}"
    if isinstance(law, DiscreteGaussian):
        return f"discrete Gaussian, sigma {math.sqrt(float(law.sigma_squared)):,.4g}"
    raise TypeError(f"law: {type(law).__name__} has no name in the report")


def _quantile_rows(
    question: Question, table: pa.Table | None, trees: int
) -> dict[str, object] | None:
    """A row for each key, or for each quantile where there are no keys."""
    wanted = len(question.quantiles[: MAX_QUANTILES // trees])
    if table is None or not wanted:
        return None
    keys = min(question.key_count, max(1, MAX_QUANTILES // trees // wanted))
    rows = table.filter(pc.equal(table["tree"].cast(pa.string()), question.name))
    rows = rows.slice(0, keys * len(question.quantiles))
    if not len(rows):
        return None
    cells, every = _quantile_cells(question, rows), len(question.quantiles)
    titles = [f"{quantile:.6g}" for quantile in question.quantiles[:wanted]]
    if question.keys is None:
        listed = [{"name": title, "cells": [cells[place]]} for place, title in enumerate(titles)]
        titles = ["Quantile", "Value"]
    else:
        listed = [
            {"name": clip(name), "cells": cells[place * every : place * every + wanted]}
            for place, name in enumerate(question.key_labels[: len(cells) // every])
        ]
        titles = [clip(question.keys.column), *titles]
    left_out = _left_out(len(cells) // every, question.key_count, "keys")
    if wanted < every:
        left_out += f" The first {wanted:,} of {every:,} quantiles are here."
    return {"titles": titles, "rows": listed, "left_out": left_out.strip()}


def _quantile_cells(question: Question, rows: pa.Table) -> list[dict[str, str]]:
    """The texts of quantiles, with decimals that fit the cells of the domain."""
    texts = []
    for name in ("value", "ci_low", "ci_high"):
        numeric = question.domain.kind in ("number", "integer")
        texts.append(value_texts(question, rows[name] if numeric else rows[f"{name}_text"]))
    return [
        {"value": clip(value), "interval": f"({clip(low)} to {clip(high)})" if low else ""}
        if value
        else {"value": "unknown", "interval": ""}
        for value, low, high in zip(*texts, strict=True)
    ]


# What the page's script reads


def _embedded(document: Document, trees: list[dict[str, object]]) -> str:
    """The figures and the trees as JSON that may stand inside a script element.

    Bokeh numbers its models by a counter of the process: they are numbered anew, from 0.
    """
    ids: dict[str, str] = {}
    figures = _renumbered(document.to_json(deferred=False), ids)
    targets = {ids[root.id]: f"figure-{place}" for place, root in enumerate(document.roots)}
    text = json.dumps(
        {"document": figures, "targets": targets, "trees": trees},
        ensure_ascii=False,
        separators=(",", ":"),
    )
    # A script element ends at its closing tag, and a comment in it would hide that tag.
    return text.replace("</", "<\\/").replace("<!--", "<\\u0021--")


def _renumbered(value: Any, ids: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            name: ids.setdefault(part, f"m{len(ids)}")
            if name == "id" and isinstance(part, str)
            else _renumbered(part, ids)
            for name, part in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_renumbered(part, ids) for part in value]
    return value
