"""A tree on the page of a report: its values, its noise in words, notes on how to read it.

The notes of all trees are printed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace
from dptrees.pipelines.show.charts import Chart
from dptrees.pipelines.show.page_nodes import clip

# A term, and a sentence on what it represents in one tree; a term may have several.
Note = tuple[str, str]

STANDARD_ERROR: Note = (
    "standard error",
    "The typical distance between an estimate and the true number. It depends on the noise "
    "alone, not on the data.",
)
ADDS_UP = "The counts of a node's children add up to its own."
BIASED = (
    "Because no count is negative, counts are too large on average in nearly empty places, and "
    "too small elsewhere. To add up numbers of your choice, use estimates."
)
CENTERED = (
    "It is centered on the estimate and cut off at the smallest and largest possible values, so "
    "a consistent count may be outside its interval."
)


def unbiased_estimate(noun: str) -> Note:
    """Explain the estimates of a tree that are linear in all noisy counts.

    Args:
        noun: what is estimated.
    """
    return (
        "estimate",
        f"The unbiased estimate of the true {noun}: the least squares combination of all noisy "
        "counts, unless the section of the tree states otherwise. It may be negative or "
        "fractional.",
    )


def consistent_count(parts: str, *, signed: bool = False) -> tuple[Note, Note]:
    """Explain the integers beside the estimates.

    Args:
        parts: what is true of a node's children.
        signed: whether some may be negative.
    """
    size = "nonnegative whole number near the estimate"
    if signed:
        size = "whole number near the estimate, nonnegative if no value can be negative"
    made = f"A {size}, made consistent."
    if not signed:
        made += f" {BIASED}"
    return ("count", made), ("count", parts)


def interval(more: str, *, noun: str = "number") -> tuple[Note, Note]:
    """Explain the confidence intervals.

    Args:
        more: what does not hold of all intervals.
        noun: what is estimated.
    """
    return (
        "interval",
        f"Contains the true {noun} with the stated confidence: for each number separately, not "
        "for all numbers at once.",
    ), ("interval", more)


def merged(notes: Mapping[str, Iterable[Note]]) -> dict[str, list[dict[str, str]]]:
    """The notes of several trees, each sentence once.

    Args:
        notes: by the name of their tree.

    Returns:
        by term the sentences, each with the names of its trees, or none where it is said of all.

    >>> merged({"a": [("count", "Whole.")], "b": [("count", "Whole."), ("error", "Typical.")]})
    {'count': [{'trees': '', 'text': 'Whole.'}], 'error': [{'trees': 'b', 'text': 'Typical.'}]}
    """
    said: dict[str, dict[str, list[str]]] = {}
    for tree, own in notes.items():
        for term, text in own:
            said.setdefault(term, {}).setdefault(text, []).append(tree)

    def names(trees: Sequence[str]) -> str:
        return "" if len(trees) == len(notes) else ", ".join(trees)

    return {
        term: [{"trees": names(trees), "text": text} for text, trees in sentences.items()]
        for term, sentences in said.items()
    }


PUBLIC = "none: public and exact"
NOT_MEASURED = "not measured"


def laws_text(laws: Sequence[NoiseLaw], *, exact: bool) -> str:
    """Laws of one kind in words, from the least noise to the most.

    Args:
        laws: of the nodes of one level; none where nothing is measured.
        exact: whether some of its nodes are public and exact, all of them where there is no law.

    >>> from fractions import Fraction
    >>> laws_text([DiscreteLaplace(scale=Fraction(n)) for n in (3, 2)], exact=True)
    'discrete Laplace, scale 2 to 3; some nodes are public and exact'
    >>> laws_text([DiscreteLaplace(scale=Fraction(5, 2))], exact=False), laws_text([], exact=True)
    ('discrete Laplace, scale 2.5', 'none: public and exact')
    """
    if not laws:
        return PUBLIC if exact else NOT_MEASURED
    parts = sorted({_parts(law) for law in laws}, key=lambda part: part[2])
    name, parameter, least = parts[0]
    text = f"{name}, {parameter} {span_text(least, parts[-1][2])}"
    return f"{text}; some nodes are public and exact" if exact else text


def span_text(least: float, most: float) -> str:
    """A number, or two of them.

    >>> span_text(1.5, 1.5), span_text(1.5, 2.25)
    ('1.5', '1.5 to 2.25')
    """
    low, high = f"{least:,.4g}", f"{most:,.4g}"
    return low if low == high else f"{low} to {high}"


def _parts(law: NoiseLaw) -> tuple[str, str, float]:
    """The name of a law, that of its parameter, and its value in rows."""
    if isinstance(law, DiscreteLaplace):
        return "discrete Laplace", "scale", float(law.scale)
    if isinstance(law, DiscreteGaussian):
        return "discrete Gaussian", "sigma", math.sqrt(float(law.sigma_squared))
    if isinstance(law, TruncatedLaplace):
        return "truncated discrete Laplace", "scale", float(law.scale)
    raise TypeError(f"law: {type(law).__name__} has no name in the report")


DROPPED = "row not counted in this tree"
# Of an ordered domain.
CELL_POLICIES = {
    "clamp": "counted in the first or last cell",
    "drop": DROPPED,
    "first": "counted in the first cell",
    "last": "counted in the last cell",
    "category": "counted as missing, a category of its own",
}
_KEYS = {"drop": DROPPED, "other": "counted under the key other"}


def policies(question: Any, words: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The rows of the table of policies: for the columns of a tree, and its keys.

    Args:
        question: the tree.
        words: what a policy of its domain does, by its name.
    """
    tree, column = clip(question.name), ", ".join(question.domain.columns)
    yield policy_row(column, question.name, question.domain.spec(), words)
    if question.keys is not None:
        unknown = _KEYS.get(str(question.keys.unknown), "")
        row = {"column": clip(", ".join(question.keys.columns)), "tree": f"{tree} (keys)"}
        yield row | {"outside": "", "missing": unknown, "unknown": unknown}


def policy_row(
    column: str, tree: str, spec: Mapping[str, Any], words: Mapping[str, str]
) -> dict[str, str]:
    """A row of the table of policies.

    Args:
        column: that the policies are for.
        tree: the name of the tree.
        spec: the policies by name, among other entries.
        words: what a policy does, by its name.
    """
    said = {name: words.get(str(spec.get(name)), "") for name in ("outside", "missing", "unknown")}
    return {"column": clip(column), "tree": clip(tree)} | said


@dataclass(frozen=True, kw_only=True)
class PageRoom:
    """The part of a page that a tree may take.

    Args:
        trees: how many trees share the page.
        paths: of the nodes requested for the page beyond those that fit.
    """

    trees: int = 1
    paths: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Headline:
    """What the top of the page says of a tree.

    Args:
        figure: one number.
        label: what it is.
        rows: the total of the tree, with its error; none where it is not known.
        noun: what the total counts.
        error: of the total, as the width of its interval; infinite where it is not known.
    """

    figure: str
    label: str
    rows: str = ""
    noun: str = "rows"
    error: float = math.inf


@dataclass(frozen=True, kw_only=True)
class TreePage:
    """A tree on the page.

    Args:
        said: what the template says of it; ``policies`` are the rows of the table of unusual
            values.
        data: what the scripts read; plain JSON values.
        template: of its part of the page, from the folder of this package.
        headline: what the top of the page says of it; None: its name alone.
        scripts: likewise, in their order, after those that all share.
        styles: likewise, after those that all share.
        notes: how to read its numbers.
        charts: by name, which is in the id of their element: ``figure-PLACE-NAME``.
    """

    said: dict[str, object]
    data: dict[str, object]
    template: str
    headline: Headline | None = None
    scripts: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    charts: Mapping[str, Chart] = field(default_factory=dict)
