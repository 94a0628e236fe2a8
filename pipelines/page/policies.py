"""What the report says of values that are outside, missing or not listed."""

from __future__ import annotations

from collections.abc import Iterator

from dpcore.hierarchy.question import HierarchyQuestion
from dpcore.hierarchy.universe_question import UniverseQuestion
from dpcore.questions.question import ChunkedQuestion
from dpcore.rows.sums import MeasureColumn
from dpcore.sparse.domain import CodeDomain
from dpcore.sparse.question import SparseQuestion
from pipelines.page.extent import clip

_DROPPED = "row not counted in this tree"
_ORDERED = {
    "clamp": "counted in the first or last cell",
    "drop": _DROPPED,
    "first": "counted in the first cell",
    "last": "counted in the last cell",
}
_HIERARCHY = {"drop": _DROPPED, "other": "counted in the leaf other"}
_KEYS = {"drop": _DROPPED, "other": "counted under the key other"}


def policies(question: ChunkedQuestion) -> Iterator[dict[str, str]]:
    """The rows of the table of policies: for the columns of a tree, its keys and what it sums."""
    is_hierarchy = isinstance(question, UniverseQuestion)
    words, spec = _HIERARCHY if is_hierarchy else _ORDERED, question.domain.spec()
    tree, column = clip(question.name), clip(", ".join(question.domain.columns))
    said = {name: str(spec.get(name)) for name in ("outside", "missing", "unknown")}
    yield {"column": column, "tree": tree} | {
        name: words.get(policy, "") for name, policy in said.items()
    }
    if question.keys is not None:
        unknown = _KEYS.get(str(question.keys.unknown), "")
        row = {"column": clip(question.keys.column), "tree": f"{tree} (keys)"}
        yield row | {"outside": "", "missing": unknown, "unknown": unknown}
    if isinstance(question, HierarchyQuestion) and question.measure is not None:
        yield {"tree": f"{tree} (sums)"} | _measure(question.measure)


def sparse_policies(question: SparseQuestion) -> dict[str, str]:
    """The row of the table of policies of a sparse tree."""
    outside = ""
    if isinstance(question.domain, CodeDomain):
        outside = f"no code of {question.domain.bits} bits: {_DROPPED}"
    missing = _DROPPED
    if not isinstance(question.domain, CodeDomain):
        missing += "; likewise texts that are empty or not UTF-8"
    return {
        "column": clip(", ".join(question.columns)),
        "tree": clip(question.name),
        "outside": outside,
        "missing": missing,
        "unknown": "nothing is listed; counted in the nodes above where not published",
    }


def _measure(measure: MeasureColumn) -> dict[str, str]:
    missing = "value not summed in this tree" if measure.drops_rows else "summed as 0"
    outside = f"summed as the nearest bound, {measure.lower:,} or {measure.upper:,}"
    column = clip(measure.column)
    return {"column": column, "outside": outside, "missing": missing, "unknown": ""}
