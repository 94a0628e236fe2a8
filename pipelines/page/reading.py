"""How to read the numbers of a page: the notes of its trees, each printed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
